"""Results folders: which there are below a folder, and what is said where there are none."""

from collections.abc import Iterator
from pathlib import Path

from fedgps_ray.errors import UserError, nearest

PLAN = "experiment.json"  # what a sweep was to run
LIVE = "live.json"  # how far it is
DEPTH = 3
NAMED = 5  # of the folders found


def check_folder(folder: Path) -> None:
    """Refuse a folder that does not exist, naming the one that may be meant."""
    if not folder.is_dir():
        raise UserError(f"there is no folder {folder}.{_near(folder)}")


def check_file(path: Path) -> None:
    """Refuse a file that does not exist, naming the one that may be meant."""
    if not path.is_file():
        raise UserError(f"there is no file {path}.{_near(path)}")


def _near(path: Path) -> str:
    return nearest(str(path), map(str, path.parent.glob("*")))


def has_results(folder: Path) -> bool:
    """Say whether a folder holds a sweep, single runs, or is a trial's own."""
    own = (PLAN, "trial.json")
    return any((folder / name).exists() for name in own) or any(folder.glob("trials/*/trial.json"))


def has_lost_plan(folder: Path) -> bool:
    """Say whether a folder is a sweep's and has no experiment.json any more."""
    return (folder / LIVE).exists() and not (folder / PLAN).exists()


def below(folder: Path, depth: int = DEPTH) -> Iterator[Path]:
    """Yield the results folders below a folder, which need not be one itself."""
    for inner in sorted(path for path in folder.iterdir() if path.is_dir()):
        if has_results(inner):
            yield inner
        elif depth > 1:
            yield from below(inner, depth - 1)


def no_results(folder: Path) -> UserError:
    """Return what to say about a folder without results, with those below it."""
    paths = [str(path) for path in below(folder)]
    if not paths:
        return UserError(f"no trials in {folder}: expected trials/*/trial.json there")
    more = f" and {len(paths) - NAMED} more" if len(paths) > NAMED else ""
    return UserError(f"no trials in {folder} itself; below it: {', '.join(paths[:NAMED])}{more}")
