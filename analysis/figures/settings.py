"""Accuracy against a setting of the experiment."""

import pandas as pd
from matplotlib.figure import Figure

from fedgps_ray.analysis.figures.frames import leading, scored
from fedgps_ray.analysis.figures.style import legend_below, looks, styled
from fedgps_ray.errors import UserError

NAMES = {
    "sampling_rate": "share of clients in a round",
    "clients": "number of clients",
    "alpha": "Dirichlet alpha (smaller is more skewed)",
    "local_epochs": "local epochs",
    "classes_per_client": "classes per client",
}


@styled
def accuracy_by(runs: pd.DataFrame, column: str, top: int = 5) -> Figure:
    """Draw the best accuracy at each value of a setting; bars are deviations over the trials."""
    frame = scored(runs).dropna(subset=[column])
    values = sorted(frame[column].unique())
    if len(values) < 2:
        raise UserError(f"nothing to compare: {column} has fewer than two values here")
    drawn, shown = looks(frame["label"]), leading(frame["accuracy"], frame["label"], top)
    figure = Figure(figsize=(max(4.4, 1.5 + 1.0 * len(values)), 3.4), layout="constrained")
    axes = figure.add_subplot(xlabel=NAMES.get(column, column.replace("_", " ")))
    axes.set_ylabel("best test accuracy (%)")
    for number, label in enumerate(shown):
        scores = frame[frame["label"] == label].groupby(column)["accuracy"]
        shift = 0.05 * (number - (len(shown) - 1) / 2)
        places = [values.index(value) + shift for value in scores.mean().index]
        axes.errorbar(
            places, scores.mean(), scores.std(), label=label, **drawn[label]._asdict(), ms=4.5
        )
    axes.set_xticks(range(len(values)), [f"{value:g}" for value in values])
    legend_below(figure, axes)
    return figure
