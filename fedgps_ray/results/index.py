"""An index of a results folder: what each trial.json says, in short, all in one file.

It saves time and decides nothing. What it says of a trial counts only while trial.json is the very
file that it was taken from: same inode and size, not written and not touched since (the system sets
the time of the last change of an inode, so no archive brings a valid one along). All else is read
from trial.json, and an index that is missing, damaged or odd is made again.
"""

import contextlib
import hashlib
import json
import os
import stat
import time
from pathlib import Path
from typing import Any, NamedTuple

from fedgps_ray import identity
from fedgps_ray.errors import UserError
from fedgps_ray.results import files, schema
from fedgps_ray.results.read import (
    CONTROL,
    DAMAGED,
    Row,
    check_summary,
    columns,
    is_older,
    is_sealed,
    read_trial,
)
from fedgps_ray.units import printable

FILE = "index.jsonl"
VERSION = 1
WORTH = 100  # trials that had to be read: with fewer, the index is not written
LONGEST = 8192  # bytes of an entry
SETTLED = 2.0  # seconds without a change after which a file has a stamp of its own
COLUMNS = {name for name, _ in schema.SPEC}


class Stamp(NamedTuple):
    """What changes with every change of a file."""

    written_ns: int
    touched_ns: int
    size: int
    inode: int

    def is_settled(self) -> bool:
        """Say whether a later change is sure to have another stamp."""
        return time.time() - max(self.written_ns, self.touched_ns) / 1e9 > SETTLED


class Entry(NamedTuple):
    """What trial.json said when it had a stamp."""

    stamp: Stamp
    gist: Row


class Index:
    """Knows what the trials of a results folder say; reads again what has changed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._entries: dict[str, Entry] | None = None
        self._news = 0

    def gist(self, trial: Path) -> Row:
        """Return in short what trial.json of a trial of this folder says, or raise UserError.

        Its status, summary, error and reason of divergence, its settings as columns, whether it is
        sealed and whether its files have hashes.
        """
        stamp = stamp_of(trial)
        known = self._known().get(trial.name)
        if stamp is not None and known is not None and known.stamp == stamp:
            return known.gist
        return self.note(trial, stamp, read_trial(trial))

    def note(self, trial: Path, stamp: Stamp | None, info: Row) -> Row:
        """Take in what was read from trial.json after it had a stamp; return it in short."""
        gist = in_short(trial, info)
        self._known().pop(trial.name, None)
        if stamp is not None and stamp.is_settled() and not is_older(info):
            self._known()[trial.name] = Entry(stamp, gist)
            self._news += 1
        return gist

    def save(self) -> None:
        """Write the index if much of it is new and the folder can be written to."""
        if self._news < WORTH:
            return
        entries = self._known().items()
        lines = [json.dumps([name, entry.stamp, entry.gist]) for name, entry in entries]
        text = "".join(line + "\n" for line in lines)
        head = json.dumps({"version": VERSION, "sha256": _sha256(text)})
        with contextlib.suppress(UserError):
            files.write(
                self.folder / FILE, lambda beside: _put(beside, f"{head}\n{text}"), durable=False
            )
            self._news = 0

    def _known(self) -> dict[str, Entry]:
        if self._entries is None:
            self._entries = _load(self.folder)
        return self._entries


def stamp_of(trial: Path) -> Stamp | None:
    """Return the stamp of a trial's trial.json; None if it is behind a link, or not there."""
    try:
        if not stat.S_ISDIR(os.lstat(trial).st_mode):
            return None
        known = os.lstat(trial / "trial.json")
    except OSError:
        return None
    if not stat.S_ISREG(known.st_mode):
        return None
    return Stamp(known.st_mtime_ns, known.st_ctime_ns, known.st_size, known.st_ino)


def in_short(trial: Path, info: Row) -> Row:
    """Return what an index says of a trial."""
    told = {key: info[key] for key in ("error", "diverged") if info.get(key) is not None}
    return {
        "status": info["status"],
        "summary": info.get("summary", {}),
        **told,
        "columns": columns(trial, info),
        "is_sealed": is_sealed(info),
        "has_files": info["status"] in schema.DONE and "files" in info,
    }


def _put(path: Path, text: str) -> None:
    path.write_text(text)


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


# --- reading --------------------------------------------------------------------------------------


def _load(folder: Path) -> dict[str, Entry]:
    """Return the entries of an index; none if anything is wrong with it."""
    try:
        head, _, text = _text(folder).partition("\n")
        if json.loads(head) != {"version": VERSION, "sha256": _sha256(text)}:
            return {}
        return dict(_entry(json.loads(line)) for line in text.splitlines())
    except (*DAMAGED, UserError):
        return {}


def _text(folder: Path) -> str:
    """Return the text of an index: a file, no link, and not longer than its trials can make it."""
    handle = os.open(folder / FILE, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with open(handle, encoding="utf-8") as file:
        known = os.fstat(handle)
        most = LONGEST * (1 + len(os.listdir(folder / "trials")))
        if not stat.S_ISREG(known.st_mode) or known.st_size > most:
            raise ValueError("it is no index")
        return file.read()


def _entry(line: Any) -> tuple[str, Entry]:
    """Return an entry whose values are of the kinds that trial.json is allowed to have."""
    name, numbers, gist = line
    settings, told = gist["columns"], [gist.get("error", ""), gist.get("diverged", "")]
    is_right = (
        identity.ID.fullmatch(name)
        and all(type(number) is int for number in numbers)
        and gist["status"] in schema.STATUSES
        and all(isinstance(text, str) for text in told)
        and all(isinstance(gist[key], bool) for key in ("is_sealed", "has_files"))
        and set(settings) == COLUMNS
        and settings["trial_id"] == name
        and all(map(_is_plain, settings.values()))
    )
    if not is_right:
        raise ValueError("an entry is not of this version")
    check_summary(gist)
    return name, Entry(Stamp(*numbers), gist)


def _is_plain(value: object) -> bool:
    if isinstance(value, str):
        return printable(value) == value and not CONTROL.search(value)
    return value is None or isinstance(value, int | float)
