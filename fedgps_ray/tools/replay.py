"""A finished trial trained again from its settings: proof that they give the hashes on record."""

import tempfile
from pathlib import Path
from typing import NamedTuple

from fedgps_ray.errors import UserError
from fedgps_ray.identity import Settings, Table
from fedgps_ray.results.read import UNREADABLE, check, claim_of, read_rows, read_trial
from fedgps_ray.results.schema import DONE, ROUNDS
from fedgps_ray.results.store import spec_of
from fedgps_ray.rounds.trial import run_trial
from fedgps_ray.spec import ExecutionSpec

CHEAP_SECONDS = 60.0  # of recorded training that is repeated unless more is asked for


class Replay(NamedTuple):
    """How many of a trial's rounds were trained again, and what came of it."""

    trial_id: str
    replayed: int
    rounds: int  # on record
    problem: str | None = None

    @property
    def holds(self) -> bool:
        """Whether every hash was the one on record."""
        return self.problem is None

    def __str__(self) -> str:
        if self.problem is not None:
            return f"{self.trial_id}: {self.problem}"
        scope = "all" if self.replayed == self.rounds else "the first"
        return (
            f"{self.trial_id}: {scope} {self.replayed} of {self.rounds} rounds trained again, the"
            " weights of each have the hash on record"
        )


def replay(folder: Path, wanted: int | None, full: bool, files: Settings) -> Replay:
    """Train a trial's rounds again in this process, in a folder of their own, and compare.

    wanted: how many rounds; without it as many as are cheap, or all if full.
    files: data_dir, and the paths of the files that its settings name by content.
    """
    if problems := check(folder, full=True):
        return Replay(folder.name, 0, 0, "; ".join(problems))
    info = read_trial(folder)
    if info["status"] not in DONE:
        return Replay(folder.name, 0, 0, f"it has not ended ({info['status']})")
    claim = claim_of("rounds.parquet", info)
    try:
        rows = read_rows(folder / "rounds.parquet", ROUNDS, claim).to_pylist()
    except UNREADABLE as damage:
        return Replay(folder.name, 0, 0, f"rounds.parquet is damaged ({damage})")
    if not rows:
        return Replay(folder.name, 0, 0, "it has no rounds")
    number = min(wanted or (len(rows) if full else _cheap(rows)), len(rows))
    with tempfile.TemporaryDirectory() as place:
        execution = ExecutionSpec(out=Path(place), actors=0, **files)
        problem = _difference(folder, info, rows[:number], execution)
    return Replay(folder.name, number, len(rows), problem)


def _cheap(rows: list[Table]) -> int:
    """Return how many rounds took less than a minute on record, at least one."""
    seconds = 0.0
    for number, row in enumerate(rows, 1):
        seconds += (row["train_seconds"] or 0.0) + (row["evaluate_seconds"] or 0.0)
        if seconds > CHEAP_SECONDS:
            return max(1, number - 1)
    return len(rows)


def _difference(
    folder: Path, info: Table, rows: list[Table], execution: ExecutionSpec
) -> str | None:
    """Return the first difference between rows on record and rows computed now."""
    events = run_trial(spec_of(folder, info), execution)
    try:
        computed = (event for event in events if isinstance(event, dict))
        for row, now in zip(rows, computed, strict=False):
            for key in ("round", "weights_sha256", "accuracy"):
                if row[key] != now.get(key):
                    return _told(row, now, key, info)
            if row is rows[-1]:
                return None
    except UserError as problem:
        return f"it cannot be trained again: {problem}"
    finally:
        events.close()
    return "it ended earlier this time"


def _told(row: Table, now: Table, key: str, info: Table) -> str:
    return (
        f"round {row['round']}: {key} is {row[key]} on record and {now.get(key)} now; it was run"
        f" with {info.get('versions')} on {info.get('machine')}: other versions of PyTorch and"
        " other processors may round differently"
    )
