"""Who the trained model serves: clients and classes, at the end of training."""

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fedgps_ray.analysis.figures.chart import Axis, Chart, Panel, Series
from fedgps_ray.analysis.figures.frames import measured, ranked
from fedgps_ray.analysis.figures.looks import Look, plain_looks

CLIENTS = {
    "worst_client_accuracy": "worst client",
    "p10_client_accuracy": "10th percentile",
    "median_client_accuracy": "median client",
}
OLDER = "results of older versions lack it"


def client_accuracy(rounds: pd.DataFrame) -> Chart:
    """Return how accurate the last model is for the worst, the 10th-percentile and median client.

    A client's accuracy is that on the test set, weighted by its own shares of the classes.
    """
    first = next(iter(CLIENTS))
    frame = _last(measured(rounds, first, f"no round has a {first}; {OLDER}"))
    names = ranked(frame[first], frame["label"])
    drawn = plain_looks(CLIENTS.values())
    shown = [column for column in CLIENTS if column in frame]
    series = [_dots(frame, column, names, drawn[CLIENTS[column]]) for column in shown]
    note = "Dots are means over the trials; bars reach from the lowest to the highest."
    x = Axis("accuracy on a client's own classes (%)")
    return Chart("dots", (Panel("", tuple(series)),), x, Axis("method", tuple(names)), note)


def _last(rounds: pd.DataFrame) -> pd.DataFrame:
    """Return the last round of each trial."""
    ordered = rounds.sort_values("round")
    return ordered.groupby("trial_id", observed=True).tail(1)


def _dots(frame: pd.DataFrame, column: str, names: list[str], look: Look) -> Series:
    stats = (100 * frame[column]).groupby(frame["label"]).agg(["mean", "min", "max"]).loc[names]
    mean, low, high = (list(stats[name]) for name in ("mean", "min", "max"))
    return Series(CLIENTS[column], look, mean, list(range(len(names))), low, high)


def class_accuracy(rounds: pd.DataFrame) -> Chart:
    """Return the accuracy of each method in each class at the end, means over the trials."""
    frame = measured(rounds, "class_accuracy", f"no round has a class_accuracy; {OLDER}")
    frame = _last(measured_lists(frame))
    by_label = frame.groupby("label", observed=True)["class_accuracy"]
    means = {str(label): _mean(list(lists)) for label, lists in by_label}
    names = sorted(means, key=lambda label: -float(np.nanmean(means[label])))
    classes = tuple(str(number) for number in range(max(map(len, means.values()))))
    cells = [(100 * means[name]).tolist() for name in names]
    return Chart(
        "heat",
        (Panel("", cells=cells),),
        Axis("class", classes),
        Axis("method", tuple(names)),
        "Means over the trials at the end of training; methods from the best to the worst.",
        Axis("accuracy (%)"),
    )


def measured_lists(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rounds whose list of class accuracies is not empty."""
    filled = frame[[len(values) > 0 for values in frame["class_accuracy"]]]
    return measured(filled, "class_accuracy", "no class accuracy was recorded")


def _mean(lists: list[Any]) -> NDArray[np.float64]:
    """Return the mean in each class; trials of other data sets may have fewer classes."""
    longest = max(map(len, lists))
    table = np.full((len(lists), longest), np.nan)
    for row, values in zip(table, lists, strict=True):
        row[: len(values)] = [np.nan if value is None else value for value in values]
    counts = np.maximum((~np.isnan(table)).sum(axis=0), 1)
    mean: NDArray[np.float64] = np.nansum(table, axis=0) / counts
    return np.where(np.isnan(table).all(axis=0), np.nan, mean)
