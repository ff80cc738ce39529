"""What the study asks of its results: paired differences, answers, and main effects."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from fedgps_ray.analysis.statistics import holm
from fedgps_ray.errors import UserError

DRAW = ["scenario", "seed"]
SMALLEST = 1.0  # points of accuracy; less than that is of no interest
CONFIDENCE = 0.95


class Question(NamedTuple):
    """A claim, and the two variants whose difference decides it."""

    claim: str
    first: str
    second: str


class Difference(NamedTuple):
    """The mean of paired differences in points, its interval, and the p-value of a t-test."""

    mean: float
    low: float
    high: float
    p: float
    draws: int


def paired(scores: pd.DataFrame, first: str, second: str) -> Difference:
    """Compare two variants on the draws that both have; scores: variant, draw and score."""
    twice = scores[scores["variant"].isin([first, second])].duplicated(["variant", *DRAW])
    if twice.any():
        raise UserError(f"{twice.sum()} draws of {first} or {second} have more than one trial")
    table = scores.pivot_table(index=DRAW, columns="variant", values="score")
    missing = {first, second} - set(table.columns)
    if missing:
        raise UserError(f"no results of {', '.join(sorted(missing))}")
    both = table[[first, second]].dropna()
    return difference((both[first] - both[second]).to_numpy(dtype=np.float64))


def difference(values: NDArray[np.float64]) -> Difference:
    """Return mean, t-interval and p-value of differences."""
    number = len(values)
    if number < 2:
        raise UserError(f"an interval needs two draws or more, got {number}")
    mean, error = float(values.mean()), float(values.std(ddof=1) / np.sqrt(number))
    reach = float(stats.t.ppf((1 + CONFIDENCE) / 2, number - 1)) * error
    if error == 0:
        return Difference(mean, mean, mean, 1.0 if mean == 0 else 0.0, number)
    p = float(2 * stats.t.sf(abs(mean) / error, number - 1))
    return Difference(mean, mean - reach, mean + reach, p, number)


def answer(found: Difference, corrected_p: float) -> str:
    """Return supported, refuted or open, by the rule that was written down before the runs."""
    if corrected_p < 1 - CONFIDENCE and found.mean >= SMALLEST:
        return "supported"
    return "refuted" if found.high < SMALLEST else "open"


def answers(scores: pd.DataFrame, questions: Sequence[Question]) -> pd.DataFrame:
    """Return one row per question, with p-values corrected for their number."""
    found = [paired(scores, question.first, question.second) for question in questions]
    corrected = holm(np.array([each.p for each in found]))
    rows = [
        {**question._asdict(), **each._asdict(), "holm_p": p, "answer": answer(each, p)}
        for question, each, p in zip(questions, found, corrected.tolist(), strict=True)
    ]
    return pd.DataFrame(rows)


def levels(trials: pd.DataFrame, switches: Mapping[str, tuple[object, object]]) -> pd.DataFrame:
    """Return each switch as -1 (its first value) or 1 (its second), one row per trial."""
    coded = pd.DataFrame(index=trials.index)
    for name, (low, high) in switches.items():
        unknown = ~trials[name].isin([low, high])
        if unknown.any():
            raise UserError(f"{name} has values that the design does not: {trials[name][unknown]}")
        coded[name] = np.where(trials[name] == high, 1, -1)
    return coded


def main_effects(
    coded: pd.DataFrame, scores: "pd.Series[float]", blocks: "pd.Series[int]"
) -> pd.DataFrame:
    """Return the effect of each switch: mean at its second value minus mean at its first.

    A linear model with one constant for each block; the error comes from what it leaves.
    """
    columns = coded.to_numpy(dtype=np.float64)
    constants = pd.get_dummies(blocks).to_numpy(dtype=np.float64)
    design = np.hstack([columns, constants])
    if np.linalg.matrix_rank(design) < design.shape[1]:
        raise UserError("some trials of the design are missing: its effects cannot be told apart")
    freedom = len(scores) - design.shape[1]
    if freedom < 1:
        raise UserError("as many effects as trials: nothing is left to estimate the error from")
    y = scores.to_numpy(dtype=np.float64)
    beta, *_ = np.linalg.lstsq(design, y, rcond=None)
    variance = float(np.sum((y - design @ beta) ** 2)) / freedom
    errors = np.sqrt(variance * np.diag(np.linalg.inv(design.T @ design)))
    reach = float(stats.t.ppf((1 + CONFIDENCE) / 2, freedom)) * errors
    number = columns.shape[1]
    effects, reach = 2 * beta[:number], 2 * reach[:number]
    return pd.DataFrame(
        {
            "switch": coded.columns,
            "effect": effects,
            "low": effects - reach,
            "high": effects + reach,
        }
    )
