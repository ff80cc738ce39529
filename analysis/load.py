"""Results folders as tidy frames; what cannot be read is left out and listed in attrs."""

import itertools
import json
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import pandas as pd
import pyarrow as pa

from fedgps_ray.errors import UserError
from fedgps_ray.identity import canonical
from fedgps_ray.results import files, schema
from fedgps_ray.results.folders import listed
from fedgps_ray.results.read import (
    DAMAGED,
    Row,
    check_files,
    claim_of,
    columns,
    headless,
    is_older,
    is_sealed,
    joined,
    read_figures,
    read_rows,
    read_trial,
    with_settings,
)
from fedgps_ray.results.summary import summary

NOTHING = summary([])  # of a trial that has not begun
PLACES = ("trial.json", "trials/*/trial.json", "*/trials/*/trial.json")
SHOWN = {  # by the columns of a setting, or by method, scenario and seed
    *(name for name, _ in schema.SPEC),
    *("dataset.name", "dataset.file", "method.name"),
    *("partition.kind", "partition.alpha", "partition.classes_per_client"),
}
UNREADABLE = (pa.ArrowException, *DAMAGED)
AT_ONCE = 250  # trials between two lines of progress
Tell = Callable[[str], None]
Item = TypeVar("Item")
Result = TypeVar("Result")


def silent(_: str) -> None:
    """Say nothing."""


def trials(*folders: Path) -> pd.DataFrame:
    """Return one row per trial: id, status, settings, summary and outcome.

    attrs["problems"] says what was left out and why, attrs["not_sealed"] which trials have no
    hashes by which changes to their files could be noticed.
    """
    return Source(folders).trials()


def rounds(*folders: Path) -> pd.DataFrame:
    """Return one row per trial and round, with the settings in every row."""
    return Source(folders).rounds()


def clients(*folders: Path) -> pd.DataFrame:
    """Return one row per trial, round and client, with the settings in every row."""
    return Source(folders).rows("clients.parquet", schema.CLIENTS)


def partitions(*folders: Path) -> pd.DataFrame:
    """Return one row per trial, client and class, with the settings in every row."""
    return Source(folders).partitions()


class Source:
    """The trials of some folders, each looked for and checked once for all frames."""

    def __init__(self, folders: Sequence[Path], tell: Tell = silent) -> None:
        self.tell = tell
        places = [place for folder in folders for place in _trials_in(folder)]
        found = _in_parallel(_found, places, tell, "trials read")
        chosen = [*_furthest(found), *map(_found, itertools.chain(*map(headless, folders)))]
        self.problems = [problem for each in chosen for problem in each.problems]
        self.found = [each for each in chosen if not each.problems]

    def trials(self) -> pd.DataFrame:
        """Return one row per trial."""
        read, unreadable = _read(_trial, self.found, self.tell, "settings read")
        problems = [*self.problems, *unreadable]
        if not read:
            raise UserError("\n".join(problems))
        frame = _told(pd.DataFrame(_with_variants(read)), problems)
        frame.attrs["not_sealed"] = [trial.row["trial_id"] for trial in read if not trial.is_sealed]
        return frame

    def infos(self) -> dict[str, Row]:
        """Return what trial.json of each trial says, by its folder."""
        return {str(each.folder): each.info for each in self.found}

    def rounds(self, names: Collection[str] | None = None) -> pd.DataFrame:
        """Return one row per trial and round; names: the columns beside the settings, or all."""
        return self.rows("rounds.parquet", schema.ROUNDS, names=names)

    def partitions(self, of: Collection[str] | None = None) -> pd.DataFrame:
        """Return one row per trial, client and class; of: ids of the trials that are wanted."""
        return self.rows("partition.parquet", schema.PARTITION, of)

    def rows(
        self,
        name: str,
        columns_: pa.Schema,
        of: Collection[str] | None = None,
        names: Collection[str] | None = None,
    ) -> pd.DataFrame:
        """Return the rows that all trials have so far; a trial may have none yet."""
        wanted = [each for each in self.found if of is None or each.folder.resolve().name in of]
        there = [each for each in wanted if (each.folder / name).exists()]
        settings, own = columns_.names[: len(schema.SPEC)], columns_.names[len(schema.SPEC) :]
        kept = own if names is None else [each for each in own if each in names]
        tables, unreadable = _read(
            lambda each: _table(each, name, columns_, kept), there, self.tell, f"{name} read"
        )
        problems = [*self.problems, *unreadable]
        if problems and not tables:
            raise UserError("\n".join(problems))
        table = joined(_blocks(tables), columns_)
        if names is not None:
            table = table.select([*settings, *kept])
        return _told(table.to_pandas(types_mapper=_map_as_arrow, use_threads=False), problems)


def _told(frame: pd.DataFrame, problems: list[str]) -> pd.DataFrame:
    frame.attrs["problems"] = problems
    return frame


# --- reading many ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Found:
    """A trial's folder: what trial.json says, unless there are problems with it or its files."""

    folder: Path
    info: Row
    problems: list[str]

    @cached_property
    def columns(self) -> Row:
        """The settings as columns, the same as in its rows."""
        return columns(self.folder, self.info)

    @property
    def is_proven(self) -> bool:
        """Whether its files have just been compared with the hashes of this version."""
        return is_sealed(self.info) and self.info["status"] in schema.DONE


def _found(folder: Path) -> Found:
    try:
        info = read_trial(folder)
    except UserError as problem:
        return Found(folder, {}, [str(problem)])
    except UNREADABLE as problem:
        return Found(folder, {}, [str(_damaged(folder, problem))])
    return Found(folder, info, check_files(folder, info))


def _in_parallel(
    do: Callable[[Item], Result], items: Sequence[Item], tell: Tell, what: str
) -> list[Result]:
    """Do something with all items, in order; say now and then how many are done."""
    starts = range(0, len(items), AT_ONCE)
    done: list[Result] = []
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for part in pool.map(lambda at: list(map(do, items[at : at + AT_ONCE])), starts):
            done.extend(part)
            if len(items) > AT_ONCE:
                tell(f"{len(done):,} of {len(items):,} {what}")
    return done


def _read(
    read: Callable[[Found], Result], found: Sequence[Found], tell: Tell, what: str
) -> tuple[list[Result], list[str]]:
    """Read all trials; return what was read, and the problems with the others."""

    def attempt(each: Found) -> Result | UserError:
        try:
            return read(each)
        except UserError as problem:
            return problem
        except UNREADABLE as problem:
            return _damaged(each.folder, problem)

    outcomes = _in_parallel(attempt, found, tell, what)
    problems = [str(outcome) for outcome in outcomes if isinstance(outcome, UserError)]
    return [outcome for outcome in outcomes if not isinstance(outcome, UserError)], problems


def _damaged(path: Path, problem: Exception) -> UserError:
    file = path / "trial.json" if path.is_dir() else path
    return UserError(f"{file} is damaged ({problem!r}); move its folder away")


# --- trial.json -----------------------------------------------------------------------------------


class _Trial(NamedTuple):
    """A row, all settings of the trial under dotted names, and those that are neutral."""

    row: dict[str, Any]
    settings: dict[str, Any]
    neutral: dict[str, Any]
    is_sealed: bool


def _trial(found: Found) -> _Trial:
    folder, info = found.folder, found.info
    known = found.columns
    row = {
        "trial_id": known["trial_id"],
        "status": info["status"],
        **known,
        **NOTHING,
        **{key: value for key, value in info.get("summary", {}).items() if key in NOTHING},
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
    try:
        with files.open_file(path) as file:
            header = int.from_bytes(file.read(8), "little")
    except OSError:  # it is missing, or not a file
        return None
    return path.stat().st_size - 8 - header


# --- rows -----------------------------------------------------------------------------------------


class Part(NamedTuple):
    """A trial's rows; its settings are apart if the rows do not have them."""

    table: pa.Table
    settings: Row | None


def _table(found: Found, name: str, columns_: pa.Schema, kept: Sequence[str]) -> Part:
    """Return the rows of a trial; of one that is proven, only some columns, and no settings."""
    path = found.folder / name
    try:
        if found.is_proven and not is_older(found.info):
            figures = read_figures(path, columns_, kept)
            if figures is not None:
                return Part(figures, found.columns)
        rows = read_rows(path, columns_, claim_of(name, found.info))
        return Part(_filled(rows, found), None)
    except UserError:
        raise
    except UNREADABLE as problem:
        raise _damaged(path, problem) from None


def _blocks(parts: Iterable[Part]) -> Iterator[pa.Table]:
    """Yield the rows of all trials, in order, each with its settings."""
    for is_whole, group in itertools.groupby(parts, lambda part: part.settings is None):
        own = [part for part in group if len(part.table)]
        if is_whole:
            yield from (part.table for part in own)
        elif own:
            yield with_settings([part.table for part in own], [part.settings or {} for part in own])


def _filled(table: pa.Table, found: Found) -> pa.Table:
    """Return rows with their settings; what they lack is taken from trial.json."""
    if not len(table) or table["dataset"].null_count < len(table):
        return table
    for name, value in found.columns.items():
        place = table.column_names.index(name)
        field = table.schema.field(place)
        table = table.set_column(place, field, pa.array([value] * len(table), field.type))
    return table


def _map_as_arrow(kind: pa.DataType) -> pd.ArrowDtype | None:
    """Leave maps to Arrow: as Python objects they take longer than all other columns."""
    return pd.ArrowDtype(kind) if pa.types.is_map(kind) else None


# --- folders --------------------------------------------------------------------------------------


def _furthest(found: Iterable[Found]) -> list[Found]:
    """Return the folder of each trial; if it is in several, the one that got furthest."""
    return _one_each(_one_each(found, lambda each: each.folder.resolve().name), _settings)


def _one_each(found: Iterable[Found], key: Callable[[Found], str]) -> list[Found]:
    copies: dict[str, list[Found]] = {}
    for each in found:
        copies.setdefault(key(each), []).append(each)
    return [all_[0] if len(all_) == 1 else max(all_, key=_progress) for all_ in copies.values()]


def _settings(found: Found) -> str:
    """Return all settings of a trial: the same under the id that an older version gave it."""
    return canonical(found.info["spec"]) if "spec" in found.info else str(found.folder)


def _trials_in(folder: Path) -> list[Path]:
    """Return the trials of an experiment, of a folder of experiments, or the one trial itself."""
    for place in PLACES:
        if trials_there := listed(folder, place):
            return trials_there
    raise UserError(f"no trials in {folder}: expected trials/*/trial.json there")


def _progress(found: Found) -> tuple[bool, int, int]:
    info = found.info
    if not info:
        return False, -1, 0
    done = info.get("summary", NOTHING).get("rounds_done", 0)
    return info["status"] in schema.ENDED, done, info["schema_version"]
