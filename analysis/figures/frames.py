"""What several figures need of the frames."""

import pandas as pd

from fedgps_ray.analysis.figures.style import OURS, REFERENCE, method_of
from fedgps_ray.errors import UserError


def labelled(rows: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """Return rows of rounds or clients with the label and the setting of their run."""
    known = runs.set_index("trial_id")[["label", "setting"]]
    names = rows["trial_id"].astype(str)
    return rows.assign(label=names.map(known["label"]), setting=names.map(known["setting"]))


def tested(rounds: pd.DataFrame) -> pd.DataFrame:
    """Return the rounds that were tested."""
    frame = rounds.dropna(subset=["accuracy"])
    if frame.empty:
        raise UserError("nothing to draw: no round of these trials has a test accuracy")
    return frame


def scored(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the runs that finished with an accuracy."""
    frame = runs.dropna(subset=["accuracy"])
    if frame.empty:
        raise UserError("nothing to draw: no trial has finished with a test accuracy")
    return frame


def leading(scores: "pd.Series[float]", labels: "pd.Series[str]", top: int) -> list[str]:
    """Return the labels with the best mean score, and FedAvg and ours wherever they stand.

    Of many variants of FedAvg or of ours, the best ones stand for all.
    """
    order = list(scores.groupby(labels).mean().sort_values(ascending=False, kind="stable").index)
    ours = [label for label in order if method_of(label) in OURS][:top]
    reference = [label for label in order if method_of(label) == REFERENCE][:1]
    return [label for label in order if label in {*order[:top], *ours, *reference}]


def leading_curves(frame: pd.DataFrame, top: int) -> list[str]:
    """Return the labels whose best accuracies over the rounds are highest on average."""
    best = frame.groupby(["label", "trial_id"], observed=True)["accuracy"].max().reset_index()
    return leading(best["accuracy"], best["label"], top)
