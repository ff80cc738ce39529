"""Writing a trial's folder: its settings, status and rows."""

import platform
import time
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from fedgps_ray.errors import UserError
from fedgps_ray.identity import IDENTITY_VERSION
from fedgps_ray.results import files, schema
from fedgps_ray.results.read import MOVE, UNREADABLE, Row, read_rows, read_trial, refuse_older
from fedgps_ray.spec import ExecutionSpec, TrialSpec, columns, stored_spec

FLUSH_SECONDS = 1.0
FLUSH_SHARE = 0.05  # rows are rewritten whole, so not more often than costs this share of the time
PACKAGES = ("fedgps-ray", "torch", "numpy", "ray")


class TrialStore:
    """Writes one trial's folder, and reads it again to continue."""

    def __init__(self, experiment: Path, spec: TrialSpec) -> None:
        self.spec = spec
        self.folder = experiment / "trials" / spec.trial_id
        self._columns = columns(spec)
        self._rounds: list[Row] = []
        self._clients: list[Row] = []
        self._next_flush = 0.0

    @property
    def checkpoints(self) -> Path:
        """The folder of the trial's checkpoints."""
        return self.folder / "checkpoint"

    # --- trial.json -----------------------------------------------------------------------------

    def open(self, execution: ExecutionSpec) -> Row:
        """Return what trial.json says; write it first if the trial is new."""
        path = self.folder / "trial.json"
        if path.exists():
            info = read_trial(self.folder)
            spec_of(self.folder, info)
            return info
        info = {
            "trial_id": self.spec.trial_id,
            "schema_version": schema.LAYOUT_VERSION,
            "status": schema.NEW,
            "identity_version": IDENTITY_VERSION,
            "identity": self.spec.identity,
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
        return int(info["summary"]["rounds_done"]) if info["status"] in schema.ENDED else None

    def note(self, **facts: Any) -> None:
        """Add facts to trial.json; None removes one."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        info = read_trial(self.folder) | facts | {"updated": now}
        told = {name: fact for name, fact in info.items() if fact is not None}
        files.write_json(self.folder / "trial.json", told)

    # --- rows -----------------------------------------------------------------------------------

    def resume_rows(self, rounds_done: int) -> bool:
        """Load the rows of the rounds done; say whether they are complete."""
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
        columns_ = schema.ROUNDS if name == "rounds.parquet" else schema.CLIENTS
        try:
            rows: list[Row] = read_rows(path, columns_).to_pylist()
        except UNREADABLE:
            return []
        return [row for row in rows if row["round"] <= rounds_done]

    def add(self, row: Row, clients: Sequence[Row]) -> None:
        """Add a finished round; rows are written to disk about once a second."""
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


def spec_of(folder: Path, info: Row) -> TrialSpec:
    """Return the spec of a trial that is to be continued, checked against its identity."""
    refuse_older(folder, info)
    try:
        spec = stored_spec(info["spec"])
    except (UserError, TypeError) as problem:
        raise UserError(
            f"{folder / 'trial.json'} has settings that are not valid ({problem}); {MOVE}"
        ) from None
    if spec.identity != info["identity"]:
        raise UserError(
            f"{folder} belongs to another spec: the settings in its trial.json make trial"
            f" {spec.trial_id}; {MOVE}"
        )
    return spec
