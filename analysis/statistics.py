"""Do methods differ? Ranks, tests, effect sizes and intervals over blocks.

A block is a scenario of a setting: all methods meet the same data there. Scores are a frame with
one row per block and one column per method, made by `scores`; higher is better.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from fedgps_ray import seeds
from fedgps_ray.analysis import metrics
from fedgps_ray.errors import UserError

RESAMPLES = 9999
SHOWN = 10  # missing cells that a message names


@dataclass(frozen=True)
class Ranking:
    """Friedman's test over all methods and Nemenyi's over all pairs."""

    num_methods: int
    num_blocks: int
    alpha: float
    average_ranks: "pd.Series[float]"  # the best first; 1 is best, ties share
    chi2: float  # Friedman, corrected for ties
    chi2_without_tie_correction: float
    df: int
    p_value: float
    kendall_w: float
    iman_davenport_f: float
    iman_davenport_df: tuple[int, int]
    iman_davenport_p: float
    q_alpha: float
    critical_distance: float
    pairs: pd.DataFrame  # better, worse, rank_difference, p_value, significant
    groups: list[list[str]]  # largest sets of neighbours that are not told apart
    caveats: list[str] = field(default_factory=list)


class Interval(NamedTuple):
    """A bootstrap interval."""

    low: float
    high: float


# --- scores ---------------------------------------------------------------------------------------


def scores(
    runs: pd.DataFrame, value: str = "accuracy", failed: Literal["refuse", "last"] = "refuse"
) -> pd.DataFrame:
    """Return one row per block (setting, scenario) and one column per label; seeds are averaged.

    Every label must have run in every case. A failed run is refused, or ("last") scored -inf.
    """
    _complete(runs)
    usable = runs[value].notna() | (runs["status"].isin(metrics.FAILED) & (failed == "last"))
    if not usable.all():
        rows = runs[~usable]
        raise UserError(
            f"{len(rows)} runs have no result: {_listed(rows)}; leave out these methods, wait for"
            " them, or rank what failed last"
        )
    filled = runs.assign(score=runs[value].fillna(-math.inf).astype(float))
    columns = metrics.order(runs)
    table = filled.pivot_table(
        "score", ["setting", "scenario"], "label", aggfunc="mean", sort=False
    )
    return table[columns]


def _complete(runs: pd.DataFrame) -> None:
    """Refuse runs of which a label lacks a case that another has."""
    if runs.empty:
        raise UserError("there are no runs to compare; let some trials finish")
    cases = runs[metrics.CASE].drop_duplicates()
    wanted = cases.merge(runs[["label"]].drop_duplicates(), how="cross")
    merged = wanted.merge(runs[[*metrics.CASE, "label"]], how="left", indicator=True)
    missing = merged[merged["_merge"] == "left_only"]
    if len(missing):
        raise UserError(
            f"{len(missing)} runs are missing: {_listed(missing)}; run them, or leave out these"
            " methods or scenarios"
        )


def _listed(rows: pd.DataFrame) -> str:
    several = rows["setting"].nunique() > 1
    texts = [
        f"{row.label} in scenario {row.scenario}, seed {row.seed}"
        + (f" of {row.setting}" if several else "")
        for row in rows.head(SHOWN).itertuples()
    ]
    more = len(rows) - len(texts)
    return "; ".join(texts) + (f"; and {more} more" if more > 0 else "")


def without_incomplete(runs: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """Return the runs of the labels that finished every case, and the labels left out."""
    cases = len(runs[metrics.CASE].drop_duplicates())
    done = runs.groupby("label", observed=True)["accuracy"].count()
    whole = done.index[done == cases]
    left_out = [label for label in metrics.order(runs) if label not in whole]
    return runs[runs["label"].isin(whole)], left_out


# --- ranks ----------------------------------------------------------------------------------------


def ranking(scores: pd.DataFrame, alpha: float = 0.05) -> Ranking:
    """Return the tests of Friedman, Iman and Davenport, and Nemenyi on the ranks in each block."""
    blocks, methods = scores.shape
    if methods < 3 or blocks < 2:
        raise UserError(
            f"Friedman's test needs 3 methods and 2 blocks, got {methods} and {blocks}; add"
            " methods or scenarios, or compare pairs"
        )
    ranks = scores.rank(axis=1, ascending=False)
    average = ranks.mean().sort_values(kind="stable")
    chi2, p_value = _friedman(ranks)
    plain = 12 * blocks / (methods * (methods + 1)) * ((average - (methods + 1) / 2) ** 2).sum()
    kendall = chi2 / (blocks * (methods - 1))
    f_value, f_df = _iman_davenport(chi2, blocks, methods)
    q_alpha = float(stats.studentized_range.ppf(1 - alpha, methods, math.inf)) / math.sqrt(2)
    distance = q_alpha * math.sqrt(methods * (methods + 1) / (6 * blocks))
    return Ranking(
        num_methods=methods,
        num_blocks=blocks,
        alpha=alpha,
        average_ranks=average,
        chi2=chi2,
        chi2_without_tie_correction=float(plain),
        df=methods - 1,
        p_value=p_value,
        kendall_w=kendall,
        iman_davenport_f=f_value,
        iman_davenport_df=f_df,
        iman_davenport_p=float(stats.f.sf(f_value, *f_df)),
        q_alpha=q_alpha,
        critical_distance=distance,
        pairs=_nemenyi_pairs(average, blocks, distance),
        groups=_groups(average, distance),
        caveats=_rank_caveats(average, blocks, distance, p_value, alpha),
    )


def _friedman(ranks: pd.DataFrame) -> tuple[float, float]:
    """Return chi-squared corrected for ties, and its p-value; 0 and 1 where all is a tie."""
    if (ranks.nunique(axis=1) == 1).all():
        return 0.0, 1.0
    test = stats.friedmanchisquare(*(ranks[name] for name in ranks))
    return float(test.statistic), float(test.pvalue)


def _iman_davenport(chi2: float, blocks: int, methods: int) -> tuple[float, tuple[int, int]]:
    """Return F = (n - 1) chi2 / (n (k - 1) - chi2); infinite where all blocks agree."""
    room = blocks * (methods - 1) - chi2
    value = (blocks - 1) * chi2 / room if room > 1e-9 else math.inf
    return float(value), (methods - 1, (methods - 1) * (blocks - 1))


def _nemenyi_pairs(average: "pd.Series[float]", blocks: int, distance: float) -> Any:
    """Return all pairs; p is of the studentised range of so many ranks."""
    methods = len(average)
    rows = [(one, two, average[two] - average[one]) for one, two in combinations(average.index, 2)]
    pairs = pd.DataFrame(rows, columns=["better", "worse", "rank_difference"])
    error = math.sqrt(methods * (methods + 1) / (12 * blocks))
    p_values = stats.studentized_range.sf(pairs["rank_difference"] / error, methods, math.inf)
    return pairs.assign(p_value=p_values, significant=pairs["rank_difference"] >= distance)


def _groups(average: "pd.Series[float]", distance: float) -> list[list[str]]:
    """Return each longest run of neighbours in rank that lie within the critical distance."""
    names, values = list(average.index), average.to_numpy()
    ends = np.searchsorted(values, values + distance, side="left")
    return [
        names[start:end]
        for start, end in enumerate(ends)
        if end - start > 1 and (start == 0 or end > ends[start - 1])
    ]


def _rank_caveats(
    average: "pd.Series[float]", blocks: int, distance: float, p_value: float, alpha: float
) -> list[str]:
    """Return in sentences what the ranks can and cannot tell."""
    methods, widest = len(average), len(average) - 1
    basis = f"With {methods} methods and {blocks} blocks the critical distance is {distance:.3f}"
    lines = []
    if distance >= widest:
        lines.append(
            f"{basis}, and ranks cannot differ by more than {widest}: Nemenyi's test cannot"
            " separate any pair, whatever the results."
        )
    elif distance > widest / 3:
        lines.append(
            f"{basis} of a possible {widest}: even a method that is always first is separated only"
            f" from those with an average rank above {1 + distance:.2f}, so that methods which are"
            " not separated may still differ."
        )
    if p_value > alpha:
        lines.append(
            f"Friedman's test does not reject that all methods are alike (p = {p_value:.2g});"
            " differences of pairs should not be read into the ranks."
        )
    if blocks < 10:
        lines.append(
            f"Friedman's chi-squared p-value is an approximation and rough with {blocks} blocks;"
            " Iman and Davenport's F is the better one."
        )
    return lines


# --- pairs ----------------------------------------------------------------------------------------


def pairwise(
    scores: pd.DataFrame, reference: str | None = None, level: float = 0.95, seed: int = 0
) -> pd.DataFrame:
    """Return Wilcoxon's signed-rank test of pairs with Holm's correction, and effect sizes.

    With a reference, each other method against it; else all pairs. A row: method, other, n,
    mean_difference with its bootstrap interval (low, high), p_value, p_holm, rank_biserial (over
    the same blocks), cliffs_delta (over all pairs of blocks). attrs["caveats"] has sentences.
    """
    if not np.isfinite(scores.to_numpy()).all():
        bad = [str(name) for name in scores if not np.isfinite(scores[name]).all()]
        raise UserError(f"{', '.join(bad)}: a failed run has no difference; leave these out")
    pairs = _pairs([str(name) for name in scores], reference)
    rows = [_pair(scores, one, other, (level, seed)) for one, other in pairs]
    frame = pd.DataFrame(rows)
    frame["p_holm"] = holm(frame["p_value"].to_numpy())
    frame.attrs["caveats"] = _pair_caveats(len(scores), len(rows))
    return frame


def _pairs(names: Sequence[str], reference: str | None) -> list[tuple[str, str]]:
    if len(names) < 2:
        raise UserError(f"a comparison needs two methods, got {', '.join(names) or 'none'}")
    if reference is None:
        return list(combinations(names, 2))
    if reference not in names:
        raise UserError(f"reference {reference!r} has no runs here; there are {', '.join(names)}")
    return [(reference, name) for name in names if name != reference]


def _pair(
    scores: pd.DataFrame, one: str, other: str, level_and_seed: tuple[float, int]
) -> dict[str, Any]:
    first, second = scores[one].to_numpy(), scores[other].to_numpy()
    differences = (first - second).round(metrics.DIGITS)
    interval = bootstrap_interval(differences, f"{one} - {other}", *level_and_seed)
    return {
        "method": one,
        "other": other,
        "n": len(differences),
        "mean_difference": float(differences.mean()),
        "low": interval.low,
        "high": interval.high,
        "p_value": _wilcoxon(differences),
        "rank_biserial": rank_biserial(differences),
        "cliffs_delta": cliffs_delta(first, second),
    }


def holm(p_values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return p-values corrected for their number, each at least as large as any below it."""
    order = np.argsort(p_values, kind="stable")
    factors = len(p_values) - np.arange(len(p_values))
    corrected = np.empty(len(p_values))
    corrected[order] = np.maximum.accumulate(p_values[order] * factors).clip(max=1.0)
    return corrected


def _wilcoxon(differences: NDArray[np.float64]) -> float:
    """Return the two-sided p-value; blocks without a difference count for neither side."""
    moved = differences[differences != 0]
    return float(stats.wilcoxon(moved).pvalue) if len(moved) else 1.0


def rank_biserial(differences: NDArray[np.float64]) -> float:
    """Return (rank sum of gains - rank sum of losses) / all: 1 is a gain in every block."""
    moved = differences[differences != 0]
    if not len(moved):
        return 0.0
    ranks = stats.rankdata(np.abs(moved))
    return float((np.sign(moved) * ranks).sum() / ranks.sum())


def cliffs_delta(first: NDArray[np.float64], second: NDArray[np.float64]) -> float:
    """Return P(first > second) - P(first < second) over all pairs of values."""
    return float(np.sign(np.subtract.outer(first, second)).mean())


def bootstrap_interval(
    values: NDArray[np.float64], name: str, level: float = 0.95, seed: int = 0
) -> Interval:
    """Return the BCa interval of the mean; draws depend on the name and the seed alone."""
    if len(values) < 2:
        return Interval(math.nan, math.nan)
    if np.ptp(values) == 0:
        return Interval(float(values[0]), float(values[0]))
    rng = seeds.stream(seed, f"bootstrap {name}")
    interval = stats.bootstrap(
        (values,), np.mean, n_resamples=RESAMPLES, confidence_level=level, rng=rng
    ).confidence_interval
    return Interval(float(interval.low), float(interval.high))


def _pair_caveats(blocks: int, tests: int) -> list[str]:
    if blocks == 1:
        return ["With a single block there is no interval, and no test can be significant."]
    smallest = 2.0 ** (1 - blocks)
    lines = []
    if smallest > 0.05:
        lines.append(
            f"Wilcoxon's test with {blocks} blocks cannot go below p = {smallest:g} (two-sided):"
            " it cannot be significant at 0.05, whatever the results."
        )
    elif min(1.0, smallest * tests) > 0.05:
        lines.append(
            f"Wilcoxon's test with {blocks} blocks cannot go below p = {smallest:g} (two-sided),"
            f" and Holm's correction for {tests} pairs multiplies the smallest by {tests}: none"
            " can stay below 0.05."
        )
    if blocks < 10:
        lines.append(
            f"An interval from {blocks} blocks is a rough guide: bootstrap intervals of so few"
            " values are too narrow."
        )
    return lines
