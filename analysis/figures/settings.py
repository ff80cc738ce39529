"""Accuracy against a setting of the experiment."""

import pandas as pd

from fedgps_ray.analysis.figures.chart import Axis, Chart, Panel, Series
from fedgps_ray.analysis.figures.frames import leading, ranked, scored
from fedgps_ray.analysis.figures.looks import looks
from fedgps_ray.errors import UserError

NAMES = {
    "sampling_rate": "share of clients in a round",
    "clients": "number of clients",
    "alpha": "Dirichlet alpha (smaller is more skewed)",
    "local_epochs": "local epochs",
    "classes_per_client": "classes per client",
}
NOTE = "Points are means over the trials; bars are one standard deviation each way."


def accuracy_by(runs: pd.DataFrame, column: str, top: int = 5) -> Chart:
    """Return the best accuracy at each value of a setting; bars are deviations over the trials."""
    frame = scored(runs).dropna(subset=[column])
    values = sorted(frame[column].unique())
    if len(values) < 2:
        raise UserError(f"nothing to compare: {column} has fewer than two values here")
    drawn, first = looks(frame["label"]), leading(frame["accuracy"], frame["label"], top)
    made = []
    for label in ranked(frame["accuracy"], frame["label"]):
        scores = frame[frame["label"] == label].groupby(column)["accuracy"]
        mean, std = scores.mean(), scores.std().fillna(0)
        places = [values.index(value) for value in mean.index]
        ends = (list(mean - std), list(mean + std))
        made.append(Series(label, drawn[label], places, list(mean), *ends, leading=label in first))
    x = Axis(NAMES.get(column, column.replace("_", " ")), tuple(f"{v:g}" for v in values))
    return Chart("marks", (Panel("", tuple(made)),), x, Axis("best test accuracy (%)"), NOTE)
