"""What each method reached, at a glance."""

import pandas as pd

from fedgps_ray.analysis.figures.chart import Axis, Chart, Panel, Series
from fedgps_ray.analysis.figures.frames import ranked, scored
from fedgps_ray.analysis.figures.looks import Look, looks


def best_accuracy(runs: pd.DataFrame) -> Chart:
    """Return the best accuracy of each method: mean, lowest and highest, and every trial."""
    frame = scored(runs)
    names = ranked(frame["accuracy"], frame["label"])
    drawn = looks(names)
    series = [
        _row(frame.loc[frame["label"] == name, "accuracy"], name, place, drawn[name])
        for place, name in enumerate(names)
    ]
    note = "Large dots are means, small ones trials; bars reach from the lowest to the highest."
    axes = Axis("best test accuracy (%)"), Axis("method", tuple(names))
    return Chart("dots", (Panel("", tuple(series)),), *axes, note)


def _row(values: "pd.Series[float]", name: str, place: int, look: Look) -> Series:
    """Return a mean with its range, then each trial without one."""
    missing = [float("nan")] * len(values)
    return Series(
        name,
        look,
        [values.mean(), *values],
        [place] * (1 + len(values)),
        [values.min(), *missing],
        [values.max(), *missing],
    )
