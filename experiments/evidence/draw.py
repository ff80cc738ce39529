"""The figures of the page, as small SVG files that come out the same for the same results."""

from dataclasses import replace
from pathlib import Path

import matplotlib
import pandas as pd
from matplotlib.figure import Figure

from fedgps_ray.analysis import figures
from fedgps_ray.analysis.figures.chart import Axis, Chart, Guide, Panel, Series
from fedgps_ray.analysis.figures.frames import curves_of, ranked
from fedgps_ray.analysis.figures.looks import Look
from fedgps_ray.analysis.figures.paint import STYLE

WINDOW = 5  # rounds that a curve is averaged over
EFFECT = Look("#0072B2", "-", "o", 1.5)


def save(drawing: Chart | Figure, path: Path) -> None:
    """Write a figure without the date and random names that would change from run to run."""
    figure = figures.paint(drawing) if isinstance(drawing, Chart) else drawing
    path.parent.mkdir(parents=True, exist_ok=True)
    with matplotlib.rc_context({**STYLE, "svg.hashsalt": "evidence"}):
        figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})


def curves(rounds: pd.DataFrame) -> Chart:
    """Return the accuracy by round, means over the draws, one line per method."""
    frame = rounds.dropna(subset=["accuracy"])
    frame = frame.assign(percent=100 * frame["accuracy"])
    names = ranked(frame["percent"], frame["label"])
    lines = [_without_band(one) for one in curves_of(frame, "percent", names, [], WINDOW)]
    y = Axis(f"test accuracy (%), mean of {WINDOW} rounds")
    return Chart("lines", (Panel("", tuple(lines)),), Axis("round", whole=True), y)


def drift(rounds: pd.DataFrame) -> Chart:
    """Return how unlike the clients' updates are, by round."""
    return _without_bands(figures.update_diversity(rounds, rounds["label"].nunique()))


def bytes_spent(rounds: pd.DataFrame) -> Chart:
    """Return the best accuracy so far against all bytes exchanged."""
    return _without_bands(figures.accuracy_against_bytes(rounds, rounds["label"].nunique()))


def _without_bands(chart: Chart) -> Chart:
    (panel,) = chart.panels
    lines = tuple(_without_band(one) for one in panel.series)
    return replace(chart, panels=(panel._replace(series=lines),), note="")


def _without_band(one: Series) -> Series:
    """Return a line alone: the bands of ten methods hide each other."""
    return one._replace(low=(), high=())


def effects(found: pd.DataFrame) -> Chart:
    """Return each effect with its interval."""
    names = tuple(str(name) for name in found["switch"])
    rows = [float(place) for place in range(len(names))]
    ends = list(found["low"]), list(found["high"])
    series = Series("effect", EFFECT, list(found["effect"]), rows, *ends)
    x = Axis("points of accuracy, second value minus first")
    return Chart(
        "dots", (Panel("", (series,)),), x, Axis("switch", names), guides=(Guide("x", 0.0, ""),)
    )
