"""Parquet files that prove themselves: each holds a hash of all its other bytes.

A Parquet file is pages, a footer, the footer's length and a mark. Readers find the pages through
the footer, so they skip bytes between the two: the hash is there.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from fedgps_ray.results import files

MARK = b"fedgps-ray sha256:"
ROOM = len(MARK) + hashlib.sha256().digest_size
TAIL = 8  # the footer's length and Parquet's own mark


def write(path: Path, table: pa.Table) -> None:
    """Write a table with the hash of its file."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    content = sink.getvalue().to_pybytes()
    footer = _footer(content)
    digest = hashlib.sha256(content).digest()
    path.write_bytes(content[:footer] + MARK + digest + content[footer:])


def read(path: Path) -> pa.Table:
    """Return a table; raise ArrowInvalid if its file was changed after it was written."""
    return _opened(path).read()


def read_some(path: Path, schema: pa.Schema, names: Sequence[str]) -> pa.Table | None:
    """Return some columns of a table, checked as a whole; None if it has another schema."""
    file = _opened(path)
    if not file.schema_arrow.equals(schema):
        return None
    return file.read(columns=list(names), use_threads=False)


def _opened(path: Path) -> pq.ParquetFile:
    content = files.read_bytes(path)
    if not is_whole(content):
        raise pa.ArrowInvalid("its content does not match its hash: it was changed or damaged")
    return pq.ParquetFile(pa.BufferReader(content))


def is_whole(content: bytes) -> bool:
    """Say whether a file is as it was written; one without a hash may be."""
    footer = _footer(content)
    sealed = content[max(0, footer - ROOM) : footer]
    if not sealed.startswith(MARK):
        return True
    rest = hashlib.sha256(content[: footer - ROOM])
    rest.update(content[footer:])
    return rest.digest() == sealed[len(MARK) :]


def _footer(content: bytes) -> int:
    """Return where the footer begins."""
    length = int.from_bytes(content[-TAIL:-4], "little")
    return max(0, len(content) - TAIL - length)
