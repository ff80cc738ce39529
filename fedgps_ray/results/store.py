"""A trial's folder: what was asked for, how it stands, and its rows."""

import json
import platform
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from fedgps_ray.errors import UserError
from fedgps_ray.results import files, schema
from fedgps_ray.spec import SCHEMA_VERSION, ExecutionSpec, TrialSpec, columns, trial_spec

FLUSH_SECONDS = 1.0
FLUSH_SHARE = 0.05  # rows are rewritten whole, so not more often than costs this share of the time
ENDED = ("finished", "diverged")
NEEDED = ("schema_version", "status", "spec", "execution")
MOVE = "move the folder away, or use another --out"
PACKAGES = ("fedgps-ray", "torch", "numpy", "ray")
Row = dict[str, Any]


class TrialStore:
    """Writes and reads one trial's folder."""

    def __init__(self, experiment: Path, spec: TrialSpec) -> None:
        self.spec = spec
        self.folder = experiment / "trials" / spec.trial_id
        self._columns = columns(spec)
        self._rounds: list[Row] = []
        self._clients: list[Row] = []
        self._next_flush = 0.0

    @property
    def checkpoints(self) -> Path:
        """Where the trial's checkpoints lie."""
        return self.folder / "checkpoint"

    # --- trial.json -----------------------------------------------------------------------------

    def open(self, execution: ExecutionSpec) -> Row:
        """Return what trial.json says; write it first if the trial is new."""
        path = self.folder / "trial.json"
        if path.exists():
            return read_trial(self.folder)
        info = {
            "trial_id": self.spec.trial_id,
            "schema_version": SCHEMA_VERSION,
            "status": "new",
            "spec": self.spec.model_dump(mode="json"),
            "execution": execution.model_dump(mode="json"),
            "versions": {name: version(name) for name in PACKAGES},
            "machine": {"platform": platform.platform(), "processor": platform.machine()},
        }
        files.write_json(path, info)
        return info

    def ended(self) -> int | None:
        """Return how many rounds the trial took if it has ended, else None."""
        if not (self.folder / "trial.json").exists():
            return None
        info = read_trial(self.folder)
        return int(info["summary"]["rounds_done"]) if info["status"] in ENDED else None

    def note(self, **facts: Any) -> None:
        """Add facts to trial.json; None takes one away."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        info = read_trial(self.folder) | facts | {"updated": now}
        told = {name: fact for name, fact in info.items() if fact is not None}
        files.write_json(self.folder / "trial.json", told)

    # --- rows -----------------------------------------------------------------------------------

    def resume_rows(self, rounds_done: int) -> bool:
        """Take over the rows of the rounds done; say whether they are all there."""
        self._rounds = self._read("rounds.parquet", rounds_done)
        self._clients = self._read("clients.parquet", rounds_done)
        done = range(1, rounds_done + 1)
        worked = Counter(row["round"] for row in self._clients)
        whole = worked == dict.fromkeys(done, self.spec.per_round)
        return whole and [row["round"] for row in self._rounds] == list(done)

    def _read(self, name: str, rounds_done: int) -> list[Row]:
        path = self.folder / name
        if rounds_done == 0 or not path.exists():
            return []
        try:
            rows: list[Row] = pq.ParquetFile(path).read().to_pylist()
        except (pa.ArrowException, OSError):  # which of them depends on where a file is damaged
            return []
        return [row for row in rows if row["round"] <= rounds_done]

    def add(self, row: Row, clients: Sequence[Row]) -> None:
        """Take in a finished round; rows reach the disk about once a second."""
        self._rounds.append(self._columns | row)
        self._clients.extend(self._columns | client for client in clients)
        if time.monotonic() >= self._next_flush:
            self.flush()

    def flush(self) -> None:
        """Write all rows so far."""
        began = time.monotonic()
        self._write("rounds.parquet", self._rounds, schema.ROUNDS)
        self._write("clients.parquet", self._clients, schema.CLIENTS)
        now = time.monotonic()
        self._next_flush = now + max(FLUSH_SECONDS, (now - began) / FLUSH_SHARE)

    def write_partition(self, counts: NDArray[np.int64]) -> None:
        """Write how many samples of each class each client holds."""
        rows = [
            self._columns | {"client": client, "class": label, "count": int(count)}
            for (client, label), count in np.ndenumerate(counts)
        ]
        self._write("partition.parquet", rows, schema.PARTITION)

    def _write(self, name: str, rows: Sequence[Row], columns_: pa.Schema) -> None:
        table = pa.Table.from_pylist(list(rows), schema=columns_)
        files.write(self.folder / name, lambda beside: pq.write_table(table, beside))

    @property
    def rows(self) -> Sequence[Row]:
        """All rounds so far."""
        return self._rounds


def read_trial(folder: Path) -> Row:
    """Return trial.json of a trial's folder, checked against the folder's name."""
    path = folder / "trial.json"
    try:
        info: Row = json.loads(path.read_text())
        missing = [key for key in NEEDED if key not in info]
    except (FileNotFoundError, NotADirectoryError):
        raise UserError(f"{folder} is not a trial's folder: it has no trial.json") from None
    except (ValueError, TypeError) as problem:
        raise UserError(f"{path} is damaged ({problem}); {MOVE}") from None
    if missing:
        raise UserError(f"{path} is damaged (it lacks {', '.join(missing)}); {MOVE}")
    _check_owner(folder, info)
    return info


def _check_owner(folder: Path, info: Mapping[str, Any]) -> None:
    if info["schema_version"] != SCHEMA_VERSION:
        raise UserError(
            f"{folder} has results of schema {info['schema_version']}, this program writes"
            f" {SCHEMA_VERSION}; use another --out"
        )
    try:
        found = trial_spec(**info["spec"]).trial_id
    except (UserError, TypeError) as problem:
        raise UserError(
            f"{folder / 'trial.json'} has settings that are not valid ({problem}); {MOVE}"
        ) from None
    if found != folder.name:
        raise UserError(
            f"{folder} belongs to another spec: the settings in its trial.json make trial {found};"
            f" {MOVE}"
        )


def trial_folders(experiment: Path) -> list[Path]:
    """Return the folders of an experiment's trials, or the folder itself if it is a trial's."""
    if (experiment / "trial.json").exists():
        return [experiment]
    return sorted(path.parent for path in experiment.glob("trials/*/trial.json"))
