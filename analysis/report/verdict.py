"""The verdict: who leads, by how much, and whether the results can tell.

The leader is compared with each other method over blocks: scenarios (seeds averaged first), or the
seeds of the only scenario. Differences are paired, as all methods meet the same data in a block.
Intervals are those of Student's t at 95%, with Bonferroni's correction for the number of methods
that the leader is compared with, because the leader was picked by its results.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd
from scipy import stats

from fedgps_ray.analysis import metrics
from fedgps_ray.analysis.report.facts import headings, several

LEVEL = 0.95
MOST = 1000  # blocks; a difference that needs more is as good as none
SHOWN = 8  # settings with a line each
RANK_TEST_BLOCKS = 6  # Wilcoxon's two-sided p of n blocks is at best 2 ** (1 - n)
FEW = "Three scenarios give a first interval; a rank test can reach 5% with six or more."


@dataclass(frozen=True)
class Comparison:
    """The accuracies that can be compared, and what had to be left out."""

    scores: pd.DataFrame  # a row per block, a column per method; percent
    unit: Literal["scenario", "seed"]
    seeds: int  # averaged in each block
    cases: tuple[int, int]  # scenarios and seeds that all methods have, and that any has
    failed: Mapping[str, tuple[int, int]]  # method -> runs that diverged or failed, and all runs
    unfinished: Sequence[str]  # methods that lack a result in too many cases


class Gap(NamedTuple):
    """How far the leader is ahead of another method, in percentage points."""

    mean: float
    std: float
    low: float
    high: float

    @property
    def clear(self) -> bool:
        """Whether the interval excludes zero."""
        return self.low > 0


def judge(runs: pd.DataFrame) -> list[str]:
    """Return the verdict on a frame of runs (see metrics) in sentences."""
    parts = dict(metrics.settings(runs.sort_values(metrics.SETTING)))
    if len(parts) < 2:
        return sentences(compare(runs))
    titles = headings(runs)
    by_setting = {titles[name]: compare(part) for name, part in parts.items()}
    lines = [_leaders(by_setting), *sentences(compare(runs))]
    shown = list(by_setting.items())[:SHOWN]
    return [*lines, *(f"{title}: {sentences(results)[0]}" for title, results in shown)]


def _leaders(by_setting: Mapping[str, Comparison]) -> str:
    """Return who leads in how many settings."""
    leaders = [ranked(one).index[0] for one in by_setting.values() if one.scores.shape[1] > 1]
    counts = Counter(map(str, leaders)).most_common()
    if not counts:
        return f"None of the {len(by_setting)} settings has two methods with results yet."
    (first, most), *rest = counts
    others = "".join(f", {name} in {count}" for name, count in rest)
    return f"Of {several(len(by_setting), 'setting')}, {first} leads in {most}{others}."


# --- what can be compared -------------------------------------------------------------------------


def compare(runs: pd.DataFrame) -> Comparison:
    """Return the cases that as many methods as possible have finished, a block per scenario."""
    failed = _failed(runs)
    sound = runs[runs["accuracy"].notna() & ~runs["label"].isin(list(failed))]
    table = sound.pivot_table("accuracy", metrics.CASE, "label", observed=True)
    table = table[[label for label in metrics.order(runs) if label in table]]
    shared = _shared(table)
    blocks = shared.groupby(["setting", "scenario"], observed=True).mean()
    several_scenarios = len(blocks) > 1
    seeds = len(shared) // max(len(blocks), 1)
    total = len(runs[metrics.CASE].drop_duplicates())
    absent = [label for label in metrics.order(runs) if label not in {*shared, *failed}]
    return Comparison(
        blocks if several_scenarios else shared,
        "scenario" if several_scenarios else "seed",
        seeds if several_scenarios else 1,
        (len(shared), total),
        failed,
        absent,
    )


def _failed(runs: pd.DataFrame) -> dict[str, tuple[int, int]]:
    """Return the methods of which a run diverged or failed."""
    bad = runs["status"].isin(metrics.FAILED).groupby(runs["label"])
    counts = zip(bad.sum().items(), bad.size(), strict=True)
    return {str(label): (int(count), int(total)) for (label, count), total in counts if count}


def _shared(table: pd.DataFrame) -> pd.DataFrame:
    """Return the cases that all methods have, without the methods that have the fewest."""
    while table.shape[1] > 1 and table.dropna().empty:
        counts = table.count()
        table = table.drop(columns=counts.index[::-1][int(counts[::-1].argmin())])
    return table.dropna()


# --- numbers --------------------------------------------------------------------------------------


def ranked(results: Comparison) -> "pd.Series[float]":
    """Return the mean accuracy of each method, the best first."""
    return results.scores.mean().round(metrics.DIGITS).sort_values(ascending=False, kind="stable")


def gap(differences: Sequence[float], comparisons: int) -> Gap:
    """Return the mean of paired differences with its interval; infinite for a single one."""
    values = np.asarray(differences, dtype=float).round(metrics.DIGITS)
    mean, count = float(values.mean()), len(values)
    if count < 2:
        return Gap(mean, math.nan, -math.inf, math.inf)
    std = float(values.std(ddof=1))
    reach = _reach(std, count, comparisons)
    return Gap(mean, std, mean - reach, mean + reach)


def _reach(std: float, count: int, comparisons: int) -> float:
    """Return half the width of the interval of a mean."""
    quantile = 1 - (1 - LEVEL) / (2 * comparisons)
    return float(stats.t.ppf(quantile, count - 1)) * std / math.sqrt(count)


def blocks_needed(lead: Gap, comparisons: int) -> int | None:
    """Return how many blocks would separate means this far apart; None if more than MOST."""
    if lead.mean <= 0:
        return None
    enough = (n for n in range(2, MOST + 1) if _reach(lead.std, n, comparisons) < lead.mean)
    return next(enough, None)


# --- sentences ------------------------------------------------------------------------------------


def sentences(results: Comparison) -> list[str]:
    """Return what a comparison says, the most important first."""
    methods = results.scores.shape[1]
    if methods == 0:
        return [_nothing(results), *_left_out(results)]
    if methods == 1:
        return [_alone(results), *_left_out(results)]
    order = ranked(results)
    leader, *others = (str(name) for name in order.index)
    gaps = {
        name: gap(list(results.scores[leader] - results.scores[name]), len(others))
        for name in others
    }
    lines = [_lead(results, order, gaps), _certainty(results, gaps), _needed(results, gaps)]
    return [*filter(None, lines), *_one_scenario(results), *_left_out(results)]


def _nothing(results: Comparison) -> str:
    if results.failed:
        return "No method has a result to compare: every one has runs that diverged or failed."
    return "No trial has finished yet, so nobody leads."


def _alone(results: Comparison) -> str:
    name, score = str(results.scores.columns[0]), float(results.scores.iloc[:, 0].mean())
    return (
        f"Only {name} can be judged: {score:.2f}% on average over {_basis(results)}. Saying who"
        " leads takes a second method."
    )


def _lead(results: Comparison, order: "pd.Series[float]", gaps: Mapping[str, Gap]) -> str:
    """Return who leads, by how much and with which interval."""
    leader, second = str(order.index[0]), next(iter(gaps))
    if gaps[second].mean == 0:
        tied = [name for name in order.index if order[name] == order.iloc[0]]
        return f"{_listed(tied)} share the lead with {order.iloc[0]:.2f}% over {_basis(results)}."
    first = gaps[second]
    interval = ""
    if len(results.scores) > 1:
        corrected = f", corrected for {len(gaps)} comparisons" if len(gaps) > 1 else ""
        interval = (
            f" (95% interval {first.low:+.2f} to {first.high:+.2f}, paired over"
            f" {_count(results)}{corrected})"
        )
    return (
        f"{leader} leads with {order.iloc[0]:.2f}%, {first.mean:.2f} percentage points ahead of"
        f" {second}{interval}."
    )


def _certainty(results: Comparison, gaps: Mapping[str, Gap]) -> str:
    """Return from whom the leader can be told apart."""
    if len(results.scores) < 2:
        return "With one run per method there is no spread to judge by: this may be chance."
    clear = [name for name, one in gaps.items() if one.clear]
    unclear = [name for name in gaps if name not in clear]
    basis = f"judging by {_basis(results)}"
    if gaps[next(iter(gaps))].mean == 0:
        return f"Nothing separates them, {basis}."
    if not unclear:
        return f"The lead is distinguishable from chance, {basis}{_too_few_for_ranks(results)}."
    told = f"The lead over {_listed(unclear)} is not distinguishable from chance, {basis}"
    return f"{told}; the lead over {_listed(clear)} is." if clear else f"{told}."


def _too_few_for_ranks(results: Comparison) -> str:
    if len(results.scores) >= RANK_TEST_BLOCKS:
        return ""
    return f" (a rank test could confirm that from {RANK_TEST_BLOCKS} on)"


def _needed(results: Comparison, gaps: Mapping[str, Gap]) -> str:
    """Return what it would take to tell the leader from the next."""
    second, first = next(iter(gaps.items()))
    if len(results.scores) < 2:
        return FEW
    if first.clear or first.mean == 0:
        return ""
    count = blocks_needed(first, len(gaps))
    if count is None:
        return f"Not even {MOST} {results.unit}s would tell it from {second}: treat them as equal."
    ranks = _rank_blocks(results, second)
    by_rank = f"; a test on ranks alone (Nemenyi) would take about {ranks}" if ranks else ""
    return (
        f"If the gap and its spread stay as they are, about {count} {results.unit}s would tell it"
        f" from {second} (there are {len(results.scores)}){by_rank}."
    )


def _rank_blocks(results: Comparison, second: str) -> int | None:
    """Return how many blocks bring Nemenyi's critical difference down to the ranks' difference."""
    methods = results.scores.shape[1]
    ranks = results.scores.rank(axis=1, ascending=False).mean()
    apart = float(ranks[second] - ranks[ranked(results).index[0]])
    if methods < 3 or apart <= 0:
        return None
    q = float(stats.studentized_range.ppf(LEVEL, methods, math.inf)) / math.sqrt(2)
    count = math.ceil(q**2 * methods * (methods + 1) / (6 * apart**2))
    return count if count <= MOST else None


def _one_scenario(results: Comparison) -> list[str]:
    if results.unit == "seed" and len(results.scores) > 1:
        return ["All runs share one scenario, so this says nothing about other partitions."]
    return []


def _left_out(results: Comparison) -> list[str]:
    """Return which methods and cases the verdict does not rest on."""
    lines = [
        f"{name} is not ranked: {f'{bad} of its {total} runs' if total > 1 else 'its only run'}"
        " diverged or failed."
        for name, (bad, total) in results.failed.items()
    ]
    if results.unfinished:
        verb = "is" if len(results.unfinished) == 1 else "are"
        lines.append(
            f"{_listed(results.unfinished)} {verb} not ranked: too few runs have finished."
        )
    done, total = results.cases
    if 0 < done < total:
        lines.append(f"This rests on {done} of {total} cases: the others are not finished by all.")
    return lines


def _basis(results: Comparison) -> str:
    seeds = f" with {results.seeds} seeds each" if results.seeds > 1 else ""
    return f"{_count(results)}{seeds}"


def _count(results: Comparison) -> str:
    blocks = several(len(results.scores), results.unit)
    settings = results.scores.index.get_level_values("setting").nunique()
    return f"{blocks} of {settings} settings" if settings > 1 else blocks


def _listed(names: Sequence[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else str(last)
