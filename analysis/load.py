"""Results folders to tidy frames: what cannot be read is left out and told in attrs["problems"]."""

import json
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from fedgps_ray.errors import UserError
from fedgps_ray.results import schema
from fedgps_ray.results.summary import summary

NOTHING = summary([])  # of a trial that has not begun
PLACES = ("trial.json", "trials/*/trial.json", "*/trials/*/trial.json")
SPEC_COLUMNS = [name for name, _ in schema.SPEC]
SHOWN = {  # by the columns of a setting, or by method, scenario and seed
    *SPEC_COLUMNS,
    *("dataset.name", "dataset.file", "method.name"),
    *("partition.kind", "partition.alpha", "partition.classes_per_client"),
}
ENDED = ("finished", "diverged")
UNREADABLE = (pa.ArrowException, OSError, ValueError, TypeError, LookupError, AttributeError)


def trials(*folders: Path) -> pd.DataFrame:
    """Return one row a trial: id, status, settings, summary and how it ended."""
    rows, problems = _each(_trial, _trial_folders(folders))
    if not rows:
        raise UserError("\n".join(problems))
    return _told(pd.DataFrame(rows), problems)


def rounds(*folders: Path) -> pd.DataFrame:
    """Return one row a (trial, round), with the settings in every row."""
    return _rows("rounds.parquet", schema.ROUNDS, folders)


def clients(*folders: Path) -> pd.DataFrame:
    """Return one row a (trial, round, client), with the settings in every row."""
    return _rows("clients.parquet", schema.CLIENTS, folders)


def partitions(*folders: Path) -> pd.DataFrame:
    """Return one row a (trial, client, class), with the settings in every row."""
    return _rows("partition.parquet", schema.PARTITION, folders)


def _told(frame: pd.DataFrame, problems: list[str]) -> pd.DataFrame:
    frame.attrs["problems"] = problems
    return frame


# --- trial.json -----------------------------------------------------------------------------------


def _trial(folder: Path) -> dict[str, Any]:
    info = _read_json(folder)
    spec = info["spec"]
    return {
        "trial_id": info["trial_id"],
        "status": info["status"],
        **_spec_columns(spec, folder),
        **NOTHING,
        **info.get("summary", {}),
        "error": info.get("error"),
        "diverged": info.get("diverged"),
        "partition_sha256": info.get("partition_sha256"),
        "versions": json.dumps(info["versions"]),
        "model_bytes": _model_bytes(folder / "model.safetensors"),
        "variant": json.dumps(_variant(spec)),
        "folder": str(folder),
    }


def _read_json(folder: Path) -> Any:
    return json.loads((folder / "trial.json").read_text())


def _spec_columns(spec: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return the settings as they stand in every row, in the same order."""
    dataset, how, optimizer = spec["dataset"], spec["partition"], spec["optimizer"]
    named = {
        "dataset": dataset.get("file", "").removesuffix(".npz") or dataset["name"],
        "method": spec["method"]["name"],
        "method_options": _method_options(folder / "partition.parquet"),
        "partition": how["kind"],
        "alpha": how.get("alpha"),
        "classes_per_client": how.get("classes_per_client"),
        "lr": optimizer["lr"],
        "weighting": spec["method"].get("weighting"),
        "client_momentum": optimizer["client_momentum"],
    }
    return {name: named.get(name, spec.get(name)) for name in SPEC_COLUMNS if name != "trial_id"}


def _method_options(path: Path) -> str | None:
    """Return which hyperparameters are not the method's defaults: only the rows know those."""
    if not path.exists():
        return None
    column = pq.ParquetFile(path).read_row_group(0, columns=["method_options"])[0]
    return str(column[0].as_py())


def _variant(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return all settings but those that make up a setting, under dotted names."""
    flat = {
        (f"{name}.{key}" if key else name): value
        for name, part in spec.items()
        for key, value in (part if isinstance(part, dict) else {"": part}).items()
    }
    return {name: value for name, value in flat.items() if name not in SHOWN}


def _model_bytes(path: Path) -> int | None:
    """Return the size of a model's tensors: a safetensors file less its header."""
    if not path.exists():
        return None
    with path.open("rb") as file:
        header = int.from_bytes(file.read(8), "little")
    return path.stat().st_size - 8 - header


# --- rows -----------------------------------------------------------------------------------------


def _rows(name: str, columns: pa.Schema, folders: Iterable[Path]) -> pd.DataFrame:
    """Return the rows that all trials have so far; a trial may have none yet."""
    found = [folder / name for folder in _trial_folders(folders)]
    tables, problems = _each(_table, [path for path in found if path.exists()])
    if problems and not tables:
        raise UserError("\n".join(problems))
    table = pa.concat_tables([columns.empty_table(), *tables]).unify_dictionaries()
    return _told(table.to_pandas(types_mapper=_map_as_arrow), problems)


def _table(path: Path) -> pa.Table:
    return pq.ParquetFile(path).read()


def _map_as_arrow(kind: pa.DataType) -> pd.ArrowDtype | None:
    """Leave maps to Arrow: as Python objects they take longer than all other columns."""
    return pd.ArrowDtype(kind) if pa.types.is_map(kind) else None


def _each(read: Callable[[Path], Any], paths: list[Path]) -> tuple[list[Any], list[str]]:
    """Read all paths; return what was read, and what is wrong with the others."""

    def attempt(path: Path) -> Any:
        try:
            return read(path)
        except UNREADABLE as problem:
            return _damaged(path, problem)

    with ThreadPoolExecutor() as pool:
        outcomes = list(pool.map(attempt, paths))
    problems = [str(outcome) for outcome in outcomes if isinstance(outcome, UserError)]
    return [outcome for outcome in outcomes if not isinstance(outcome, UserError)], problems


def _damaged(path: Path, problem: Exception) -> UserError:
    file = path / "trial.json" if path.is_dir() else path
    return UserError(f"{file} is damaged ({problem!r}); move its folder away")


# --- folders --------------------------------------------------------------------------------------


def _trial_folders(folders: Iterable[Path]) -> list[Path]:
    """Return the folder of each trial; of a trial that lies in several, the one furthest on."""
    found: dict[str, list[Path]] = {}
    for folder in folders:
        for path in _trials_in(folder):
            found.setdefault(path.resolve().name, []).append(path)
    return [paths[0] if len(paths) == 1 else max(paths, key=_progress) for paths in found.values()]


def _trials_in(folder: Path) -> list[Path]:
    """Return the trials of an experiment, of a folder of experiments, or the one trial itself."""
    for place in PLACES:
        if paths := sorted(folder.glob(place)):
            return [path.parent for path in paths]
    raise UserError(f"no trials in {folder}: expected trials/*/trial.json there")


def _progress(folder: Path) -> tuple[bool, int]:
    try:
        info = _read_json(folder)
        return info["status"] in ENDED, info.get("summary", NOTHING)["rounds_done"]
    except UNREADABLE:
        return False, -1
