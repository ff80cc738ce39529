"""Test accuracy round by round."""

import pandas as pd

from fedgps_ray.analysis.figures.chart import Axis, Chart, Panel
from fedgps_ray.analysis.figures.frames import (
    best_accuracies,
    curves_of,
    leading,
    over_rounds,
    ranked,
    tested,
)

SMOOTHED = 50  # a running mean takes one in so many of the rounds
NOTE = "Lines are means over the seeds; bands reach from the lowest to the highest seed."


def convergence(rounds: pd.DataFrame, top: int = 5) -> Chart:
    """Return the accuracy over the rounds, a panel per scenario; bands span the seeds."""
    frame = tested(rounds)
    frame = frame.assign(percent=100 * frame["accuracy"])
    window = max(1, int(frame["round"].max()) // SMOOTHED)
    best = best_accuracies(frame)
    first = leading(best["accuracy"], best["label"], top)
    rest = [label for label in ranked(best["accuracy"], best["label"]) if label not in first]
    panels = [
        Panel(f"scenario {scenario}", curves_of(rows, "percent", first, rest, window))
        for scenario, rows in frame.groupby("scenario")
    ]
    y = Axis(f"test accuracy (%){over_rounds(window)}")
    return Chart("lines", tuple(panels), Axis("round", whole=True), y, _note(frame))


def _note(frame: pd.DataFrame) -> str:
    return NOTE if frame["seed"].nunique() > 1 else "One seed per line."
