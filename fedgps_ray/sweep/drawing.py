"""Pieces of a picture made of characters: bars, sparklines, and tables that cut no word."""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rich.text import Text

FULL, EMPTY = "━", "─"
LEVELS = "▁▂▃▄▅▆▇█"
MORE = "…"
GAP = "  "
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]+")  # what a file says is not to steer the terminal
# for terminals that know ASCII only; the levels of a sparkline become digits
PLAIN = str.maketrans(
    {FULL: "=", EMPTY: "-", MORE: ">", "±": "~", **dict(zip(LEVELS, "12345678", strict=True))}
)


def bar(share: float, width: int) -> Text:
    """Return a bar of which a share is done."""
    done = round(max(0.0, min(1.0, share)) * width)
    return Text.assemble((FULL * done, "green"), (EMPTY * (width - done), "dim"))


def spark(values: Sequence[float], width: int) -> str:
    """Return values from 0 to 1 as a line of blocks, the last ones if there are too many."""
    shown = thinned(values, width)
    low, high = min(shown, default=0.0), max(shown, default=0.0)
    span = max(high - low, 1e-9)
    return "".join(LEVELS[int((value - low) / span * (len(LEVELS) - 1))] for value in shown)


def thinned(values: Sequence[float], most: int) -> list[float]:
    """Return a limited number of values, evenly spread, always including the last one."""
    if len(values) <= most:
        return list(values)
    step = len(values) / most
    return [values[int((i + 1) * step) - 1] for i in range(most)]


def fit(text: str, width: int) -> str:
    """Return a text that is cut between words if it is too long; a single long word stays out."""
    text = CONTROL.sub(" ", text)
    if len(text) <= width:
        return text
    kept = ""
    for word in text.split(" "):
        longer = f"{kept} {word}" if kept else word
        if len(longer) + 2 > width:
            break
        kept = longer
    return f"{kept.rstrip(',;:')} {MORE}" if kept else MORE[:width]


class Column(NamedTuple):
    """A column: its heading, its side, whether it may be cut, and when it is left out."""

    head: str
    right: bool = False
    cut: bool = False
    rank: int = 0  # columns with the highest rank are left out first; 0: never


def table(
    columns: Sequence[Column],
    rows: Sequence[Sequence[str]],
    width: int,
    styles: Mapping[str, str] | None = None,
) -> list[Text]:
    """Return a heading and lines that are never wider than the screen."""
    shown = _fitting(columns, rows, width)
    widths = _widths(columns, rows, width, shown)
    heads = [columns[i].head for i in shown]
    chosen = [[row[i] for i in shown] for row in rows]
    kinds = [columns[i] for i in shown]
    looks = [(styles or {}).get(column.head, "") for column in kinds]
    lines = [_line(heads, kinds, widths, ["bold"] * len(kinds))]
    return lines + [_line(row, kinds, widths, looks) for row in chosen]


def _needed(column: Column, cells: Sequence[str]) -> int:
    return max([len(column.head), *map(len, cells)])


def _cells(rows: Sequence[Sequence[str]], index: int) -> list[str]:
    return [row[index] for row in rows]


def _fitting(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int) -> list[int]:
    """Return which columns there is room for, with those that may be cut at their smallest."""
    shown = [i for i, c in enumerate(columns) if c.rank == 0 or any(_cells(rows, i))]
    while _least(columns, rows, shown) > width:
        optional = [i for i in shown if columns[i].rank]
        if not optional:
            break
        shown.remove(max(optional, key=lambda i: columns[i].rank))
    return shown


def _least(columns: Sequence[Column], rows: Sequence[Sequence[str]], shown: Sequence[int]) -> int:
    sizes = [
        _shortest(columns[i], _cells(rows, i))
        if columns[i].cut
        else _needed(columns[i], _cells(rows, i))
        for i in shown
    ]
    return sum(sizes) + len(GAP) * (len(sizes) - 1)


def _shortest(column: Column, cells: Sequence[str]) -> int:
    """Return a width that shows at least the first word of each cell."""
    words = [len(cell.split(" ", 1)[0]) + (2 if " " in cell else 0) for cell in cells]
    return max([len(column.head), *words])


def _widths(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int, shown: Sequence[int]
) -> list[int]:
    sizes = [_needed(columns[i], _cells(rows, i)) for i in shown]
    over = sum(sizes) + len(GAP) * (len(sizes) - 1) - width
    for place, i in enumerate(shown):
        if over > 0 and columns[i].cut:
            least = _shortest(columns[i], _cells(rows, i))
            smaller = max(least, sizes[place] - over)
            over -= sizes[place] - smaller
            sizes[place] = smaller
    return sizes


def _line(
    cells: Sequence[str], columns: Sequence[Column], widths: Sequence[int], looks: Sequence[str]
) -> Text:
    line = Text(no_wrap=True, end="")
    for place, (cell, column, width) in enumerate(zip(cells, columns, widths, strict=True)):
        told = fit(cell, width)
        told = told.rjust(width) if column.right else told.ljust(width)
        line.append(told if place == len(cells) - 1 else told + GAP, looks[place])
    line.rstrip()
    return line
