"""The user's own record of outside code: what was named on a command line or in Python.

A results folder can ask for code, but only this record says which code is the user's. It lies in
$FEDGPS_RAY_STATE, or where the system keeps what programs note for a user.
"""

import contextlib
import fcntl
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from fedgps_ray.references.code import Code

NAME = "own_code.json"
MOST = 10_000  # entries; the oldest are forgotten first
Entry = dict[str, str]

_NOTED: set[tuple[Path, str]] = set()  # by this process: a sweep names the same code in each trial


def note(code: Code, file: Path | None) -> None:
    """Remember code that the user named; where nothing can be written, nothing is remembered."""
    folder = _folder()
    if folder is None or (file is None and code.package is None):
        return
    place = {} if code.package is not None else {"file": str(file)}
    entry = code.table | place
    key = (folder, json.dumps(entry))
    if key not in _NOTED:
        _NOTED.add(key)
        with contextlib.suppress(OSError):
            _add(folder, entry)


def is_noted(code: Code) -> bool:
    """Say whether the user has named this very code."""
    return bool(_entries(code))


def own_files(code: Code) -> list[Path]:
    """Return where the user had this very code, the latest place first."""
    return [Path(entry["file"]) for entry in reversed(_entries(code)) if "file" in entry]


def _entries(code: Code) -> list[Entry]:
    folder = _folder()
    known = [] if folder is None else _read(folder / NAME)
    return [one for one in known if {k: v for k, v in one.items() if k != "file"} == code.table]


def _folder() -> Path | None:
    """Return the folder of the record; a relative path would depend on the current folder."""
    given, shared = (Path(os.environ.get(n, "")) for n in ("FEDGPS_RAY_STATE", "XDG_STATE_HOME"))
    home = Path(os.path.expanduser("~"))
    places = (given, shared / "fedgps-ray", home / ".local" / "state" / "fedgps-ray")
    return next((place for place in places if place.is_absolute()), None)


def _read(path: Path) -> list[Entry]:
    """Return all entries; a damaged record counts as empty."""
    try:
        entries = json.loads(path.read_bytes())["code"]
        return [entry for entry in entries if all(isinstance(v, str) for v in entry.values())]
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return []


def _add(folder: Path, entry: Entry) -> None:
    """Write the record with one more entry, whole or not at all."""
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
    with _locked(folder):
        entries = _read(folder / NAME)
        if entry in entries:
            return
        handle, beside = tempfile.mkstemp(".part", f".{NAME}.", folder)  # of mode 0600
        with open(handle, "w") as file:
            json.dump({"code": [*entries, entry][-MOST:]}, file, indent=1)
        os.replace(beside, folder / NAME)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Let one process at a time add to the record, where the file system can lock."""
    with open(os.open(folder / f".{NAME}.lock", os.O_RDWR | os.O_CREAT, 0o600), "r+") as held:
        with contextlib.suppress(OSError):
            fcntl.flock(held, fcntl.LOCK_EX)
        yield
