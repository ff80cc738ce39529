"""Accuracy against what it cost."""

import pandas as pd
from matplotlib.figure import Figure

from fedgps_ray.analysis.figures.frames import leading_curves, tested
from fedgps_ray.analysis.figures.style import legend_below, line, looks, styled

UNITS = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"))


@styled
def accuracy_against_bytes(rounds: pd.DataFrame, top: int = 5) -> Figure:
    """Draw the best accuracy so far against all bytes exchanged so far, means over the trials."""
    spent = rounds.sort_values("round").assign(bytes=rounds["bytes_up"] + rounds["bytes_down"])
    spent["bytes"] = spent.groupby("trial_id", observed=True)["bytes"].cumsum()
    frame = tested(spent)
    frame["reached"] = frame.groupby("trial_id", observed=True)["accuracy"].cummax() * 100
    drawn = looks(frame["label"])
    size, unit = _unit(float(frame["bytes"].max()))
    figure = Figure(figsize=(6.4, 3.6), layout="constrained")
    axes = figure.add_subplot(xlabel=f"{unit} exchanged (up and down)")
    axes.set_ylabel("best test accuracy so far (%)")
    for label in leading_curves(frame, top):
        means = _whole(frame[frame["label"] == label])
        axes.plot(means["bytes"] / size, means["reached"], label=label, **line(drawn[label]))
    legend_below(figure, axes)
    return figure


def _whole(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the means over the trials of each round that all of them have."""
    by_round = rows.groupby("round")[["bytes", "reached"]]
    counts = by_round.size()
    return by_round.mean()[counts == counts.max()]


def _unit(most: float) -> tuple[float, str]:
    return next(((size, name) for size, name in UNITS if most >= size), (1.0, "bytes"))
