"""What several figures need of the frames."""

from collections.abc import Sequence
from typing import TypeVar

import pandas as pd

from fedgps_ray.analysis.figures.chart import Series
from fedgps_ray.analysis.figures.looks import OURS, REFERENCE, Look, looks, method_of
from fedgps_ray.errors import UserError

Smoothed = TypeVar("Smoothed", pd.DataFrame, "pd.Series[float]")
LOWEST_TO_HIGHEST = "Lines are means over the trials; bands reach from the lowest to the highest."


def labelled(rows: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """Return rows of rounds or clients with the label and the setting of their run."""
    known = runs.set_index("trial_id")[["label", "setting"]]
    names = rows["trial_id"].astype(str)
    return rows.assign(label=names.map(known["label"]), setting=names.map(known["setting"]))


def tested(rounds: pd.DataFrame) -> pd.DataFrame:
    """Return the rounds that were tested."""
    return measured(rounds, "accuracy", "no round of these trials has a test accuracy")


def measured(rounds: pd.DataFrame, column: str, problem: str) -> pd.DataFrame:
    """Return the rounds that have a value in a column, which older results may lack."""
    frame = rounds.dropna(subset=[column]) if column in rounds else rounds.head(0)
    if frame.empty:
        raise UserError(f"nothing to draw: {problem}")
    return frame


def scored(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the runs that finished with an accuracy."""
    frame = runs.dropna(subset=["accuracy"])
    if frame.empty:
        raise UserError("nothing to draw: no trial has finished with a test accuracy")
    return frame


def leading(scores: "pd.Series[float]", labels: "pd.Series[str]", top: int) -> list[str]:
    """Return the labels with the best mean score, and FedAvg and ours in any case.

    Of many variants of FedAvg or of ours, only the best ones are taken.
    """
    order = ranked(scores, labels)
    ours = [label for label in order if method_of(label) in OURS][:top]
    reference = [label for label in order if method_of(label) == REFERENCE][:1]
    return [label for label in order if label in {*order[:top], *ours, *reference}]


def ranked(scores: "pd.Series[float]", labels: "pd.Series[str]") -> list[str]:
    """Return the labels by their mean score, the best first."""
    means = scores.groupby(labels, observed=True).mean()
    return [str(label) for label in means.sort_values(ascending=False, kind="stable").index]


def best_accuracies(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the best accuracy of each trial, with its label."""
    return frame.groupby(["label", "trial_id"], observed=True)["accuracy"].max().reset_index()


def smooth(values: Smoothed, window: int) -> Smoothed:
    """Return the running mean over so many rounds."""
    return values.rolling(window, min_periods=1).mean() if window > 1 else values


def over_rounds(window: int) -> str:
    """Say in an axis label how many rounds were averaged."""
    return f", mean of {window} rounds" if window > 1 else ""


def curves(frame: pd.DataFrame, column: str, top: int, window: int = 1) -> tuple[Series, ...]:
    """Return the mean of a column over the trials of each label, round by round, with its range.

    frame: rounds with an accuracy, by which the leading labels are picked.
    """
    best = best_accuracies(frame)
    first = leading(best["accuracy"], best["label"], top)
    rest = [label for label in ranked(best["accuracy"], best["label"]) if label not in first]
    return curves_of(frame, column, first, rest, window)


def curves_of(
    frame: pd.DataFrame, column: str, first: Sequence[str], rest: Sequence[str], window: int
) -> tuple[Series, ...]:
    """Return the curves of the leading labels, then of the others."""
    drawn = looks([*first, *rest])
    made = []
    for label in [*first, *rest]:
        trials = _by_trial(frame[frame["label"] == label], column, window)
        if len(trials):
            made.append(_curve(trials, label, drawn[label])._replace(leading=label in first))
    return tuple(made)


def _curve(trials: pd.DataFrame, label: str, look: Look) -> Series:
    """Return the mean of some trials, and their range if there are several."""
    line = Series(label, look, list(trials.index), list(trials.mean(axis=1)))
    if trials.shape[1] < 2:
        return line
    return line._replace(low=list(trials.min(axis=1)), high=list(trials.max(axis=1)))


def _by_trial(rows: pd.DataFrame, column: str, window: int) -> pd.DataFrame:
    """Return a row per round that all trials have, and a column per trial."""
    table = rows.assign(trial_id=rows["trial_id"].astype(str)).pivot_table(
        index="round", columns="trial_id", values=column
    )
    return smooth(table.dropna(), window)
