"""Accuracy against what it cost."""

import pandas as pd

from fedgps_ray.analysis.figures.chart import Axis, Chart, Panel, Series
from fedgps_ray.analysis.figures.frames import LOWEST_TO_HIGHEST, curves, tested

UNITS = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"))


def accuracy_against_bytes(rounds: pd.DataFrame, top: int = 5) -> Chart:
    """Return the best accuracy so far against all bytes exchanged so far, means over the trials."""
    spent = rounds.sort_values("round").assign(bytes=rounds["bytes_up"] + rounds["bytes_down"])
    spent["bytes"] = spent.groupby("trial_id", observed=True)["bytes"].cumsum()
    frame = tested(spent).copy()
    frame["reached"] = frame.groupby("trial_id", observed=True)["accuracy"].cummax() * 100
    size, unit = _unit(float(frame["bytes"].max()))
    sent = frame.groupby(["label", "round"], observed=True)["bytes"].mean() / size
    series = tuple(_against(one, sent[one.name]) for one in curves(frame, "reached", top))
    x, y = Axis(f"{unit} exchanged (up and down)"), Axis("best test accuracy so far (%)")
    return Chart("lines", (Panel("", series),), x, y, LOWEST_TO_HIGHEST)


def _against(one: Series, sent: "pd.Series[float]") -> Series:
    """Return a curve over bytes in place of rounds."""
    return one._replace(x=[float(sent[number]) for number in one.x])


def _unit(most: float) -> tuple[float, str]:
    return next(((size, name) for size, name in UNITS if most >= size), (1.0, "bytes"))
