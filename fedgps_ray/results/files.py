"""Files that are complete or absent: written beside, flushed to disk, renamed."""

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from safetensors import SafetensorError

from fedgps_ray.errors import UserError

_MASK = os.umask(0)  # there is no way to only look at it
os.umask(_MASK)


def write(path: Path, fill: Callable[[Path], None]) -> None:
    """Let fill write a temporary file, then put it in place in one step."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fill(beside)
        beside.chmod(0o666 & ~_MASK)  # some writers choose a mode of their own
        _flush(beside)
        beside.replace(path)
        _flush(path.parent)
    except (OSError, SafetensorError) as problem:  # what was there before is still whole
        raise UserError(f"cannot write {path}: {problem}") from None
    finally:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)


def _flush(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_json(path: Path, content: Any) -> None:
    """Write JSON that people can read."""
    write(path, lambda beside: _dump(beside, content))


def _dump(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n")


@contextmanager
def lock(folder: Path, patience: float = 0.0) -> Iterator[None]:
    """Lock a folder for this process; the system releases it when the process ends.

    patience: how many seconds to wait for another process to release it.
    """
    deadline = time.monotonic() + patience
    with _lock_file(folder) as held:
        while not _taken(held):
            if time.monotonic() >= deadline:
                raise UserError(f"{folder} is in use by another process; wait for it to end")
            time.sleep(0.2)
        yield


def _taken(file: TextIO) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_locked(folder: Path) -> bool:
    """Say whether a process has locked a folder."""
    try:
        with (folder / ".lock").open() as held:
            fcntl.flock(held, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _lock_file(folder: Path) -> TextIO:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return (folder / ".lock").open("w")
    except OSError as problem:
        reason = f"{problem.strerror}: {problem.filename}"
        raise UserError(f"cannot write to {folder} ({reason}); use another --out") from None
