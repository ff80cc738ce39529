"""The files of a trial's checkpoints, found and read without PyTorch."""

import re
from pathlib import Path

from fedgps_ray.identity import Table
from fedgps_ray.results import files

FILE = re.compile(r"[\w-]+\.safetensors")  # of a checkpoint's own folder and no other
KEPT = re.compile(rf"checkpoint/(round-(\d{{6,}})\.json|{FILE.pattern})")  # within a trial's folder
MOST_BYTES = 20 * 2**20  # of a checkpoint that is kept when its trial has ended, or
MOST_MODELS = 2  # ... this many times the room of the model
MOST_FILES = 50


def manifests(folder: Path) -> list[Path]:
    """Return the manifests, the newest first; from a million rounds on, names are longer."""
    paths = folder.glob("round-*.json")
    return sorted(paths, key=lambda path: (len(path.name), path.name), reverse=True)


def read_manifest(path: Path) -> Table:
    """Return a manifest, checked as far as the names of its files and the number of its rounds."""
    manifest = files.read_json(path)
    rounds_done = manifest["rounds_done"]
    if not isinstance(rounds_done, int) or path.stem != f"round-{rounds_done:06d}":
        raise ValueError(f"rounds_done is {rounds_done!r}")
    for name in manifest["files"]:
        if not FILE.fullmatch(name):
            raise ValueError(f"it names a file {name!r}")
    return manifest


def worth_keeping(trial: Path, rounds_done: int) -> list[Path]:
    """Return the files from which the last rounds of a trial can be trained again.

    They are those of its newest checkpoint before the last round, unless they take much room.
    """
    for path in manifests(trial / "checkpoint"):
        manifest = read_manifest(path)
        if manifest["rounds_done"] < rounds_done:
            paths = [path, *(path.with_name(name) for name in sorted(manifest["files"]))]
            return paths if _are_small(paths, trial / "model.safetensors") else []
    return []


def _are_small(paths: list[Path], model: Path) -> bool:
    model_bytes = model.stat().st_size if model.exists() else 0
    most = max(MOST_BYTES, MOST_MODELS * model_bytes)
    return len(paths) <= MOST_FILES and sum(path.stat().st_size for path in paths) <= most
