"""Results folders as tidy frames; what cannot be read is left out and listed in attrs."""

import contextlib
import functools
import itertools
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import pyarrow as pa

from fedgps_ray.errors import UserError
from fedgps_ray.identity import canonical
from fedgps_ray.results import schema
from fedgps_ray.results.read import (
    DAMAGED,
    check,
    columns,
    headless,
    is_sealed,
    joined,
    listed,
    read_rows,
    read_trial,
)
from fedgps_ray.results.summary import summary

NOTHING = summary([])  # of a trial that has not begun
PLACES = ("trial.json", "trials/*/trial.json", "*/trials/*/trial.json")
SHOWN = {  # by the columns of a setting, or by method, scenario and seed
    *(name for name, _ in schema.SPEC),
    *("dataset.name", "dataset.file", "method.name"),
    *("partition.kind", "partition.alpha", "partition.classes_per_client"),
}
Stamps = tuple[tuple[str, int, int, int, int], ...]
UNREADABLE = (pa.ArrowException, *DAMAGED)


def trials(*folders: Path) -> pd.DataFrame:
    """Return one row per trial: id, status, settings, summary and outcome.

    attrs["problems"] says what was left out and why, attrs["not_sealed"] which trials have no
    hashes by which changes to their files could be noticed.
    """
    places, problems = _sound([*_trial_folders(folders), *itertools.chain(*map(headless, folders))])
    read, unreadable = _each(_trial, places)
    if not read:
        raise UserError("\n".join([*problems, *unreadable]))
    frame = _told(pd.DataFrame(_with_variants(read)), [*problems, *unreadable])
    frame.attrs["not_sealed"] = [trial.row["trial_id"] for trial in read if not trial.is_sealed]
    return frame


def _sound(places: list[Path]) -> tuple[list[Path], list[str]]:
    """Return the trials that are as they were written, and the problems with the others."""
    with ThreadPoolExecutor() as pool:
        found = list(pool.map(lambda place: _checked(place, _stamps(place)), places))
    sound = [place for place, problems in zip(places, found, strict=True) if not problems]
    return sound, [problem for problems in found for problem in problems]


@functools.lru_cache(maxsize=100_000)
def _checked(folder: Path, stamps: Stamps) -> tuple[str, ...]:
    """Return what is wrong with a trial; found once for all frames, until a file changes."""
    return tuple(check(folder))


def _stamps(folder: Path) -> Stamps:
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        known = [(entry.name, entry.stat()) for entry in entries]
        return tuple((n, s.st_mtime_ns, s.st_ctime_ns, s.st_size, s.st_ino) for n, s in known)
    return ()


def rounds(*folders: Path) -> pd.DataFrame:
    """Return one row per trial and round, with the settings in every row."""
    return _rows("rounds.parquet", schema.ROUNDS, folders)


def clients(*folders: Path) -> pd.DataFrame:
    """Return one row per trial, round and client, with the settings in every row."""
    return _rows("clients.parquet", schema.CLIENTS, folders)


def partitions(*folders: Path) -> pd.DataFrame:
    """Return one row per trial, client and class, with the settings in every row."""
    return _rows("partition.parquet", schema.PARTITION, folders)


def _told(frame: pd.DataFrame, problems: list[str]) -> pd.DataFrame:
    frame.attrs["problems"] = problems
    return frame


# --- trial.json -----------------------------------------------------------------------------------


class _Trial(NamedTuple):
    """A row, all settings of the trial under dotted names, and those that are neutral."""

    row: dict[str, Any]
    settings: dict[str, Any]
    neutral: dict[str, Any]
    is_sealed: bool


def _trial(folder: Path) -> _Trial:
    info = read_trial(folder)
    known = columns(folder, info)
    row = {
        "trial_id": known["trial_id"],
        "status": info["status"],
        **known,
        **NOTHING,
        **info.get("summary", {}),
        "error": info.get("error"),
        "diverged": info.get("diverged"),
        "partition_sha256": info.get("partition_sha256"),
        "versions": json.dumps(info["versions"]),
        "model_bytes": _model_bytes(folder / "model.safetensors"),
        "folder": str(folder),
    }
    settings, given = _flat(info["spec"]), _flat(info["identity"])
    neutral = {name: value for name, value in settings.items() if name not in given}
    return _Trial(row, settings, neutral, is_sealed(info))


def _flat(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {
        (f"{name}.{key}" if key else name): value
        for name, part in settings.items()
        for key, value in (part if isinstance(part, dict) else {"": part}).items()
    }


def _with_variants(trials_: list[_Trial]) -> Iterator[dict[str, Any]]:
    """Yield each row with all settings that have no column of their own.

    A setting that was added after a trial ran has its neutral value, known from other trials.
    """
    neutral = {
        (_kind(trial, name), name): value
        for trial in trials_
        for name, value in trial.neutral.items()
    }
    for trial in trials_:
        later = {
            name: value
            for (kind, name), value in neutral.items()
            if name not in trial.settings and kind == _kind(trial, name)
        }
        variant = {**trial.settings, **later}
        told = {name: value for name, value in variant.items() if name not in SHOWN}
        yield {**trial.row, "variant": json.dumps(told)}


def _kind(trial: _Trial, name: str) -> Any:
    """Return the method, data set or kind that a setting belongs to."""
    part = name.partition(".")[0]
    return trial.settings.get(f"{part}.name", trial.settings.get(f"{part}.kind"))


def _model_bytes(path: Path) -> int | None:
    """Return the size of a model's tensors: a safetensors file less its header."""
    if not path.exists():
        return None
    with path.open("rb") as file:
        header = int.from_bytes(file.read(8), "little")
    return path.stat().st_size - 8 - header


# --- rows -----------------------------------------------------------------------------------------


def _rows(name: str, columns_: pa.Schema, folders: Iterable[Path]) -> pd.DataFrame:
    """Return the rows that all trials have so far; a trial may have none yet."""
    places, changed = _sound([*_trial_folders(folders), *itertools.chain(*map(headless, folders))])
    paths = [folder / name for folder in places]
    tables, unreadable = _each(
        lambda path: _with_settings(path, columns_), [path for path in paths if path.exists()]
    )
    problems = [*changed, *unreadable]
    if problems and not tables:
        raise UserError("\n".join(problems))
    table = joined(tables, columns_)
    return _told(table.to_pandas(types_mapper=_map_as_arrow), problems)


def _with_settings(path: Path, columns_: pa.Schema) -> pa.Table:
    """Return the rows of a trial; settings that they lack are taken from its trial.json."""
    table = read_rows(path, columns_)
    if table["dataset"].null_count < len(table):
        return table
    for name, value in columns(path.parent, read_trial(path.parent)).items():
        place = table.column_names.index(name)
        field = table.schema.field(place)
        table = table.set_column(place, field, pa.array([value] * len(table), field.type))
    return table


def _map_as_arrow(kind: pa.DataType) -> pd.ArrowDtype | None:
    """Leave maps to Arrow: as Python objects they take longer than all other columns."""
    return pd.ArrowDtype(kind) if pa.types.is_map(kind) else None


def _each(read: Callable[[Path], Any], paths: list[Path]) -> tuple[list[Any], list[str]]:
    """Read all paths; return what was read, and the problems with the others."""

    def attempt(path: Path) -> Any:
        try:
            return read(path)
        except UserError as problem:
            return problem
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
    """Return the folder of each trial; if it is in several, the one that got furthest."""
    places = [path for folder in folders for path in _trials_in(folder)]
    return _furthest(_furthest(places, lambda path: path.resolve().name), _settings)


def _furthest(places: Iterable[Path], key: Callable[[Path], str]) -> list[Path]:
    """Return one folder for each key."""
    copies: dict[str, list[Path]] = {}
    for path in places:
        copies.setdefault(key(path), []).append(path)
    return [paths[0] if len(paths) == 1 else max(paths, key=_progress) for paths in copies.values()]


def _settings(folder: Path) -> str:
    """Return all settings of a trial: the same under the id that an older version gave it."""
    try:
        return canonical(json.loads((folder / "trial.json").read_text())["spec"])
    except UNREADABLE:
        return str(folder)


def _trials_in(folder: Path) -> list[Path]:
    """Return the trials of an experiment, of a folder of experiments, or the one trial itself."""
    for place in PLACES:
        if trials_there := listed(folder, place):
            return trials_there
    raise UserError(f"no trials in {folder}: expected trials/*/trial.json there")


def _progress(folder: Path) -> tuple[bool, int, int]:
    try:
        info = read_trial(folder)
        done = info.get("summary", NOTHING)["rounds_done"]
        return info["status"] in schema.ENDED, done, info["schema_version"]
    except UNREADABLE:
        return False, -1, 0
