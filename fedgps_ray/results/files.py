"""Files that are complete or absent: written beside, flushed, renamed; no link is followed."""

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from safetensors import SafetensorError

from fedgps_ray.errors import CannotWrite, InUse, UserError
from fedgps_ray.identity import Settings, Table, canonical

_MASK = os.umask(0)  # there is no way to only look at it
os.umask(_MASK)

LONG = 1_000_000  # characters of JSON that nobody reads
MOST_BYTES = 2**30  # of a file that is read as a whole; none of ours is nearly as long
MOMENT = 2.0  # seconds in which a process that was just killed releases its locks
SEAL = "sha256"  # the key under which a JSON file has the hash of all its other content


def write(path: Path, fill: Callable[[Path], None], durable: bool = True) -> None:
    """Let fill write a temporary file, then put it in place in one step.

    durable: survives a power cut, which takes some milliseconds.
    """
    beside = _beside(path)
    try:
        fill(beside)
        beside.chmod(0o666 & ~_MASK)  # some writers choose a mode of their own
        if durable:
            _flush(beside)
        beside.replace(path)
        if durable:
            _flush(path.parent)
    except (OSError, SafetensorError) as problem:  # what was there before is still whole
        raise _cannot(path, problem) from None
    finally:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)


def _beside(path: Path) -> Path:
    """Return a new empty file next to a path; being new, it is not a link to somewhere else."""
    try:
        handle, name = tempfile.mkstemp(".part", f".{path.name}.", path.parent)
    except OSError as problem:
        raise _cannot(path, problem) from None
    os.close(handle)
    return Path(name)


def _cannot(path: Path, problem: Exception) -> UserError:
    if isinstance(problem, FileNotFoundError) and not path.parent.is_dir():
        return CannotWrite(
            f"cannot write {path}: its folder was deleted or moved while it was in use"
        )
    of_disk = isinstance(problem, OSError) or "I/O error" in str(problem)  # as safetensors says
    return (CannotWrite if of_disk else UserError)(f"cannot write {path}: {problem}")


def _flush(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


# --- folders --------------------------------------------------------------------------------------


def folder(path: Path) -> Path:
    """Make a folder inside a results folder unless it is there; refuse a link to somewhere else."""
    refuse_link(path)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        reason = f"{problem.strerror}: {problem.filename}"
        raise CannotWrite(f"cannot write to {path} ({reason}); use another --out") from None
    return path


def refuse_link(path: Path) -> None:
    """Raise an error if a path is a symbolic link: it may lead out of the results folder."""
    if path.is_symlink():
        raise UserError(
            f"{path} is a symbolic link, which is not followed here: it may lead out of the"
            " results folder; remove it"
        )


def refuse_second_name(path: Path) -> None:
    """Raise an error if a file to be written in place is a hard link: so would be the other."""
    if path.is_file() and path.stat().st_nlink > 1:
        raise UserError(
            f"{path} has a second name (a hard link), whose content would change too; remove it"
        )


# --- JSON -----------------------------------------------------------------------------------------


def write_json(path: Path, content: Settings, durable: bool = True) -> None:
    """Write JSON sealed with a hash of its content; if durable, laid out for people to read.

    What is too long to be read by people is not laid out: that takes Python ten times as long.
    """
    draft = json.dumps({**content, SEAL: None})
    plain = json.loads(draft)  # as it will be read again
    wide = durable and len(draft) < LONG
    layout: dict[str, Any] = {"indent": 2} if wide else {"separators": (",", ":")}
    text = json.dumps({**plain, SEAL: _seal(plain)}, **layout) + "\n"

    def fill(beside: Path) -> None:
        beside.write_text(text)

    write(path, fill, durable)


def read_json(path: Path, sealed: bool = True) -> Table:
    """Return a JSON file's content with its seal; raise ValueError if it was changed."""
    return parse_json(read_bytes(path).decode(), sealed)


def parse_json(text: str, sealed: bool = True) -> Table:
    """Return the content of a JSON file's text with its seal; raise ValueError if changed.

    sealed: compare it with its seal, if it has one.
    """
    try:
        content = json.loads(text)
        if not isinstance(content, dict):
            raise ValueError(f"it holds a {type(content).__name__}, expected an object")
        if "\\u" in text:
            _check_text(content)
        if sealed and SEAL in content and content[SEAL] != _seal(content):
            raise ValueError("its content does not match its sha256: it was changed or damaged")
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    return content


def _seal(content: Settings) -> str:
    rest = {key: value for key, value in content.items() if key != SEAL}
    return hashlib.sha256(canonical(rest).encode()).hexdigest()


def _check_text(content: object) -> None:
    """Refuse halves of characters, which JSON can express and no file or terminal can take."""
    try:
        json.dumps(content, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise ValueError("it holds text that is not valid Unicode") from None


# --- reading --------------------------------------------------------------------------------------


def open_file(path: Path) -> BufferedReader:
    """Open a file for reading; refuse a device or a pipe, which may never end."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    if stat.S_ISREG(os.fstat(handle).st_mode):
        return open(handle, "rb")
    os.close(handle)
    raise OSError("it is not a file")


def read_bytes(path: Path) -> bytes:
    """Return the content of a file, unless it is longer than any that we write."""
    with open_file(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > MOST_BYTES:
            raise OSError(f"it has {size} bytes, more than {MOST_BYTES}")
        return file.read()


def has_right_length(path: Path) -> bool:
    """Say whether a file is as long as it says itself, or no longer than its kind can be."""
    if path.suffix != ".safetensors":
        return path.stat().st_size <= MOST_BYTES
    with open_file(path) as file:
        length = int.from_bytes(file.read(8), "little")
        try:
            header = json.loads(file.read(min(length, 2**24)))
            ends = [part["data_offsets"][1] for name, part in header.items() if name[:2] != "__"]
            return bool(path.stat().st_size == 8 + length + max(ends, default=0))
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
            return False


def sha256(path: Path) -> str:
    """Return the hash of a file's content."""
    with open_file(path) as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


# --- locks ----------------------------------------------------------------------------------------


class Held(NamedTuple):
    """A folder that this process has locked."""

    place: Path
    file: TextIO

    def check(self) -> None:
        """Raise an error if the folder is not the one that was locked."""
        if not _is_of(self.file, self.place):
            raise CannotWrite(
                f"{self.place} was deleted or moved while the trial was running (its lock is new)"
            )


@contextmanager
def lock(place: Path, patience: float = MOMENT) -> Iterator[Held]:
    """Lock a folder for this process; the system releases it when the process ends.

    patience: how many seconds to wait for another process to release it.
    """
    deadline = time.monotonic() + patience
    while (held := _taken(place)) is None:
        if time.monotonic() >= deadline:
            raise InUse(f"{place} is in use by another process; wait for it to end")
        time.sleep(0.2)
    with held:
        yield Held(place, held)


def _taken(place: Path) -> TextIO | None:
    """Return the lock file of a folder, locked; None if another process has it."""
    file = _lock_file(place)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _is_of(file, place):  # else the folder was replaced before it was locked
            return file
    except BlockingIOError:
        pass
    except OSError as problem:
        file.close()
        raise CannotWrite(
            f"{place} cannot be locked ({problem.strerror}): its file system has no flock; use"
            " another --out"
        ) from None
    file.close()
    return None


def _is_of(file: TextIO, place: Path) -> bool:
    """Say whether an open lock file is still that of a folder."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), os.lstat(place / ".lock"))
    except OSError:
        return False


def is_locked(place: Path) -> bool:
    """Say whether a process has locked a folder."""
    try:
        with open(_opened(place / ".lock", os.O_RDONLY)) as held:
            fcntl.flock(held, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except (OSError, UserError):
        return False
    return False


def _lock_file(place: Path) -> TextIO:
    try:
        place.mkdir(parents=True, exist_ok=True)
        return open(_opened(place / ".lock", os.O_RDWR | os.O_CREAT), "r+")
    except OSError as problem:
        reason = f"{problem.strerror}: {problem.filename}"
        raise CannotWrite(f"cannot write to {place} ({reason}); use another --out") from None


def _opened(path: Path, flags: int) -> int:
    """Open a lock without changing it, following no link and waiting for no pipe."""
    try:
        handle = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
    except OSError as problem:
        if problem.errno == errno.ELOOP:
            refuse_link(path)
        raise
    if stat.S_ISREG(os.fstat(handle).st_mode):
        return handle
    os.close(handle)
    raise UserError(f"{path} is not a file; remove it")
