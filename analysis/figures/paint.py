"""Charts as matplotlib figures, in one style; files come out the same for the same chart."""

from collections.abc import Callable, Sequence
from functools import partial, wraps
from pathlib import Path
from textwrap import fill
from typing import Any, ParamSpec

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Normalize, PowerNorm
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fedgps_ray.analysis.figures.chart import Axis, Chart, Guide, Panel, Series
from fedgps_ray.results import files

Arguments = ParamSpec("Arguments")
INK = "#222222"
WRAPPED = 32  # letters of a line of an axis label
COLUMNS = 3  # panels side by side
SHORT, LETTER = 40, 0.075  # letters of a name that fit in any case, inches of one more
TICKS = 12  # names on an axis; of more, every so manyth is shown
STYLE: Any = {
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.edgecolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#E4E4E4",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "legend.frameon": False,
    "figure.facecolor": "white",
    "savefig.dpi": 150,
    "pdf.fonttype": 42,
}


def styled(make: Callable[Arguments, Figure]) -> Callable[Arguments, Figure]:
    """Let a function draw in the common style, leaving matplotlib's settings as they were."""

    @wraps(make)
    def draw(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Figure:
        with matplotlib.rc_context(STYLE):
            return make(*args, **kwargs)

    return draw


def save(drawing: Chart | Figure, folder: Path, name: str) -> Path:
    """Write a chart or figure as PNG and PDF, complete or not at all; return the PNG's path."""
    figure = paint(drawing) if isinstance(drawing, Chart) else drawing
    path = folder / f"{name}.png"
    folder.mkdir(parents=True, exist_ok=True)
    with matplotlib.rc_context(STYLE):
        files.write(path, partial(_put, figure, "png", {"Software": None}))
        figure.set_layout_engine("none")  # what was laid out for one file holds for the other
        files.write(path.with_suffix(".pdf"), partial(_put, figure, "pdf", {"CreationDate": None}))
    return path


def _put(figure: Figure, ending: str, metadata: dict[str, Any], path: Path) -> None:
    figure.savefig(path, format=ending, metadata=metadata)


# --- any chart ------------------------------------------------------------------------------------


@styled
def paint(chart: Chart) -> Figure:
    """Return a chart as a figure: its leading series, and a legend below."""
    number = len(chart.panels)
    columns = min(number, COLUMNS)
    rows = -(-number // columns)
    width, height = _size(chart)
    room = room_for([*chart.y.names])
    figure = Figure(figsize=(width * columns + room, height * rows), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True).ravel()
    for axes in grid[number:]:
        axes.remove()
    for axes, panel in zip(grid, chart.panels, strict=False):
        PAINTERS[chart.kind](axes, panel, chart)
        axes.set_title(plain(panel.title))
    _label(list(grid[:number]), chart)
    _explain(figure, list(grid[:number]), chart)
    return figure


def plain(text: str) -> str:
    """Return text that matplotlib shows as it is: not as a formula, and also in a legend."""
    escaped = text.replace("$", r"\$")
    return f" {escaped}" if escaped.startswith("_") else escaped


def room_for(names: Sequence[str]) -> float:
    """Return by how many inches a figure must be wider, so that long names leave room to draw."""
    longest = max((len(name) for name in names), default=0)
    return LETTER * max(0, longest - SHORT)


def _size(chart: Chart) -> tuple[float, float]:
    """Return the size of a panel in inches."""
    alone = len(chart.panels) == 1
    if chart.kind == "heat":
        columns, rows = len(chart.x.names), len(chart.y.names)
        wide = np.interp(columns, [10, 100], [5.2 if alone else 2.6, 8.0 if alone else 4.2])
        return float(wide), float(np.interp(rows, [3, 10, 100], [1.6, 2.5, 4.2]))
    if chart.kind == "dots":
        return (6.4 if alone else 4.4), 1.0 + 0.27 * len(chart.y.names)
    if chart.x.names:
        return max(4.4, 1.5 + 1.0 * len(chart.x.names)), 3.4
    return (6.4, 3.6) if alone else (3.3, 2.5)


def _label(grid: list[Axes], chart: Chart) -> None:
    """Name the axes of the panels at the left and at the bottom, and set their ticks."""
    for number, axes in enumerate(grid):
        if number % COLUMNS == 0:
            axes.set_ylabel(fill(plain(chart.y.label), WRAPPED))
        if number >= len(grid) - COLUMNS:
            axes.set_xlabel(fill(plain(chart.x.label), 2 * WRAPPED))
            axes.tick_params(labelbottom=True)
    _scale(grid[0], "x", chart.x)
    _scale(grid[0], "y", chart.y)


def _scale(axes: Axes, which: str, axis: Axis) -> None:
    """Set ticks and scale; panels share them."""
    ticks = getattr(axes, f"{which}axis")
    if axis.names:
        step = -(-len(axis.names) // TICKS) if which == "x" else 1
        names = [plain(name) for name in axis.names[::step]]
        getattr(axes, f"set_{which}ticks")(range(0, len(axis.names), step), names)
        return
    if axis.scale == "log":
        getattr(axes, f"set_{which}scale")("log")
    elif axis.whole:
        ticks.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10], integer=True))
    if axis.downwards:
        ticks.set_inverted(True)


def _explain(figure: Figure, grid: list[Axes], chart: Chart) -> None:
    """Add the colour bar of a heat map, or the legend."""
    if chart.kind == "heat":
        figure.colorbar(grid[0].images[0], ax=grid, label=plain(chart.colour.label), shrink=0.8)
    elif not _named_by_rows(chart):
        _legend_below(figure, grid[0])


def _named_by_rows(chart: Chart) -> bool:
    """Say whether the y-axis names every series already."""
    names = {one.name for panel in chart.panels for one in panel.series}
    return names <= set(chart.y.names)


def _legend_below(figure: Figure, axes: Axes) -> None:
    """Put the legend under all panels, and make the figure higher by as much as it takes."""
    handles, labels = axes.get_legend_handles_labels()
    if not labels:
        return
    width, height = figure.get_size_inches()
    longest = max(len(label) for label in labels)
    columns = max(1, min(len(labels), int(width / (0.45 + 0.075 * longest))))
    lines = -(-len(labels) // columns)
    figure.set_size_inches(width + room_for(labels), height + 0.2 * lines + 0.1)
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, fontsize=8.5)


def _guide(axes: Axes, guide: Guide) -> None:
    if guide.axis == "y":
        axes.axhline(guide.value, color=INK, lw=0.8, ls=":")
        return
    axes.axvline(guide.value, color=INK, lw=0.8, ls="--")
    place = (guide.value, 1)
    axes.annotate(
        plain(guide.label),
        place,
        (3, -9),
        xycoords=("data", "axes fraction"),
        textcoords="offset points",
        size=8,
    )


# --- the kinds ------------------------------------------------------------------------------------


def _lines(axes: Axes, panel: Panel, chart: Chart) -> None:
    for one in _leading(panel):
        look = one.look
        style: Any = {"color": look.color, "linestyle": look.linestyle, "linewidth": look.linewidth}
        axes.plot(one.x, one.y, label=plain(one.name), **style)
        if len(one.low):
            axes.fill_between(one.x, one.low, one.high, color=look.color, alpha=0.15, linewidth=0)
    for guide in chart.guides:
        _guide(axes, guide)


def _marks(axes: Axes, panel: Panel, chart: Chart) -> None:
    shown = _leading(panel)
    for number, one in enumerate(shown):
        shift = 0.05 * (number - (len(shown) - 1) / 2) if len(one.low) else 0.0
        places = np.asarray(one.x) + shift
        style = one.look._asdict()
        if len(one.low):
            reach = np.abs(np.asarray([one.low, one.high]) - np.asarray(one.y))
            axes.errorbar(places, one.y, reach, label=plain(one.name), ms=4.5, **style)
        else:
            axes.plot(places, one.y, label=plain(one.name), ms=5, **style)


def _dots(axes: Axes, panel: Panel, chart: Chart) -> None:
    """Draw points with a range large, those without small; series of one row beside each other."""
    shown = _leading(panel)
    rows_named = _named_by_rows(chart)
    for number, one in enumerate(shown):
        shift = 0.0 if rows_named else 0.14 * (number - (len(shown) - 1) / 2)
        _row(axes, one, np.asarray(one.y) + shift)
    for guide in chart.guides:
        _guide(axes, guide)
    axes.set_ylim(len(chart.y.names) - 0.5, -0.5)
    axes.grid(False, axis="y")


def _row(axes: Axes, one: Series, rows: Any) -> None:
    values = np.asarray(one.x, dtype=float)
    low = np.asarray(one.low if len(one.low) else np.full(len(values), np.nan), dtype=float)
    high = np.asarray(one.high if len(one.high) else low, dtype=float)
    large = np.isfinite(low)
    style: Any = {"marker": one.look.marker, "color": one.look.color, "linestyle": ""}
    axes.plot(values[~large], rows[~large], ms=4, alpha=0.5, mew=0.8, **style)
    axes.hlines(rows[large], low[large], high[large], color=one.look.color, lw=1.2)
    drawn = values[large] if large.any() else values[:0]
    axes.plot(drawn, rows[large], ms=6, label=plain(one.name), **style)


def _heat(axes: Axes, panel: Panel, chart: Chart) -> None:
    top = max(float(np.nanmax(np.asarray(one.cells, dtype=float))) for one in chart.panels)
    sqrt = chart.colour.scale == "sqrt"  # on a linear scale, few samples look like none
    norm = PowerNorm(0.5, 0, max(top, 1)) if sqrt else Normalize(0, 100)
    axes.imshow(np.asarray(panel.cells, dtype=float), "Blues", norm, aspect="auto")
    axes.grid(False)


def _leading(panel: Panel) -> list[Series]:
    return [one for one in panel.series if one.leading] or list(panel.series)


PAINTERS = {"lines": _lines, "marks": _marks, "dots": _dots, "heat": _heat}
