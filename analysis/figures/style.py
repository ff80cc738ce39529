"""One look for all figures: sizes, colour-blind safe colours, files that come out the same."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from itertools import cycle, product
from pathlib import Path
from typing import Any, NamedTuple, ParamSpec, TypeVar

import matplotlib
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

Arguments = ParamSpec("Arguments")
Smoothed = TypeVar("Smoothed", pd.DataFrame, "pd.Series[float]")

OURS = ("fedgps", "fedgps_cf")
REFERENCE = "fedavg"
INK, FAINT = "#222222", "#B0B0B0"
OWN_COLOURS = {"fedgps": "#D55E00", "fedgps_cf": "#0072B2", REFERENCE: "#000000"}
COLOURS = (  # the muted scheme of Paul Tol; above: Okabe and Ito
    *("#117733", "#CC6677", "#88CCEE", "#AA4499", "#999933"),
    *("#332288", "#44AA99", "#882255", "#DDCC77"),
)
STROKES = ("-", "--", "-.", ":")
MARKERS = "osD^vP*X<>hp8d"
COLUMNS = 3  # panels side by side
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


class Look(NamedTuple):
    """How a method is drawn, in every figure alike."""

    color: str
    linestyle: str
    marker: str
    linewidth: float


def styled(make: Callable[Arguments, Figure]) -> Callable[Arguments, Figure]:
    """Let a function draw in the common style, leaving matplotlib's settings as they were."""

    @wraps(make)
    def draw(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Figure:
        with matplotlib.rc_context(STYLE):
            return make(*args, **kwargs)

    return draw


def looks(labels: Iterable[str]) -> dict[str, Look]:
    """Return each label's look; pass all labels of a comparison, so that figures agree.

    FedAvg and ours have colours of their own, unless several of their variants are compared.
    """
    ordered = sorted(set(labels))
    variants = Counter(method_of(label) for label in ordered)
    others = cycle(product(STROKES, COLOURS))
    found = {}
    for number, label in enumerate(ordered):
        method = method_of(label)
        own = label in OWN_COLOURS or (method in OWN_COLOURS and variants[method] == 1)
        stroke, colour = ("-", OWN_COLOURS[method]) if own else next(others)
        width = 2.2 if method in OURS else 1.3
        found[label] = Look(colour, stroke, MARKERS[number % len(MARKERS)], width)
    return found


def method_of(label: str) -> str:
    """Return the method of a label, which may go on to name its options."""
    return label.split(" ")[0]


def line(look: Look) -> dict[str, Any]:
    """Return the look as matplotlib's settings of a line without markers."""
    return {key: value for key, value in look._asdict().items() if key != "marker"}


def panels(number: int, size: tuple[float, float], **shared: Any) -> tuple[Figure, list[Axes]]:
    """Return a figure with so many panels of this size in inches, a few of them side by side."""
    columns = min(number, COLUMNS)
    rows = -(-number // columns)
    figure = Figure(figsize=(size[0] * columns, size[1] * rows), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False, **shared).ravel()
    for axes in grid[number:]:
        axes.remove()
    return figure, list(grid[:number])


def whole_rounds(axes: Axes) -> None:
    """Put the ticks of the x-axis at whole rounds."""
    axes.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10], integer=True))


def label_outside(grid: Sequence[Axes], x: str, y: str) -> None:
    """Name the axes of the panels at the left and at the bottom."""
    for number, axes in enumerate(grid):
        if number % COLUMNS == 0:
            axes.set_ylabel(y)
        if number >= len(grid) - COLUMNS:
            axes.set_xlabel(x)
            axes.tick_params(labelbottom=True)


def smooth(values: Smoothed, window: int) -> Smoothed:
    """Return the running mean over so many rounds."""
    return values.rolling(window, min_periods=1).mean()


def over_rounds(window: int) -> str:
    """Say in an axis label how many rounds were averaged."""
    return f",\nmean of {window} rounds" if window > 1 else ""


def legend_below(figure: Figure, axes: Axes) -> None:
    """Put the legend under all panels, and make the figure higher by as much as it takes."""
    handles, labels = axes.get_legend_handles_labels()
    width, height = figure.get_size_inches()
    longest = max(len(label) for label in labels)
    columns = max(1, min(len(labels), int(width / (0.45 + 0.075 * longest))))
    lines = -(-len(labels) // columns)
    figure.set_size_inches(width, height + 0.2 * lines + 0.1)
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, fontsize=8.5)


def save(figure: Figure, folder: Path, name: str) -> Path:
    """Write a figure as PNG and PDF, the same bytes for the same figure; return the PNG's path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.png"
    with matplotlib.rc_context(STYLE):
        figure.savefig(path, metadata={"Software": None})
        figure.set_layout_engine("none")  # what was laid out for one file holds for the other
        figure.savefig(path.with_suffix(".pdf"), metadata={"CreationDate": None})
    return path
