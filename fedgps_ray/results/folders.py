"""Results folders: which there are below a folder, and what is said where there are none."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path

from fedgps_ray.errors import UserError, nearest

PLAN = "experiment.json"  # what a sweep was to run
LIVE = "live.json"  # how far it is
TRIALS = "trials/*/trial.json"
DEPTH = 3
NAMED = 5  # of the folders found


def check_folder(folder: Path) -> None:
    """Refuse what is not a folder, or does not exist, naming the one that may be meant."""
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is not a folder")
    if not folder.is_dir():
        raise UserError(f"there is no folder {folder}.{_near(folder)}")


def check_target(folder: Path) -> None:
    """Refuse a folder that cannot be written to or made."""
    existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not existing.is_dir():
        raise UserError(f"cannot write to {folder}: {existing} is not a folder; use another --out")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise UserError(f"cannot write to {folder}: {existing} is not writable; use another --out")


def check_file(path: Path) -> None:
    """Refuse what is not a file, or does not exist, naming the one that may be meant."""
    if path.exists() and not path.is_file():
        raise UserError(f"{path} is not a file")
    if not path.is_file():
        raise UserError(f"there is no file {path}.{_near(path)}")


def _near(path: Path) -> str:
    return nearest(str(path), map(str, path.parent.glob("*")))


def has_results(folder: Path) -> bool:
    """Say whether a folder holds a sweep, single runs, or is a trial's own."""
    own = (PLAN, "trial.json")
    return any((folder / name).exists() for name in own) or any(_found(folder, TRIALS))


def listed(folder: Path, pattern: str) -> list[Path]:
    """Return the folders of the files that match a pattern, without incomplete copies.

    A folder that may not be looked into is among them: whoever reads it says so.
    """
    folders = sorted(_found(folder, pattern), key=lambda each: each.parts)
    return [trial for trial in folders if not trial.name.startswith(".")]


def _found(folder: Path, pattern: str) -> Iterator[Path]:
    *steps, name = pattern.split("/")
    places: Iterator[Path] = iter([folder])
    for step in steps:
        places = _inside(places, step)
    return (place for place in places if may_have(place / name))


def _inside(places: Iterator[Path], step: str) -> Iterator[Path]:
    for place in places:
        yield from ((place / name for name in _names(place)) if step == "*" else [place / step])


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as problem:
        raise UserError(f"{folder} cannot be read: {problem.strerror}") from None


def may_have(path: Path) -> bool:
    """Say whether a file is there, or may be in a folder that may not be looked into."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as problem:
        return problem.errno == errno.EACCES
    return True


def has_lost_plan(folder: Path) -> bool:
    """Say whether a folder is a sweep's and has no experiment.json any more."""
    return (folder / LIVE).exists() and not (folder / PLAN).exists()


def below(folder: Path, depth: int = DEPTH) -> Iterator[Path]:
    """Yield the results folders below a folder that may be read; it need not be one itself."""
    for inner in sorted(filter(_is_open, folder.iterdir())):
        if has_results(inner):
            yield inner
        elif depth > 1:
            yield from below(inner, depth - 1)


def _is_open(folder: Path) -> bool:
    """Say whether it is a folder that may be looked into."""
    try:
        os.stat(folder / ".")
        os.listdir(folder)
    except OSError:
        return False
    return True


def no_results(folder: Path) -> UserError:
    """Return what to say about a folder without results, with those below it."""
    paths = [str(path) for path in below(folder)]
    if not paths:
        return UserError(f"no trials in {folder}: expected trials/*/trial.json there")
    more = f" and {len(paths) - NAMED} more" if len(paths) > NAMED else ""
    return UserError(f"no trials in {folder} itself; below it: {', '.join(paths[:NAMED])}{more}")
