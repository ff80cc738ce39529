"""The comparison of methods in one setting, and across settings."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import pandas as pd
from matplotlib.figure import Figure

from fedgps_ray.analysis import figures, metrics, statistics, tables
from fedgps_ray.analysis.figures.settings import NAMES
from fedgps_ray.analysis.report.blocks import (
    Block,
    Picture,
    Section,
    Shown,
    Text,
    drawn,
    points,
)
from fedgps_ray.analysis.report.frames import Frames
from fedgps_ray.analysis.tables import Cell, Column, Table, assemble
from fedgps_ray.errors import UserError

Tell = Callable[[str], None]
REFERENCES = ("fedgps", "fedgps_cf", "fedavg")
MAIN_TABLE = "best test accuracy in percent, rounds to the target, speed-up over FedAvg"
SEED_TABLE = "best test accuracy in percent, seed by seed"
SCORES = "Best accuracy: what each method reached."
CURVES = "Test accuracy over the rounds; at first the best methods, FedAvg and ours are shown."
RANKS = "Critical difference: average ranks of the methods over the scenarios."


def setting_section(frames: Frames, number: int, title: str, tell: Tell) -> Section:
    """Return the table, the curves and the statistics of one setting."""
    slug = f"setting-{number}"
    tell(f"{slug}: {title}")
    blocks: list[Block] = [Text(f"{frames.runs['setting'].iloc[0]}.")]
    blocks += [_table(f"{slug}-comparison", tables.by_scenario(frames.runs), MAIN_TABLE)]
    blocks += drawn(f"{slug}-scores", SCORES, partial(figures.best_accuracy, frames.runs), False)
    if frames.runs["seed"].nunique() > 1:
        blocks.append(_table(f"{slug}-seeds", tables.by_seed(frames.runs), SEED_TABLE))
    blocks += drawn(f"{slug}-convergence", CURVES, partial(figures.convergence, frames.rounds))
    blocks += statistics_blocks(frames.runs, slug)
    blocks += _more_figures(frames, slug)
    return Section(title, slug, blocks, str(frames.runs["dataset"].iloc[0]))


def _table(name: str, table: Table, title: str) -> Block:
    return Shown(name, replace(table, title=title))


def _more_figures(frames: Frames, slug: str) -> list[Block]:
    """Return the figures that have something to show."""
    runs, rounds = frames.runs, frames.rounds
    made = {
        "ablation": ("Ablation: what each half of FedGPS adds.", partial(figures.ablation, runs)),
        "ranks": (
            "Rank stability: the order of the methods in each scenario.",
            partial(figures.rank_stability, runs),
        ),
        "bytes": (
            "Accuracy against bytes: best accuracy so far and all that was sent, up and down.",
            partial(figures.accuracy_against_bytes, rounds),
        ),
        "diversity": (
            "Update diversity: the mean squared norm of the clients' updates over the squared norm"
            " of their mean; the larger, the less they agree.",
            partial(figures.update_diversity, rounds),
        ),
        "clients": (
            "Client accuracy: the final model on the test set, weighted by each client's classes.",
            partial(figures.client_accuracy, rounds),
        ),
        "classes": (
            "Class accuracy: the final model in each class of the test set.",
            partial(figures.class_accuracy, rounds),
        ),
    }
    optional = [drawn(f"{slug}-{name}", *one, say=False) for name, one in made.items()]
    caption = "Partitions: how many samples of each class each client holds."
    draw = partial(figures.partitions, frames.partitions)
    return [block for blocks in optional for block in blocks] + drawn(
        f"{slug}-partitions", caption, draw
    )


# --- statistics -----------------------------------------------------------------------------------


def statistics_blocks(runs: pd.DataFrame, slug: str) -> list[Block]:
    """Return ranks and pairs with their caveats, of the methods that finished everywhere."""
    whole, left_out = statistics.without_incomplete(runs)
    blocks: list[Block] = []
    if left_out:
        blocks.append(Text(f"Not in the statistics, as runs are missing: {', '.join(left_out)}."))
    try:
        scores = statistics.scores(whole)
    except UserError as problem:
        return [*blocks, Text(f"No statistics: {problem}.")]
    return [*blocks, *_ranking(scores, slug), *_pairs(scores, slug, reference(whole))]


def _ranking(scores: pd.DataFrame, slug: str) -> list[Block]:
    try:
        ranking = statistics.ranking(scores)
    except UserError as problem:
        return [Text(f"No ranking: {problem}.")]
    chart, diagram = figures.average_ranks({"": ranking}), partial(_diagram, ranking)
    picture = Picture(f"{slug}-critical-difference", chart, RANKS, diagram)
    return [picture, *points(ranking_sentences(ranking))]


def _diagram(ranking: statistics.Ranking) -> Figure:
    return figures.critical_difference({"": ranking})


def ranking_sentences(ranking: statistics.Ranking) -> list[str]:
    """Return what the tests of a ranking say, and what they cannot say."""
    apart = ranking.pairs[ranking.pairs["significant"]]
    listed = "; ".join(f"{row.better} from {row.worse}" for row in apart.itertuples())
    return [
        f"Friedman: chi-squared {ranking.chi2:.2f} with {ranking.df} degrees of freedom,"
        f" p = {ranking.p_value:.2g}. Iman and Davenport: F = {ranking.iman_davenport_f:.2f},"
        f" p = {ranking.iman_davenport_p:.2g}.",
        f"Nemenyi at {ranking.alpha:g}: {len(apart)} of {len(ranking.pairs)} pairs are told apart"
        + (f": {listed}." if listed else "."),
        *ranking.caveats,
    ]


def _pairs(scores: pd.DataFrame, slug: str, against: str) -> list[Block]:
    try:
        pairs = statistics.pairwise(scores, against)
    except UserError as problem:
        return [Text(f"No comparison of pairs: {problem}.")]
    table = _pair_table(pairs)
    return [Shown(f"{slug}-pairs", table), *points(pairs.attrs["caveats"])]


def reference(runs: pd.DataFrame) -> str:
    """Return the label that others are compared with: ours, as it comes, if it is there."""
    wanted = {name: place for place, name in enumerate(REFERENCES)}
    place = runs["method"].astype(str).map(wanted).fillna(len(wanted))
    changed = runs["method_options"].astype(str) != "{}"
    ordered = runs.assign(place=place, changed=changed).sort_values(["place", "changed", "label"])
    return str(ordered["label"].iloc[0])


def _pair_table(pairs: pd.DataFrame) -> Table:
    against = str(pairs["method"].iloc[0])
    numbers = {
        "difference of means": ("mean_difference", "{:+.2f}"),
        "from": ("low", "{:+.2f}"),
        "to": ("high", "{:+.2f}"),
        "p": ("p_value", "{:.3g}"),
        "p (Holm)": ("p_holm", "{:.3g}"),
        "rank-biserial": ("rank_biserial", "{:+.2f}"),
        "Cliff's delta": ("cliffs_delta", "{:+.2f}"),
    }
    columns = [
        Column((head,), [_number(value, form) for value in pairs[name]])
        for head, (name, form) in numbers.items()
    ]
    note = "Percentage points; from and to: 95% bootstrap interval; p: Wilcoxon, two-sided."
    names = [str(name) for name in pairs["other"]]
    return assemble(f"{against} against each other method", names, columns, [note])


def _number(value: float, form: str) -> Cell:
    return Cell(form.format(value), float(value)) if pd.notna(value) else Cell("—", mark="missing")


# --- several settings -----------------------------------------------------------------------------


def across_section(frames: Frames, tell: Tell) -> Section:
    """Return the methods by what differs between the settings, and the ranks over all."""
    tell("across settings")
    runs = frames.runs
    varying = [name for name in metrics.SETTING if runs[name].nunique(dropna=False) > 1]
    blocks: list[Block] = [Shown("across-settings", tables.by_setting(runs, varying))]
    for column in NAMES:
        for number, part in enumerate(_alike_but(frames, column), start=1):
            name = f"across-{column.replace('_', '-')}-{number}"
            caption = f"Accuracy by {column.replace('_', ' ')}: settings alike in all else."
            draw = partial(figures.accuracy_by, part.runs, column)
            blocks += drawn(name, caption, draw, say=False)
    blocks += statistics_blocks(runs, "across")
    return Section("Across settings", "across", blocks)


def divergence_blocks(frames: Frames) -> list[Block]:
    """Return the divergence over the rounds, by sampling rate where nothing else differs."""
    caption = "Divergence: mean distance of the clients' surrogate features to the prototypes."
    blocks: list[Block] = []
    for number, part in enumerate(_alike_but(frames, "sampling_rate", 1), start=1):
        draw = partial(figures.divergence, part.rounds)
        blocks += drawn(f"divergence-{number}", caption, draw, say=False)
    return blocks


def _alike_but(frames: Frames, column: str, least: int = 2) -> Iterator[Frames]:
    """Yield the runs that differ in this column of the setting only."""
    others = [name for name in metrics.SETTING if name != column]
    for _, rows in frames.runs.groupby(others, dropna=False, sort=False):
        if rows[column].nunique() >= least:
            yield frames.of(rows)
