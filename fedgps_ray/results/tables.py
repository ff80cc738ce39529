"""Parquet files that prove themselves: each holds a hash of all its other bytes.

A Parquet file is pages, a footer, the footer's length and a mark. Readers find the pages through
the footer, so they skip bytes between the two: the hash is there.

Files are small and read without Arrow's threads, which now and then abort a process that ends.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from fedgps_ray.results import files

MARK = b"fedgps-ray sha256:"
ROOM = len(MARK) + hashlib.sha256().digest_size
TAIL = 8  # the footer's length and Parquet's own mark
VALUE = 8  # bytes that a value takes in memory, about


class Claim(NamedTuple):
    """What is known of a file before it is read."""

    sealed: bool = False  # it was written with a hash in it
    most_rows: int | None = None
    sha256: object = None  # of all of it, where its trial has ended


NOTHING = Claim()


def write(path: Path, table: pa.Table) -> None:
    """Write a table with the hash of its file."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    content = sink.getvalue().to_pybytes()
    footer = _footer(content)
    digest = hashlib.sha256(content).digest()
    path.write_bytes(content[:footer] + MARK + digest + content[footer:])


def read(path: Path, claim: Claim = NOTHING, names: Sequence[str] | None = None) -> pa.Table:
    """Return a table or some columns; raise ArrowInvalid if its file was changed afterwards."""
    columns = None if names is None else list(names)
    return _valid(_opened(path, claim).read(columns=columns, use_threads=False))


def read_some(path: Path, schema: pa.Schema, names: Sequence[str]) -> pa.Table | None:
    """Return some columns of a table, checked as a whole; None if it has another schema."""
    file = _opened(path, NOTHING)
    if not file.schema_arrow.equals(schema):
        return None
    return _valid(file.read(columns=list(names), use_threads=False))


def _valid(table: pa.Table) -> pa.Table:
    """Return a table whose values can be: its texts, too, are checked only here."""
    table.validate(full=True)
    return table


def _opened(path: Path, claim: Claim) -> pq.ParquetFile:
    content = files.read_bytes(path)
    if not _is_as_claimed(content, claim):
        raise pa.ArrowInvalid("its content does not match its hash: it was changed or damaged")
    file = pq.ParquetFile(pa.BufferReader(content))
    _check_size(file.metadata, claim.most_rows)
    _check_names(file)
    return file


def _check_names(file: pq.ParquetFile) -> None:
    """Refuse columns that cannot be told apart, or whose names are no text."""
    try:
        names = file.schema_arrow.names
    except UnicodeDecodeError:
        raise pa.ArrowInvalid("the name of a column is not valid UTF-8") from None
    if len(set(names)) < len(names):
        raise pa.ArrowInvalid("it has several columns of the same name")


def _check_size(told: pq.FileMetaData, most_rows: int | None) -> None:
    """Refuse a file that would take much more memory than disk: packed, equal rows are nothing."""
    if most_rows is not None and told.num_rows > most_rows:
        raise pa.ArrowInvalid(f"it has {told.num_rows} rows, at most {most_rows} are possible")
    groups = map(told.row_group, range(told.num_row_groups))
    values = sum(group.column(at).num_values for group in groups for at in range(told.num_columns))
    if max(values, told.num_rows) * VALUE > files.MOST_BYTES:
        raise pa.ArrowInvalid(f"it has {values} values, more than fit into memory")


def _is_as_claimed(content: bytes, claim: Claim) -> bool:
    if claim.sha256 is not None:
        return hashlib.sha256(content).hexdigest() == claim.sha256
    return is_whole(content, claim.sealed)


def is_whole(content: bytes, sealed: bool = False) -> bool:
    """Say whether a file is as it was written; one without a hash may be, unless it had one."""
    footer = _footer(content)
    held = content[max(0, footer - ROOM) : footer]
    if not held.startswith(MARK):
        return not sealed
    rest = hashlib.sha256(content[: footer - ROOM])
    rest.update(content[footer:])
    return rest.digest() == held[len(MARK) :]


def _footer(content: bytes) -> int:
    """Return where the footer begins."""
    length = int.from_bytes(content[-TAIL:-4], "little")
    return max(0, len(content) - TAIL - length)
