"""Settings to a TrialSpec; files and folders are found, hashed, and named by their content."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedgps_ray.data import datasets
from fedgps_ray.identity import SELECTORS, Table
from fedgps_ray.spec import TrialSpec, trial_spec


def resolve(values: Mapping[str, Any], *folders: Path) -> tuple[TrialSpec, dict[str, str]]:
    """Return the spec, and where the files and folders lie that it names by content.

    A relative path is looked for in the folders in turn, by default in the current one.
    """
    values, files = dict(values), {}
    for key in ("dataset", "surrogate"):
        table = _table(key, values.get(key))
        if (given := _given_path(key, table, folders)) is not None:
            path = _located(given, folders)
            described = datasets.own_table(path)
            if key == "surrogate":
                described = {"kind": "file", **_without_name(described)}
            values[key] = table | described
            files[described["sha256"]] = str(path)
    return trial_spec(**values), files


def _table(key: str, value: object) -> Table:
    return dict(value) if isinstance(value, Mapping) else {SELECTORS[key]: value}


def _without_name(described: dict[str, str]) -> dict[str, str]:
    return {key: value for key, value in described.items() if key != "name"}


def _given_path(key: str, table: Mapping[str, Any], folders: tuple[Path, ...]) -> str | None:
    """Return the path that a table names, either in place of a name or as its file."""
    name = str(table.get(SELECTORS[key]))
    if key == "surrogate":
        return name if name.endswith(".npz") else None
    if name in datasets.DATASETS:
        return str(table["file"]) if "file" in table and "sha256" not in table else None
    is_folder = ":" not in name and _located(name, folders).is_dir()
    return name if datasets.is_path(name) or is_folder else None


def _located(name: str, folders: tuple[Path, ...]) -> Path:
    places = [(folder / Path(name).expanduser()).resolve() for folder in folders or (Path(),)]
    return next((place for place in places if place.exists()), places[0])
