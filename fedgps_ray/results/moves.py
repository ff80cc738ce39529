"""Trial folders that are moved or replaced as a whole; whoever does that holds their lock."""

import contextlib
import itertools
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from fedgps_ray.errors import CannotWrite
from fedgps_ray.results import files

QUARANTINE = "quarantine"


def aside(folder: Path, where: Path) -> Path:
    """Move a trial to the quarantine, under a name that is free, and return where it is now."""
    for path in (folder.parent, folder):
        files.refuse_link(path)
    with files.lock(folder):
        return moved(folder, where)


def moved(folder: Path, where: Path) -> Path:
    """Move a folder into another one, under a name that is free, and return where it is now."""
    files.folder(where)
    names = (where / f"{folder.name}-{number}" for number in itertools.count(1))
    free = next(path for path in names if not path.exists() and not path.is_symlink())
    return folder.rename(free)


def replace(folder: Path, fresh: Path, keep: bool) -> None:
    """Put a fresh folder in the place of a locked one, which stays locked.

    keep: leave what was there in the quarantine.
    """
    quarantine = folder.parent.parent / QUARANTINE
    try:
        with contextlib.suppress(OSError):  # some file systems have no hard links
            os.link(folder / ".lock", fresh / ".lock")
        old = moved(folder, quarantine)
        fresh.rename(folder)
    except OSError as problem:
        raise CannotWrite(f"cannot write {folder}: {problem.strerror or problem}") from None
    if keep:
        (old / ".lock").unlink(missing_ok=True)
        return
    shutil.rmtree(old, ignore_errors=True)
    with contextlib.suppress(OSError):  # there are others in it
        quarantine.rmdir()


@contextlib.contextmanager
def draft(folder: Path, kind: str) -> Iterator[Path]:
    """Make a place for a fresh folder, under a hidden name: never there in part.

    It has the trial's own name inside a hidden folder, so that it can be read as a trial.
    """
    hidden = folder.with_name(f".{folder.name}.{kind}")
    files.refuse_link(hidden)
    shutil.rmtree(hidden, ignore_errors=True)
    try:
        yield files.folder(hidden / folder.name)
    finally:
        shutil.rmtree(hidden, ignore_errors=True)
