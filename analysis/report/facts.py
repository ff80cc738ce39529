"""What was run, what it cost, how it went, and what is missing."""

import json
import shlex
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from fedgps_ray.analysis import metrics, tables
from fedgps_ray.analysis.names import published_name
from fedgps_ray.analysis.report.blocks import Block, Code, Section, Shown, Text, points
from fedgps_ray.analysis.report.frames import Frames
from fedgps_ray.analysis.tables import Cell, Column, Head, Table, assemble
from fedgps_ray.errors import UserError
from fedgps_ray.results import schema
from fedgps_ray.results.schema import ENDED

ONLY_SETTING = "Comparison"  # the heading where there are no others
LISTED = 40  # lines of a list; more are counted
NOT_A_SETTING = ("trial_id", "method_options", "lr", "weighting", "client_momentum")


def lead(frames: Frames) -> list[str]:
    """Return in sentences what there is."""
    runs = frames.runs
    counts = runs["status"].value_counts()
    states = ", ".join(f"{count} {status}" for status, count in counts.items())
    settings = runs["setting"].nunique()
    parts = [
        several(runs["label"].nunique(), "method"),
        several(runs["scenario"].nunique(), "scenario"),
        several(runs["seed"].nunique(), "seed"),
    ]
    where = f" in {settings} settings" if settings > 1 else ""
    missing = len(_missing(frames))
    sentences = [f"{', '.join(parts)}{where}. Trials: {states}."]
    if missing:
        sentences.append(f"{missing} of {len(frames.planned)} planned trials have not ended.")
    return sentences


def several(count: int, name: str) -> str:
    """Return a number of things in words."""
    return f"{count} {name}{'s' if count != 1 else ''}"


def headings(runs: pd.DataFrame) -> dict[str, str]:
    """Return for each setting what sets it apart from the others."""
    varying = [name for name in metrics.SETTING if runs[name].nunique(dropna=False) > 1]
    firsts = runs.drop_duplicates("setting").to_dict("records")
    return {row["setting"]: _apart(row, varying) for row in firsts}


def _apart(row: Mapping[Hashable, Any], varying: Sequence[str]) -> str:
    texts = [metrics.text(name, row[name]) for name in varying if pd.notna(row[name])]
    return ", ".join(texts) or ONLY_SETTING


def with_corner(corner: str, table: Table) -> Table:
    """Return the table with another heading over the names of its rows."""
    *above, last = table.header
    return replace(table, header=(*above, (Head(corner), *last[1:])))


# --- costs ----------------------------------------------------------------------------------------


def cost_section(frames: Frames, formulas: Mapping[str, tuple[str, str]]) -> Section:
    """Return bytes, time and hyperparameters of each method."""
    blocks: list[Block] = [Shown("timing", timing(frames.runs))]
    try:
        blocks.append(Shown("communication", tables.communication(frames.runs, formulas)))
    except UserError as problem:
        blocks.append(Text(f"No table of bytes: {problem}."))
    blocks.append(Shown("hyperparameters", tables.hyperparameters(frames.runs)))
    return Section("Costs and hyperparameters", "costs", blocks)


def timing(runs: pd.DataFrame) -> Table:
    """Return how long each method took, as the clock of its machine had it."""
    names, grouped = metrics.order(runs), runs.groupby("label")
    done = grouped["rounds_done"].sum()
    train, test = grouped["train_seconds"].sum(), grouped["evaluate_seconds"].sum()
    columns = [
        Column(("trials",), [_whole(len(grouped.get_group(name))) for name in names]),
        Column(("rounds",), [_whole(done[name]) for name in names]),
        Column(("seconds per round",), [_seconds(train[n] / max(done[n], 1)) for n in names]),
        Column(("seconds of training",), [_seconds(train[name]) for name in names]),
        Column(("seconds of testing",), [_seconds(test[name]) for name in names]),
    ]
    note = "Trials may have shared their machine; testing that hid behind training counts little."
    return assemble("time", names, columns, [note])


def _whole(value: float) -> Cell:
    return Cell(f"{value:.0f}", float(value))


def _seconds(value: float) -> Cell:
    return Cell(f"{value:,.2f}", float(value))


# --- what was run ---------------------------------------------------------------------------------


def run_section(frames: Frames) -> Section:
    """Return what varied and what was fixed, the partitions and the versions."""
    blocks: list[Block] = [
        Shown("settings", settings_table(frames.runs)),
        Shown("partition-hashes", partition_table(frames.runs)),
        Shown("versions", versions_table(frames.runs)),
    ]
    return Section("What was run", "run", blocks)


def settings_table(runs: pd.DataFrame) -> Table:
    """Return every setting with its values, those that vary first."""
    known = [name for name, _ in schema.SPEC if name not in NOT_A_SETTING]
    others = pd.DataFrame([_general(text) for text in runs["variant"]], runs.index)
    frame = pd.concat([runs[known], others], axis=1)
    frame["method"] = [published_name(str(method)) for method in frame["method"]]
    values = {name: _values(frame[name]) for name in frame}
    ordered = sorted(values, key=lambda name: len(values[name]) == 1)
    column = Column(("values",), [Cell(", ".join(values[name])) for name in ordered])
    kind = Column(("",), [Cell("fixed" if len(values[n]) == 1 else "varied") for n in ordered])
    names = [str(name).replace("_", " ") for name in ordered]
    note = "Hyperparameters have their own table."
    return with_corner("setting", assemble("settings", names, [kind, column], [note]))


def _general(variant: str) -> dict[str, str]:
    """Return the settings that have no column of their own and are no hyperparameters."""
    own = json.loads(variant)
    general = [name for name in own if not name.startswith(("method.", "optimizer."))]
    return {name: "none" if own[name] is None else str(own[name]) for name in general}


def _values(column: "pd.Series[Any]") -> list[str]:
    values = sorted(column.dropna().unique())
    texts = [f"{value:g}" if isinstance(value, float) else str(value) for value in values]
    return texts + (["none"] if column.isna().any() else [])


def partition_table(runs: pd.DataFrame) -> Table:
    """Return each scenario's partition, and whether all methods met the same."""
    titles = headings(runs)
    rows = [
        (_place(titles[str(setting)], scenario), part["partition_sha256"].dropna())
        for (setting, scenario), part in runs.groupby(["setting", "scenario"])
    ]
    columns = [
        Column(("sha256",), [Cell(_short(hashes)) for _, hashes in rows]),
        Column(("trials",), [_whole(len(hashes)) for _, hashes in rows]),
        Column(("met by all",), [Cell(_same(hashes)) for _, hashes in rows]),
    ]
    note = "The hash is over the indices of every client's samples; its first 16 digits are shown."
    names = [name for name, _ in rows]
    return with_corner("setting", assemble("partitions", names, columns, [note]))


def _place(title: str, scenario: Hashable) -> str:
    return f"scenario {scenario}" if title == ONLY_SETTING else f"{title}, scenario {scenario}"


def _short(hashes: "pd.Series[str]") -> str:
    return ", ".join(sorted(text[:16] for text in hashes.unique()))


def _same(hashes: "pd.Series[str]") -> str:
    if hashes.empty:
        return "not known yet"
    return "the same" if hashes.nunique() == 1 else "NOT THE SAME: do not compare"


def versions_table(runs: pd.DataFrame) -> Table:
    """Return which versions of the programs made how many trials."""
    counts = runs["versions"].value_counts()
    sets = [(json.loads(str(text)), count) for text, count in counts.items()]
    packages = sorted({name for versions, _ in sets for name in versions})
    columns = [
        Column((name,), [Cell(str(versions.get(name, "—"))) for versions, _ in sets])
        for name in packages
    ]
    names = [f"{several(count, 'trial')}" for _, count in sets]
    return with_corner("trials", assemble("versions", names, columns))


# --- what went wrong, what is missing -------------------------------------------------------------


def trouble_section(frames: Frames) -> Section:
    """Return what failed or diverged, what has not ended, and what could not be read."""
    blocks = [
        *_failures(frames.runs),
        *_open(frames),
        *_continue(frames),
        *points(list(frames.problems)),
    ]
    if not blocks:
        blocks = [Text("All trials finished; nothing failed, diverged or is missing.")]
    return Section("What went wrong and what is missing", "trouble", blocks)


def _failures(runs: pd.DataFrame) -> list[Block]:
    bad = runs[runs["status"].isin(metrics.FAILED)]
    return [
        Code(f"{row.status}: {_named(row)}", str(row.diverged or row.error or "no message"))
        for row in bad.astype(object).where(bad.notna(), None).itertuples()
    ]


def _named(row: Any) -> str:
    return (
        f"{row.label}, scenario {row.scenario}, seed {row.seed}, {row.dataset}"
        f" (trial {row.trial_id}, after {row.rounds_done} of {row.rounds} rounds)"
    )


def _open(frames: Frames) -> list[Block]:
    """Return the trials that are not at their end, begun or not."""
    runs = frames.runs
    begun = runs[~runs["status"].isin([*ENDED, "failed"])]
    lines = [f"{row.status}: {_named(row)}" for row in begun.itertuples()]
    missing = _missing(frames)
    if len(missing):
        absent = missing[~missing["trial_id"].isin(runs["trial_id"])]
        lines += [
            f"not begun: {published_name(str(row.method))}, scenario {row.scenario},"
            f" seed {row.seed}, {row.dataset} (trial {row.trial_id})"
            for row in absent.itertuples()
        ]
    return points(_cut(lines))


def _continue(frames: Frames) -> list[Block]:
    """Return the commands that run what has not ended, if there is any."""
    open_runs = frames.runs[~frames.runs["status"].isin(ENDED)]
    folders = [
        *(_experiment(Path(folder)) for folder in open_runs["folder"]),
        *(Path(folder) for folder in _missing(frames).get("folder", [])),
    ]
    commands = [shlex.join(["fedgps-ray", "resume", str(f)]) for f in dict.fromkeys(folders)]
    return [Code("to continue", "\n".join(commands))] if commands else []


def _experiment(trial: Path) -> Path:
    return trial.parent.parent if trial.parent.name == "trials" else trial


def _missing(frames: Frames) -> pd.DataFrame:
    """Return the planned cells that have not ended."""
    if frames.planned.empty:
        return frames.planned
    runs = frames.runs
    ended = runs[runs["status"].isin(ENDED)]["trial_id"]
    return frames.planned[~frames.planned["trial_id"].isin(ended)]


def _cut(lines: list[str]) -> list[str]:
    more = len(lines) - LISTED
    return lines if more <= 0 else [*lines[:LISTED], f"and {more} more"]
