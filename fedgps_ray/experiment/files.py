"""Settings to a TrialSpec; .npz files are found, hashed, and named by their content."""

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedgps_ray.data import datasets
from fedgps_ray.identity import SELECTORS
from fedgps_ray.spec import TrialSpec, trial_spec

FILE_KINDS = {"dataset": "npz", "surrogate": "file"}


def resolve(values: Mapping[str, Any], *folders: Path) -> tuple[TrialSpec, dict[str, str]]:
    """Return the spec, and where the .npz files lie that it names by content.

    A relative path is looked for in the folders in turn, by default in the current one.
    """
    values, files = dict(values), {}
    for key, kind in FILE_KINDS.items():
        table = _table(key, values.get(key))
        name = str(table.get(SELECTORS[key]))
        if name.endswith(".npz"):
            path = _located(name, folders)
            file = _hashed(path, path.stat().st_mtime_ns if path.is_file() else 0)
            content = {"file": file.file, "sha256": file.sha256}
            values[key] = table | {SELECTORS[key]: kind} | content
            files[file.sha256] = str(path)
    return trial_spec(**values), files


def _table(key: str, value: Any) -> dict[str, Any]:
    return dict(value) if isinstance(value, Mapping) else {SELECTORS[key]: value}


def _located(name: str, folders: tuple[Path, ...]) -> Path:
    places = [(folder / Path(name).expanduser()).resolve() for folder in folders or (Path(),)]
    return next((place for place in places if place.is_file()), places[0])


@functools.cache
def _hashed(path: Path, modified: int) -> datasets.Npz:
    """Hash a file once for all cells; it is hashed again after a change."""
    return datasets.npz_spec(path)
