"""A figure as plain values: the page draws it with its own script, paint.py as PNG and PDF.

So each figure is worked out once and shown twice. The interactive version is SVG drawn by a small
script of ours (report/templates/chart.js) rather than by a library: plotly's script alone is 4.5 MB
and Vega's 0.8 MB, while ours is about 15 kB, needs nothing that a page opened from disk may not do,
takes its colours from the page (light or dark), and can be filtered together with the tables.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from fedgps_ray.analysis.figures.looks import Look
from fedgps_ray.errors import UserError

Kind = Literal["lines", "marks", "dots", "heat"]
Scale = Literal["linear", "log", "sqrt"]
POINTS = 240  # of a line in a page; more cannot be seen
DIGITS = 5


class Axis(NamedTuple):
    """What an axis shows, in which unit; with names, values are places in that list."""

    label: str
    names: tuple[str, ...] = ()
    scale: Scale = "linear"
    downwards: bool = False  # small values at the top, as of ranks
    whole: bool = False  # ticks at whole numbers only


NONE = Axis("")


class Series(NamedTuple):
    """Points under one name, each with the range around it where there is one.

    The range is of y in "lines" and "marks", of x in "dots".
    """

    name: str
    look: Look
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    leading: bool = True  # the others are drawn only on demand


class Guide(NamedTuple):
    """A line across a panel, such as a limit."""

    axis: Literal["x", "y"]
    value: float
    label: str


class Panel(NamedTuple):
    """One pair of axes: series, or the cells of a heat map (rows from the top down)."""

    title: str
    series: tuple[Series, ...] = ()
    cells: Sequence[Sequence[float]] = ()


@dataclass(frozen=True)
class Chart:
    """Panels that share their axes.

    lines: curves with bands. marks: points joined by lines, with error bars. dots: a row per name
    of the y-axis, values from left to right. heat: names on both axes, values as colours.
    """

    kind: Kind
    panels: tuple[Panel, ...]
    x: Axis
    y: Axis
    note: str = ""  # what bands, bars or colours mean
    colour: Axis = NONE  # of a heat map
    guides: tuple[Guide, ...] = ()

    def __post_init__(self) -> None:
        """Refuse a figure without a panel, which no page could show."""
        if not self.panels:
            raise UserError("nothing to draw: no rows have the settings that tell panels apart")


def to_json(chart: Chart) -> dict[str, Any]:
    """Return a chart as the page's script takes it: thinned, rounded, empty for no value."""
    return {
        "kind": chart.kind,
        "panels": [_panel(panel) for panel in chart.panels],
        "x": chart.x._asdict(),
        "y": chart.y._asdict(),
        "colour": chart.colour._asdict(),
        "guides": [guide._asdict() for guide in chart.guides],
    }


def _panel(panel: Panel) -> dict[str, Any]:
    return {
        "title": panel.title,
        "series": [_series(one) for one in panel.series],
        "cells": [_numbers(row) for row in panel.cells],
    }


def _series(one: Series) -> dict[str, Any]:
    kept = _thin(len(one.x))
    columns = {
        name: _numbers([values[place] for place in kept])
        for name, values in (("x", one.x), ("y", one.y), ("low", one.low), ("high", one.high))
        if len(values)
    }
    return {"name": one.name, "look": one.look._asdict(), "leading": one.leading, **columns}


def _thin(count: int) -> list[int]:
    """Return so many places that a line keeps its shape, the last one among them."""
    step = -(-count // POINTS) or 1
    return sorted({*range(0, count, step), *([count - 1] if count else [])})


def _numbers(values: Sequence[float]) -> list[float | None]:
    return [float(f"{v:.{DIGITS}g}") if math.isfinite(v) else None for v in map(float, values)]
