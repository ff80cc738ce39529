"""A finished trial trained again from its settings: proof that they give the hashes on record."""

import math
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from fedgps_ray.errors import UserError
from fedgps_ray.events import Event, Started
from fedgps_ray.identity import Settings, Table, canonical
from fedgps_ray.results import files, schema
from fedgps_ray.results.checkpoints import KEPT
from fedgps_ray.results.read import (
    UNREADABLE,
    check,
    claim_of,
    columns,
    hashes,
    read_rows,
    read_trial,
)
from fedgps_ray.results.store import CLIENT_READERS, ROUND_READERS, Reader, figures, spec_of
from fedgps_ray.results.summary import summary
from fedgps_ray.rounds.trial import run_trial
from fedgps_ray.spec import ExecutionSpec

TABLES = {
    "rounds.parquet": schema.ROUNDS,
    "clients.parquet": schema.CLIENTS,
    "partition.parquet": schema.PARTITION,
}
WHERE = ("worker", "train_seconds", "aggregate_seconds", "evaluate_seconds", "work_seconds")
OF_ROUNDS = {name: read for name, read in ROUND_READERS.items() if name not in WHERE}
OF_CLIENTS = {name: read for name, read in CLIENT_READERS.items() if name not in WHERE}
OF_PARTITION = dict.fromkeys(("client", "class", "count"), int)
ALWAYS = ("round", "weights_sha256", "accuracy")  # also where one of the two has none
CHEAP_SECONDS = 60.0  # of recorded training that is repeated unless more is asked for


class Replay(NamedTuple):
    """How many of a trial's rounds were trained again, and what came of it."""

    trial_id: str
    replayed: int  # from the first round on
    rounds: int  # on record
    problem: str | None = None
    last: int = 0  # from the checkpoint on that the trial has kept

    @property
    def holds(self) -> bool:
        """Whether every hash was the one on record."""
        return self.problem is None

    def __str__(self) -> str:
        if self.problem is not None:
            return f"{self.trial_id}: {self.problem}"
        which = f"the first {self.replayed}" + (f" and the last {self.last}" if self.last else "")
        if self.replayed == self.rounds:
            which = f"all {self.rounds}"
        return (
            f"{self.trial_id}: {which} of {self.rounds} rounds trained again, the weights and"
            " figures of each are those on record"
        )


def replay(folder: Path, wanted: int | None, full: bool, sources: Settings) -> Replay:
    """Train a trial's rounds again in this process, in a folder of their own, and compare.

    That is the first ones, and the last ones from the checkpoint on that the trial has kept.
    wanted: how many of the first; without it as many as are cheap, or all if full.
    sources: data_dir, and the paths of the files that its settings name by content.
    """
    if problems := check(folder, full=True):
        return Replay(folder.name, 0, 0, "; ".join(problems))
    info = read_trial(folder)
    if info["status"] not in schema.DONE:
        return Replay(folder.name, 0, 0, f"it has not ended ({info['status']})")
    try:
        record = Record(folder, info, {name: _rows(folder, name, info) for name in TABLES})
    except pa.ArrowInvalid as damage:
        return Replay(folder.name, 0, 0, str(damage))
    if problem := record.contradiction():
        return Replay(folder.name, 0, len(record.rounds), problem)
    rows = record.rounds
    number, last = min(wanted or (len(rows) if full else _cheap(rows)), len(rows)), 0
    with tempfile.TemporaryDirectory() as place:
        execution = ExecutionSpec(out=Path(place), actors=0, **sources)
        problem = _difference(record, 0, number, execution)
    if problem is None and number < len(rows):
        last, problem = _train_last(record, sources)
    return Replay(folder.name, number, len(rows), problem, last)


def _train_last(record: "Record", sources: Settings) -> tuple[int, str | None]:
    """Train the rounds after the checkpoint that a trial has kept; return how many these are."""
    kept = [found for name in record.info.get("files", {}) if (found := KEPT.fullmatch(name))]
    begun = next((int(found[2]) for found in kept if found[2]), None)
    if begun is None:
        return 0, None
    with tempfile.TemporaryDirectory() as place:
        execution = ExecutionSpec(out=Path(place), actors=0, **sources)
        try:
            record.copy(execution.out, [found[0] for found in kept])
        except UserError as link:
            return 0, str(link)
        number = len(record.rounds)
        return number - begun, _difference(record, begun, number, execution)


def _rows(folder: Path, name: str, info: Table) -> list[Table]:
    """Return the rows of one of a trial's tables."""
    try:
        rows: list[Table] = read_rows(folder / name, TABLES[name], claim_of(name, info)).to_pylist()
    except FileNotFoundError:
        raise pa.ArrowInvalid(f"it has no {name}, so it cannot be compared") from None
    except UNREADABLE as damage:
        raise pa.ArrowInvalid(f"{name} is damaged ({damage})") from None
    return rows


class Record(NamedTuple):
    """What a trial's folder says: trial.json, and the rows of its tables."""

    folder: Path
    info: Table
    rows: dict[str, list[Table]]

    @property
    def rounds(self) -> list[Table]:
        """One row per round."""
        return self.rows["rounds.parquet"]

    def copy(self, out: Path, kept: list[str]) -> None:
        """Copy the trial with a checkpoint to another folder, as if it had not ended."""
        place = out / "trials" / self.folder.name
        (place / "checkpoint").mkdir(parents=True)
        files.refuse_link(self.folder / "checkpoint")
        for name in (*TABLES, *kept):
            files.refuse_link(self.folder / name)
            shutil.copyfile(self.folder / name, place / name)
        info = {key: value for key, value in self.info.items() if key != "files"}
        files.write_json(place / "trial.json", {**info, "status": schema.INTERRUPTED})

    def contradiction(self) -> str | None:
        """Return in what trial.json and the rows contradict each other."""
        if not self.rounds:
            return "it has no rounds"
        if told := self._other_settings():
            return told
        sums, status = summary(self.rounds), self.info["status"]
        for key, value in self.info["summary"].items():
            if key not in sums or value != sums[key]:
                return f"summary.{key} is {value}, by its rows it is {sums.get(key)}"
        ends = self._ends(sums["rounds_done"])
        if status not in ends:
            return f"its status is {status}, by its rows it is {ends[0]}"
        return None

    def _ends(self, done: int) -> tuple[str, ...]:
        """Return how a trial may have ended by its rows; a search stops some in the last round."""
        last = self.rounds[-1]
        if last["weights_sha256"] is None or not math.isfinite(last["loss"] or 0.0):
            return (schema.DIVERGED,)
        is_whole = done == self.info["spec"]["rounds"]
        return (schema.FINISHED, schema.STOPPED) if is_whole else (schema.STOPPED,)

    def _other_settings(self) -> str | None:
        settings = columns(self.folder, self.info)
        for name, rows in self.rows.items():
            for row in rows:
                for key, value in settings.items():
                    if row[key] != value:
                        return f"{name}: {key} is {row[key]}, in trial.json {value}"
        return None


def _cheap(rows: list[Table]) -> int:
    """Return how many rounds took less than a minute on record, at least one."""
    seconds = 0.0
    for number, row in enumerate(rows, 1):
        seconds += (row["train_seconds"] or 0.0) + (row["evaluate_seconds"] or 0.0)
        if seconds > CHEAP_SECONDS:
            return max(1, number - 1)
    return len(rows)


def _difference(record: Record, begun: int, number: int, execution: ExecutionSpec) -> str | None:
    """Return the first difference between rounds on record and what is computed now."""
    is_part = number < len(record.rounds) or record.info["status"] == schema.STOPPED
    try:
        events = run_trial(spec_of(record.folder, record.info), execution)
    except UserError as problem:
        return str(problem)
    try:
        told = _other_rounds(record, events, record.rounds[begun:number], is_part)
    except UserError as problem:
        return f"it cannot be trained again: {problem}"
    finally:
        events.close()
    if told or is_part:
        return told
    return _other_files(record, execution.out / "trials" / record.folder.name)


def _other_rounds(
    record: Record, events: Iterator[Event], rows: list[Table], is_part: bool
) -> str | None:
    """Say in what rounds differ that are trained now; of a part no more than are on record."""
    left = list(reversed(rows))
    for event in events:
        if isinstance(event, Started) and event.problems:
            return "; ".join(event.problems)
        if isinstance(event, dict):
            if not left:
                return "it went on for longer this time"
            if told := _other(left.pop(), event, OF_ROUNDS):
                return _explained(f"round {event['round']}: {told}", record.info)
        if is_part and not left:
            break
    return "it ended earlier this time" if left else None


def _other(row: Table, now: Table, readers: Mapping[str, Reader]) -> str | None:
    """Say in which figure two rows differ; one that an older version lacked is left out."""
    before, after = figures(row, readers), figures(now, readers)
    for key in (*ALWAYS, *before):
        old, new = before.get(key), after.get(key)
        if isinstance(old, dict) and isinstance(new, dict):
            new = {name: value for name, value in new.items() if name in old}
        if canonical({key: old}) != canonical({key: new}):
            return f"{key} is {old} on record and {new} now"
    return None


def _other_files(record: Record, fresh: Path) -> str | None:
    """Say in what the files of a trial differ that was trained again from its first round."""
    now = read_trial(fresh)
    for name in ("status", "partition_sha256"):
        if record.info.get(name) != now.get(name):
            return f"{name} is {record.info.get(name)} on record and {now.get(name)} now"
    rows = {name: _rows(fresh, name, now) for name in TABLES}
    for name, readers in (("clients.parquet", OF_CLIENTS), ("partition.parquet", OF_PARTITION)):
        if told := _other_rows(record.rows[name], rows[name], readers):
            return _explained(f"{name}: {told}", record.info)
    model = "model.safetensors"
    if hashes(record.folder).get(model) != now["files"].get(model):
        return _explained(f"{model} is another one now", record.info)
    return None


def _other_rows(
    before: list[Table], after: list[Table], readers: Mapping[str, Reader]
) -> str | None:
    if len(before) != len(after):
        return f"{len(before)} rows on record and {len(after)} now"
    differences = (_other(row, now, readers) for row, now in zip(before, after, strict=True))
    return next((told for told in differences if told), None)


def _explained(what: str, info: Table) -> str:
    return (
        f"{what}; it was run with {info.get('versions')} on {info.get('machine')}: other versions"
        " of PyTorch and other processors may round differently"
    )
