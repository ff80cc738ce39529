"""Which client has how many samples of which class, as a picture for terminal or paper."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from os import PathLike

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from numpy.typing import NDArray
from rich.color import Color
from rich.color_triplet import ColorTriplet
from rich.console import Console, ConsoleOptions, RenderResult
from rich.style import Style
from rich.table import Table
from rich.text import Text

from fedgps_ray.analysis.figures.paint import plain

Counts = NDArray[np.int64]

LIGHT, DARK = (247, 251, 255), (8, 48, 107)  # the ends of matplotlib's "Blues"
MARGIN = 16  # characters that the columns "client" and "total" take
MIN_CELL, MAX_CELL = 4, 6  # characters of a class
MAX_NUMBERS = 12  # a figure of more clients or classes has no room for numbers
MAX_TICKS = 20


@dataclass(frozen=True)
class HeatMap:
    """What rich prints: as many classes as the terminal has room for, and what is left out."""

    counts: Counts
    class_names: Sequence[str] | None
    max_clients: int

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        least = max(len(str(self.counts.max())) + 1, MIN_CELL)
        room = max(options.max_width - MARGIN, least)
        cell = max(least, min(MAX_CELL, room // self.counts.shape[1]))
        shown = self.counts[: self.max_clients, : room // cell]
        grid = Table(box=None, padding=0, caption=_caption(self.counts.shape, shown.shape))
        grid.add_column("client", width=7)
        for heading in _headings(self.class_names, shown.shape[1], cell):
            grid.add_column(heading, justify="right", width=cell)
        grid.add_column("total", justify="right", width=MARGIN - 7)
        for client, row in enumerate(shown):
            cells = [_cell(int(number), int(shown.max()), cell) for number in row]
            grid.add_row(f"{client:6}", *cells, f"{self.counts[client].sum()}")
        yield grid


def table(counts: Counts, class_names: Sequence[str] | None, max_clients: int = 40) -> HeatMap:
    """Return a heat map of label counts (clients x classes) for rich to print."""
    return HeatMap(counts, class_names, max_clients)


def save_png(counts: Counts, path: str | PathLike[str], title: str) -> None:
    """Write `figure` to a file."""
    figure(counts, title).savefig(path, format="png", dpi=150)


def figure(counts: Counts, title: str) -> Figure:
    """Return a figure of label counts: clients from left to right, classes from the bottom up."""
    most = max(int(counts.max()), 1)
    norm = PowerNorm(0.5, 0, most)  # on a linear scale, few samples look like none
    canvas = Figure(figsize=_inches(*counts.shape), layout="constrained")
    axes = canvas.add_subplot(xlabel="client", ylabel="class", title=plain(title))
    image = axes.imshow(
        counts.T, "Blues", norm, aspect="auto", origin="lower", interpolation="nearest"
    )
    canvas.colorbar(image, label="samples", ticks=_sqrt_ticks(most), pad=0.02)
    _number_ticks(axes, *counts.shape)
    if max(counts.shape) <= MAX_NUMBERS:
        _print_numbers(axes, counts)
    return canvas


def _inches(num_clients: int, num_classes: int) -> tuple[float, float]:
    width = np.interp(num_clients, [10, 100, 500], [6.5, 11, 15])
    height = np.interp(num_classes, [10, 100], [4.5, 8])
    return float(width), float(height)


def _sqrt_ticks(most: int) -> list[int]:
    """Return round numbers that do not crowd on a square root scale, and both ends."""
    round_numbers = [digit * 10**power for power in range(9) for digit in (1, 2, 5)]
    return [0, *(n for n in round_numbers if most / 50 <= n <= 0.8 * most), most]


def _number_ticks(axes: Axes, num_clients: int, num_classes: int) -> None:
    if num_clients <= MAX_TICKS:
        axes.set_xticks(range(num_clients))
    if num_classes <= MAX_TICKS:
        axes.set_yticks(range(num_classes))


def _print_numbers(axes: Axes, counts: Counts) -> None:
    for (client, label), number in np.ndenumerate(counts):
        if number:
            color = "white" if sqrt(number / counts.max()) > 0.6 else "black"
            axes.text(client, label, str(number), ha="center", va="center", size=8, color=color)


def _caption(all_counts: tuple[int, ...], shown: tuple[int, ...]) -> str:
    hidden = [
        f"{kind} from {first} on (of {total})"
        for kind, first, total in zip(("clients", "classes"), shown, all_counts, strict=True)
        if first < total
    ]
    note = f"\nnot shown: {', '.join(hidden)}" if hidden else ""
    return f"darker: more samples of the class{note}"


def _headings(names: Sequence[str] | None, num_classes: int, cell: int) -> list[str]:
    """Return class names cut to fit, or numbers if there are none or they would look alike."""
    numbers = [str(label) for label in range(num_classes)]
    cut = [name if len(name) < cell else f"{name[: cell - 2]}…" for name in names or []]
    unlike = len(set(cut[:num_classes])) == num_classes
    return cut[:num_classes] if unlike else numbers


def _cell(number: int, most: int, width: int) -> Text:
    depth = sqrt(number / most) if most else 0.0
    shade = [round(light + depth * (dark - light)) for light, dark in zip(LIGHT, DARK, strict=True)]
    style = Style(
        color="white" if depth > 0.6 else "black",
        bgcolor=Color.from_triplet(ColorTriplet(*shade)),
    )
    return Text(f"{number or '·'}".rjust(width), style)
