"""A report that is written again and again while a sweep runs, as a second live view."""

import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from fedgps_ray.errors import UserError
from fedgps_ray.results import files

SECONDS = 3.0  # between two looks at the folders
RELOAD = 5  # seconds after which the page in the browser loads itself again
SHARE = 5  # writing takes at most one part in so many of the time
LIVE = "live.json"
WATCHED = ("experiment.json", LIVE, "trials/*/trial.json", "trials/*/rounds.parquet")
WAITING = ("running", "new")  # of a trial that is not part of a sweep

Stamp = frozenset[tuple[str, int]]
Tell = Callable[[str], None]


def keep_writing(
    folders: Sequence[Path],
    write: Callable[[int], Path],
    tell: Tell,
    pause: Callable[[float], None] = time.sleep,
) -> Path:
    """Write the page whenever results have changed, until all have ended or Ctrl-C is pressed.

    write: takes the seconds after which the page reloads; the last time 0, for the whole report.
    """
    seen: Stamp = frozenset()
    try:
        while not all(map(has_ended, folders)):
            now, began = stamp(folders), time.monotonic()
            if now != seen:
                seen = now
                _attempt(write, tell)
            pause(max(SECONDS, SHARE * (time.monotonic() - began)))
    except KeyboardInterrupt:
        tell("no longer following; writing the whole report")
    return write(0)


def _attempt(write: Callable[[int], Path], tell: Tell) -> None:
    """Write the page, or say why there is none yet; the next look may find more."""
    try:
        tell(f"following: {write(RELOAD)} (Ctrl-C ends this)")
    except UserError as problem:
        tell(f"waiting: {problem}")


def stamp(folders: Iterable[Path]) -> Stamp:
    """Return the files that results are read from, and when each was written."""
    return frozenset((str(path), _written(path)) for folder in folders for path in _watched(folder))


def _watched(folder: Path) -> list[Path]:
    """Return the files of a sweep, of a folder of sweeps, or of one trial."""
    places = [place for name in WATCHED for place in (name, f"*/{name}")]
    return [path for place in [*places, "*.parquet", "trial.json"] for path in folder.glob(place)]


def _written(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0  # it was replaced just now; the next look sees it


def has_ended(folder: Path) -> bool:
    """Say whether nothing goes on in a folder any more: its sweeps say so, or else its trials."""
    sweeps = [path for place in (LIVE, f"*/{LIVE}") for path in folder.glob(place)]
    if sweeps:
        return all(_value(path, "ended") is not None for path in sweeps)
    trials = [path for path in _watched(folder) if path.name == "trial.json"]
    statuses = [_value(path, "status") for path in trials]
    return bool(statuses) and not any(status in (*WAITING, None) for status in statuses)


def _value(path: Path, name: str) -> object:
    """Return one value of a JSON file; None if it cannot be read or was changed."""
    try:
        return files.read_json(path).get(name)
    except (OSError, ValueError):
        return None
