"""Writing a trial's folder: its settings, status and rows."""

import contextlib
import hashlib
import platform
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fedgps_ray.errors import CannotWrite, UserError
from fedgps_ray.identity import IDENTITY_VERSION, canonical
from fedgps_ray.results import files, schema, tables
from fedgps_ray.results.read import (
    MOVE,
    UNREADABLE,
    Row,
    hashes,
    read_rows,
    read_trial,
    refuse_older,
)
from fedgps_ray.results.uri import redacted
from fedgps_ray.spec import ExecutionSpec, TrialSpec, columns, stored_spec
from fedgps_ray.units import printable

FLUSH_SECONDS = 1.0
FLUSH_SHARE = 0.05  # rows are rewritten whole, so not more often than costs this share of the time
PACKAGES = ("fedgps-ray", "torch", "numpy", "ray")
Reader = Callable[[Any], Any]


class TrialStore:
    """Writes one trial's folder, and reads it again to continue."""

    def __init__(self, experiment: Path, spec: TrialSpec) -> None:
        self.spec = spec
        self.folder = experiment / "trials" / spec.trial_id
        self._columns = columns(spec)
        self._rounds, self._clients = Rows(schema.ROUNDS), Rows(schema.CLIENTS)
        self._next_flush = 0.0
        self._running = RowHash()
        self.held: files.Held | None = None  # the lock, which tells if the folder was replaced
        self.starts_over = False  # what there is of the trial is not wanted

    def make(self) -> None:
        """Make the trial's folder, which no link may lead out of; later it has to be there."""
        files.refuse_link(self.folder.parent)
        files.folder(self.folder)

    @property
    def checkpoints(self) -> Path:
        """The folder of the trial's checkpoints."""
        return self.folder / "checkpoint"

    # --- trial.json -----------------------------------------------------------------------------

    def open(self, execution: ExecutionSpec) -> Row:
        """Return what trial.json says; write it first if the trial is new or starts over."""
        self.make()
        path = self.folder / "trial.json"
        if path.exists() and not self.starts_over:
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
            "execution": recorded(execution),
            "versions": {name: version(name) for name in PACKAGES},
            "machine": {"platform": platform.platform(), "processor": platform.machine()},
        }
        files.write_json(path, info)
        return read_trial(self.folder)

    def ended(self) -> int | None:
        """Return how many rounds the trial took if it has ended and is wanted, else None."""
        if self.starts_over or not (self.folder / "trial.json").exists():
            return None
        info = read_trial(self.folder)
        return int(info["summary"]["rounds_done"]) if info["status"] in schema.ENDED else None

    def note(self, **facts: object) -> None:
        """Add facts to trial.json, None removes one; a trial that has ended is sealed."""
        self.check_place()
        now = datetime.now(UTC).isoformat(timespec="seconds")
        before = read_trial(self.folder)
        info = before | facts | {"updated": now}
        if info["status"] not in schema.DONE:
            info["files"] = None
        elif before["status"] not in schema.DONE:  # a seal is made once: it is not to cover changes
            info["files"] = hashes(self.folder, info.get("summary", {}).get("rounds_done", 0))
        told = {name: _legible(fact) for name, fact in info.items() if fact is not None}
        files.write_json(self.folder / "trial.json", told)

    def check_place(self) -> None:
        """Raise an error if the folder is gone, or is not the one that was locked."""
        if not self.folder.is_dir():
            raise CannotWrite(f"{self.folder} was deleted or moved while the trial was running")
        if self.held is not None:
            self.held.check()

    def remove_drafts(self) -> None:
        """Remove the temporary files of a process that was killed; the folder has to be locked."""
        files.refuse_link(self.checkpoints)
        for path in (*self.folder.glob(".*.part"), *self.checkpoints.glob(".*.part")):
            if path.is_symlink() or path.is_file():
                path.unlink(missing_ok=True)

    def remove_checkpoints(self) -> None:
        """Remove all checkpoints of a trial that has ended but the one that is sealed with it."""
        sealed = read_trial(self.folder).get("files", {})
        with contextlib.suppress(OSError):
            for path in self.checkpoints.iterdir():
                if f"{self.checkpoints.name}/{path.name}" not in sealed:
                    path.unlink()
            if not any(self.checkpoints.iterdir()):
                self.checkpoints.rmdir()

    # --- rows -----------------------------------------------------------------------------------

    def resume_rows(self, rounds_done: int, sha256: str | None = None) -> bool:
        """Load the rows of the rounds done; say whether they are complete, and those of a hash."""
        self._rounds = Rows(schema.ROUNDS, self._read("rounds.parquet", rounds_done))
        self._clients = Rows(schema.CLIENTS, self._read("clients.parquet", rounds_done))
        done = range(1, rounds_done + 1)
        worked = Counter(row["round"] for row in self._clients.rows)
        whole = worked == dict.fromkeys(done, self.spec.per_round)
        if not whole or [row["round"] for row in self._rounds.rows] != list(done):
            return False
        self._running = self._hashed()
        return sha256 in (None, self.rows_sha256)

    def _hashed(self) -> "RowHash":
        """Return the running hash of the rows that were loaded."""
        by_round: dict[int, list[Row]] = {}
        for client in self._clients.rows:
            by_round.setdefault(client["round"], []).append(client)
        running = RowHash()
        for row in self._rounds.rows:
            running.add(row, by_round[row["round"]])
        return running

    @property
    def rows_sha256(self) -> str:
        """Return the hash of all rows so far, which a checkpoint remembers."""
        return self._running.hexdigest()

    def _read(self, name: str, rounds_done: int) -> list[Row]:
        path = self.folder / name
        if rounds_done == 0 or not path.exists():
            return []
        of_rounds = name == "rounds.parquet"
        columns_ = schema.ROUNDS if of_rounds else schema.CLIENTS
        most = self.spec.rounds * (1 if of_rounds else self.spec.per_round)
        try:
            claim = tables.Claim(most_rows=most)  # a checkpoint knows the hash of the rows
            rows: list[Row] = read_rows(path, columns_, claim).to_pylist()
        except UNREADABLE:
            return []
        return [row | self._columns for row in rows if row["round"] <= rounds_done]

    def add(self, row: Row, clients: Sequence[Row]) -> None:
        """Add a finished round, all of it or nothing: Ctrl-C may come at any moment."""
        running, whole = self._running.copy(), [self._columns | client for client in clients]
        running.add(row, clients)
        self._rounds.rows.append(self._columns | row)
        self._clients.rows.extend(whole)
        self._running = running

    def add_last(self, row: Row) -> None:
        """Add the round in which the trial diverged, which no checkpoint counts."""
        self._rounds.rows.append(self._columns | row)

    def flush_in_time(self) -> None:
        """Write all rows so far, about once a second."""
        if time.monotonic() >= self._next_flush:
            self.flush()

    def flush(self) -> None:
        """Write all rows so far."""
        began = time.monotonic()
        self._write("rounds.parquet", self._rounds)
        self._write("clients.parquet", self._clients)
        now = time.monotonic()
        self._next_flush = now + max(FLUSH_SECONDS, (now - began) / FLUSH_SHARE)

    def write_partition(self, counts: NDArray[np.int64]) -> None:
        """Write how many samples of each class each client holds."""
        rows = [
            self._columns | {"client": client, "class": label, "count": int(count)}
            for (client, label), count in np.ndenumerate(counts)
        ]
        self._write("partition.parquet", Rows(schema.PARTITION, rows))

    def _write(self, name: str, rows: "Rows") -> None:
        self.check_place()
        table = rows.table()
        files.write(self.folder / name, lambda beside: tables.write(beside, table))

    @property
    def rows(self) -> Sequence[Row]:
        """All rounds so far."""
        return self._rounds.rows


class Rows:
    """Rows that become a table, each once however often the table is written."""

    def __init__(self, columns_: pa.Schema, rows: Sequence[Row] = ()) -> None:
        self.rows = list(rows)
        self._table = columns_.empty_table()

    def table(self) -> pa.Table:
        """Return all rows so far."""
        new = self.rows[self._table.num_rows :]
        made = pa.Table.from_pylist(new, schema=self._table.schema)
        self._table = pa.concat_tables([self._table, made]).combine_chunks()
        return self._table


class RowHash:
    """A hash of rows that grows with them: the same before they are written and after."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def copy(self) -> "RowHash":
        """Return another one that has taken in the same."""
        other = RowHash()
        other._hash = self._hash.copy()
        return other

    def add(self, row: Row, clients: Sequence[Row]) -> None:
        """Take in a round."""
        texts = [_canonical(row, ROUND_READERS)]
        texts += [_canonical(client, CLIENT_READERS) for client in clients]
        self._hash.update("\n".join(texts).encode())

    def hexdigest(self) -> str:
        """Return the hash so far."""
        return self._hash.hexdigest()


def _canonical(row: Row, readers: Mapping[str, Reader]) -> str:
    return canonical(figures(row, readers))


def figures(row: Row, readers: Mapping[str, Reader]) -> Row:
    """Return what a row says besides its settings; an empty column counts as absent."""
    given = ((name, row.get(name), read) for name, read in readers.items())
    return {name: read(value) for name, value, read in given if value is not None}


def _reader(kind: pa.DataType) -> Reader:
    """Return what makes a value plain that is written as one kind and may be read as another."""
    if pa.types.is_map(kind):
        read = _reader(kind.item_type)
        return lambda value: {
            name: None if number is None else read(number) for name, number in dict(value).items()
        }
    if pa.types.is_floating(kind):
        return float
    return int if pa.types.is_integer(kind) else str


def _readers(columns_: pa.Schema) -> dict[str, Reader]:
    return {field.name: _reader(field.type) for field in list(columns_)[len(schema.SPEC) :]}


ROUND_READERS, CLIENT_READERS = _readers(schema.ROUNDS), _readers(schema.CLIENTS)


def _legible(fact: Any) -> Any:
    """Return a fact that can be read again: an error's text may hold halves of characters."""
    return printable(fact) if isinstance(fact, str) else fact


def recorded(execution: ExecutionSpec) -> Row:
    """Return how a trial runs, as it may be written down: without passwords."""
    told = execution.model_dump(mode="json")
    return told | ({"storage": redacted(execution.storage)} if execution.storage else {})


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
