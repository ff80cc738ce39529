"""Reading results folders, of this layout or an older one, without PyTorch and Ray."""

import contextlib
import json
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from fedgps_ray import identity
from fedgps_ray.errors import UserError
from fedgps_ray.results import checkpoints, files, tables
from fedgps_ray.results.folders import PLAN, TRIALS, listed, may_have
from fedgps_ray.results.schema import DONE, LAYOUT_VERSION, SPEC, STATUSES, TEXT
from fedgps_ray.results.tables import Claim
from fedgps_ray.units import printable

Row = dict[str, Any]

NEEDED = ("schema_version", "status", "spec", "execution")
MOVE = "move the folder away, or use another --out"
UNREADABLE = (pa.ArrowException, OSError)  # which of them depends on where a file is damaged
DAMAGED = (ValueError, TypeError, LookupError, AttributeError, OSError, RecursionError)
CONTROL = re.compile("[\x00-\x1f]")
HASH = re.compile(r"[0-9a-f]{64}")
LONGEST = 300  # characters of an error message that come from a file
QUICK_BYTES = 8 * 2**20  # of a model that is hashed every time, not only when asked for
ROWS = ("rounds.parquet", "clients.parquet", "partition.parquet")
SEALED = (*ROWS, "model.safetensors")
OPEN_PLAN = f"{PLAN} is not sealed: changes to it cannot be noticed"  # from older versions
MOST_CLASSES = 100_000
MAY_LACK = ("alpha", "classes_per_client", "weighting")  # of these a trial has what it needs


class NewerLayout(UserError):
    """The results were written by a newer version, in a layout that this one does not know."""


# --- trial.json -----------------------------------------------------------------------------------


def read_trial(folder: Path, sealed: bool = True) -> Row:
    """Return trial.json of a trial's folder, checked against its seal and the folder's name.

    sealed: without it only the settings can be believed: the folder's name is their hash.
    """
    path = folder / "trial.json"
    try:
        info = files.read_json(path, sealed)
        _check_keys(path, info)
        if info["schema_version"] == 1:  # the id was a hash of all settings
            info |= {"identity_version": 1, "identity": info["spec"]}
        _check_id(folder, info)
        _check_types(folder, info)
    except UserError:
        raise
    except (FileNotFoundError, NotADirectoryError):
        raise UserError(f"{folder} is not a trial's folder: it has no trial.json") from None
    except PermissionError as problem:
        raise UserError(f"{path} cannot be read: {problem.strerror}") from None
    except DAMAGED as problem:
        raise UserError(f"{path} is damaged ({_told(problem)}); {MOVE}") from None
    return info


def _told(problem: Exception) -> str:
    return printable(str(problem) or type(problem).__name__)[:LONGEST]


def _check_keys(path: Path, info: Row) -> None:
    missing = [key for key in NEEDED if key not in info]
    if missing:
        raise UserError(f"{path} is damaged (it lacks {', '.join(missing)}); {MOVE}")
    if not isinstance(info["spec"], dict):
        raise ValueError(f"spec is {info['spec']!r}")
    _check_layout(path, info["schema_version"])


def _check_types(folder: Path, info: Row) -> None:
    """Refuse values that no version has written, before they are computed with or printed."""
    if info["status"] not in STATUSES:
        raise ValueError(f"status is {info['status']!r}")
    for key in ("execution", "versions", "summary", "files"):
        if not isinstance(info.get(key, {}), dict):
            raise ValueError(f"{key} is {info[key]!r}")
    for key in ("error", "diverged", "partition_sha256"):
        if not isinstance(info.get(key), str | None):
            raise ValueError(f"{key} is {info[key]!r}")
    check_summary(info)
    _check_settings(folder, info)


def check_summary(info: Row) -> None:
    """Refuse figures of another kind, and a trial that has ended without any."""
    for key, value in info.get("summary", {}).items():
        _check_figure(key, value)
    if info["status"] in DONE and "rounds_done" not in info.get("summary", {}):
        raise ValueError("it has ended and lacks a summary")


def _check_figure(key: str, value: Any) -> None:
    if key == "weights_sha256":
        is_right = value is None or (isinstance(value, str) and value.isprintable())
    elif key == "rounds_done":
        is_right = _is_number(value, int) and value >= 0
    else:
        is_right = value is None or _is_number(value, int | float)
    if not is_right or not _is_short(value):
        raise ValueError(f"summary.{key} is {value!r}")


def _is_number(value: Any, kind: Any) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


def _check_settings(folder: Path, info: Row) -> None:
    """Refuse settings that make no row, or whose names would do something to a terminal.

    In JSON a control character has a backslash, so text without one needs no closer look.
    """
    text = json.dumps(info["spec"], ensure_ascii=False)
    if printable(text) != text:
        raise ValueError("a setting has control characters")
    if "\\" in text and any(CONTROL.search(value) for value in _texts(info["spec"])):
        raise ValueError("a setting has control characters")
    rounds, method = info["spec"]["rounds"], info["spec"]["method"]["name"]
    if not _is_number(rounds, int) or rounds < 1 or not isinstance(method, str):
        raise ValueError(f"rounds is {rounds!r}, method.name is {method!r}")
    _check_names(info["spec"])
    plain = identity.columns(_name(folder), info["spec"], {})  # an older trial has more in its rows
    _check_columns(plain if is_older(info) else columns(folder, info))


def _check_names(settings: Row) -> None:
    """Refuse a part of the settings, such as the data set, whose name or kind is not a text."""
    for part, own in settings.items():
        called = own.get("name", own.get("kind", "")) if isinstance(own, dict) else ""
        if not isinstance(called, str):
            raise ValueError(f"the name of {part} is {called!r}")


def _check_columns(row: Row) -> None:
    """Refuse settings that are of another kind than the columns they become."""
    for name, kind in SPEC:
        value = row[name]
        is_right = value is None and name in MAY_LACK
        if not is_right and not _fits(value, kind):
            raise ValueError(f"{name} is {value!r}")


def _fits(value: Any, kind: pa.DataType) -> bool:
    """Say whether a column of a kind has room for a value."""
    if kind == TEXT:
        return isinstance(value, str)
    if kind == pa.int64():
        return _is_number(value, int) and _is_short(value)
    is_exact = isinstance(value, float) or (_is_number(value, int) and abs(value) < identity.EXACT)
    return is_exact and math.isfinite(value)


def _is_short(value: object) -> bool:
    """Say whether a number is finite and has room in a column; what is no number always has."""
    return not isinstance(value, int | float) or abs(value) < 2**63


def _texts(value: object) -> Iterator[str]:
    """Yield all texts in a value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield key
            yield from _texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner)


def _check_layout(path: Path, layout: object) -> None:
    if not isinstance(layout, int) or layout < 1:
        raise UserError(f"{path} is damaged (schema_version is {layout!r}); {MOVE}")
    if layout > LAYOUT_VERSION:
        raise NewerLayout(
            f"{path} was written by a newer version of fedgps-ray: it has layout {layout}, this"
            f" version reads layouts up to {LAYOUT_VERSION}; update fedgps-ray"
        )


def _check_id(folder: Path, info: Row) -> None:
    name = _name(folder)
    if not identity.ID.fullmatch(name):
        raise UserError(
            f"{folder}: a trial's folder is named after its id, 12 digits from 0 to f, got {name!r}"
        )
    if info.get("trial_id", name) != name:
        raise ValueError(f"trial_id is {info['trial_id']!r}")
    try:
        made = identity.trial_id(info["identity"], info["identity_version"])
    except KeyError as missing:
        path = folder / "trial.json"
        raise UserError(f"{path} is damaged (it lacks {missing.args[0]}); {MOVE}") from None
    if made != name:
        raise UserError(
            f"{folder} belongs to another spec: the settings in its trial.json make trial {made};"
            f" {MOVE}"
        )
    if not _agrees(info["identity"], info["spec"]):
        raise UserError(
            f"{folder} belongs to another spec: spec and identity in its trial.json differ; {MOVE}"
        )


def _agrees(identity_: object, settings: object) -> bool:
    """Say whether settings have all values of an identity."""
    if not isinstance(identity_, dict) or not isinstance(settings, dict):
        return bool(identity_ == settings)
    return all(
        key == "class" or (key in settings and _agrees(value, settings[key]))
        for key, value in identity_.items()
    )


def is_older(info: Row) -> bool:
    """Say whether a trial or a sweep was written by an older version."""
    return bool(info.get("schema_version", LAYOUT_VERSION) < LAYOUT_VERSION)


def refuse_older(folder: Path, info: Row) -> None:
    """Raise an error if a trial or a sweep cannot be continued because it is older."""
    if is_older(info):
        raise UserError(
            f"{folder} was written by an older version of fedgps-ray (layout"
            f" {info['schema_version']}, now {LAYOUT_VERSION}): it can be read (status, watch,"
            " report) but not continued; start it again with run or sweep, also with the same"
            " --out: new trials go beside the old ones"
        )


def columns(folder: Path, info: Row) -> Row:
    """Return the settings of a trial as columns, the same as in its rows."""
    if is_older(info):
        options = _written_options(folder / "partition.parquet")
    else:
        options = identity.method_options(info["spec"], info["identity"])
    return identity.columns(_name(folder), info["spec"], options)


def _name(folder: Path) -> str:
    """Return the name of a folder, which may be given as . or be a link of the user's."""
    is_plain = identity.ID.fullmatch(folder.name) and not folder.is_symlink()
    return folder.name if is_plain else folder.resolve().name


def _written_options(path: Path) -> Row:
    """Return the hyperparameters that layout 1 has in its rows only."""
    if not path.exists():
        return {}
    try:
        column = tables.read(path)["method_options"]
        options: Row = json.loads(column[0].as_py())
    except (*UNREADABLE, *DAMAGED) as problem:
        raise UserError(f"{path} is damaged ({_told(problem)}); {MOVE}") from None
    return options


def trial_folders(experiment: Path) -> list[Path]:
    """Return the folders of an experiment's trials, or the folder itself if it is a trial's."""
    if (experiment / "trial.json").exists():
        return [_by_whole_path(experiment)]
    return listed(experiment, TRIALS)


def _by_whole_path(trial: Path) -> Path:
    """Return a trial's folder by its whole path, so that its parents are those that it lies in.

    It may be named as . or .. or by a link of the user's; one that has its id is not followed.
    """
    plain = Path(os.path.abspath(trial))
    return plain if identity.ID.fullmatch(plain.name) else trial.resolve()


def headless(folder: Path) -> list[Path]:
    """Return the folders of trials whose trial.json is gone though they have rows."""
    trials = listed(folder, "trials/*/rounds.parquet")
    return [trial for trial in trials if not may_have(trial / "trial.json")]


# --- experiment.json ------------------------------------------------------------------------------


def read_experiment(folder: Path) -> Row:
    """Return experiment.json of a sweep's folder: its cells, and what else it says."""
    path = folder / PLAN
    try:
        content = files.read_json(path)
        _check_cells(content["cells"])
        _check_layout(path, content.get("schema_version", LAYOUT_VERSION))
    except FileNotFoundError:
        raise UserError(f"{folder} has no experiment.json: it is not a sweep's folder") from None
    except DAMAGED as problem:
        if isinstance(problem, UserError):
            raise
        raise UserError(
            f"{path} is damaged ({_told(problem)}); start the sweep again with its experiment file"
        ) from None
    return content


def has_open_plan(folder: Path) -> bool:
    """Say whether a folder has an experiment.json whose changes cannot be noticed."""
    return (folder / PLAN).exists() and files.SEAL not in read_experiment(folder)


def _check_cells(cells: Sequence[Row]) -> None:
    if not cells:
        raise ValueError("it names no trials")
    known = set()
    for cell in cells:
        if not identity.ID.fullmatch(cell["trial_id"]) or not isinstance(cell["spec"], dict):
            raise LookupError(f"trial_id {cell['trial_id']!r}")
        if cell["trial_id"] in known:
            raise ValueError(f"trial {cell['trial_id']} is there twice")
        known.add(cell["trial_id"])


# --- rows -----------------------------------------------------------------------------------------


def claim_of(name: str, info: Row) -> Claim:
    """Return what trial.json says of one of the trial's tables: its hash, and how long it may be.

    While a trial runs, its tables have hashes of their own, since trial.json has a seal.
    """
    rounds, clients = info["spec"].get("rounds"), info["spec"].get("clients")
    most = {"rounds.parquet": (rounds,), "clients.parquet": (rounds, clients)}
    numbers = most.get(name, (clients, MOST_CLASSES))
    is_known = all(_is_number(number, int) for number in numbers)
    digest = info.get("files", {}).get(name) if info["status"] in DONE else None
    return Claim(files.SEAL in info, math.prod(numbers) if is_known else None, digest)


def read_rows(path: Path, columns_: pa.Schema, claim: Claim = tables.NOTHING) -> pa.Table:
    """Return a table of a trial; columns that it lacks are empty, unknown ones are kept."""
    table = tables.read(path, claim)
    _check_owner(path, table)
    if table.schema.equals(columns_):  # as nearly always
        return table
    for field in columns_:
        if field.name not in table.column_names:
            table = table.append_column(field, pa.nulls(len(table), field.type))
        elif table.schema.field(field.name).type != field.type:
            place = table.column_names.index(field.name)
            table = table.set_column(place, field, table[field.name].cast(field.type))
    return table


def read_figures(path: Path, columns_: pa.Schema, names: Sequence[str]) -> pa.Table | None:
    """Return some columns of a trial's rows, not those of its settings: all rows have the same.

    Only for trials that are sealed: whose rows they are is not checked. None if the columns are not
    those of this version; then `read_rows` has to read all of them.
    """
    return tables.read_some(path, columns_, names)


def with_settings(figures: Sequence[pa.Table], settings: Sequence[Row]) -> pa.Table:
    """Return the rows of many trials in one table, with the settings of each in its rows."""
    whole = pa.concat_tables(figures)
    of_trial = np.repeat(np.arange(len(figures), dtype=np.int32), [len(t) for t in figures])
    given = pa.Table.from_pylist(list(settings), schema=pa.schema(SPEC))
    spread = given.combine_chunks().take(pa.array(of_trial))
    names = [*given.column_names, *whole.column_names]
    return pa.table([*spread.columns, *whole.columns], names=names)


def _check_owner(path: Path, table: pa.Table) -> None:
    """Refuse the rows of another trial."""
    if "trial_id" not in table.column_names:
        raise pa.ArrowInvalid("it has no column trial_id")
    name = _name(path.absolute().parent)
    if identity.ID.fullmatch(name) and set(table["trial_id"].unique().to_pylist()) - {name}:
        raise pa.ArrowInvalid("it holds rows of another trial")


def joined(tables: Iterable[pa.Table], columns_: pa.Schema) -> pa.Table:
    """Return the rows of many trials in one table, with the columns of all of them."""
    whole = pa.concat_tables([columns_.empty_table(), *tables], promote_options="permissive")
    return whole.unify_dictionaries()


def work_seconds(trials: Iterable[Path]) -> Iterator[float]:
    """Yield how long the clients of each trial have trained; what cannot be read counts nothing."""
    for folder in trials:
        with contextlib.suppress(*UNREADABLE, *DAMAGED):
            yield _work_seconds(folder)


def has_readable_clients(folder: Path) -> bool:
    """Say whether the rows of a trial's clients can be read, or there are none yet."""
    try:
        return _work_seconds(folder) >= 0
    except (*UNREADABLE, *DAMAGED):
        return False


def _work_seconds(folder: Path) -> float:
    path = folder / "clients.parquet"
    if not path.exists():
        return 0.0
    seconds = tables.read(path, names=["work_seconds"])["work_seconds"].to_pylist()
    return float(sum(value or 0.0 for value in seconds))


# --- seals ----------------------------------------------------------------------------------------


def check(folder: Path, full: bool = False) -> list[str]:
    """Return what is wrong with a trial: trial.json, and the files of one that has ended.

    full: also hash large models; without it only their length is checked.
    """
    try:
        info = read_trial(folder)
    except UserError as problem:
        return [str(problem)]
    return check_files(folder, info, full)


def check_files(folder: Path, info: Row, full: bool = False) -> list[str]:
    """Return what is wrong with the files of a trial whose trial.json has been read."""
    if info["status"] not in DONE:
        missing = [folder / name for name in _expected(info) if not (folder / name).exists()]
        told = [f"{path} is damaged (it is missing)" for path in missing]
        return [*told, *_changed_rows(folder, info)] if full else told
    known = info.get("files", {})
    if not all(name in SEALED or checkpoints.KEPT.fullmatch(name) for name in known):
        return [f"{folder / 'trial.json'} is damaged (it has hashes of unknown files)"]
    problems = (_file_problem(folder / name, digest, full) for name, digest in known.items())
    return [problem for problem in problems if problem]


def _changed_rows(folder: Path, info: Row) -> Iterator[str]:
    """Yield what is wrong with the rows of a trial under way, which have hashes of their own."""
    for name in ROWS:
        path = folder / name
        try:
            if path.exists():
                tables.read(path, claim_of(name, info), names=["trial_id"])
        except (*UNREADABLE, *DAMAGED) as problem:
            yield f"{path} is damaged ({_told(problem)})"


def _expected(info: Row) -> Iterator[str]:
    """Yield the files that a trial under way has by what its trial.json says."""
    if info.get("summary", {}).get("rounds_done"):
        yield "rounds.parquet"
        yield "clients.parquet"
    if info.get("partition_sha256") is not None:
        yield "partition.parquet"


def is_sealed(info: Row) -> bool:
    """Say whether a trial has hashes that changes can be noticed by."""
    return files.SEAL in info and (info["status"] not in DONE or "files" in info)


def hashes(folder: Path, rounds_done: int = 0) -> dict[str, str]:
    """Return the hash of each of a trial's files, after some rounds also of its checkpoint's."""
    paths = [folder / name for name in SEALED if (folder / name).exists()]
    with contextlib.suppress(*DAMAGED):  # then none is kept
        paths += checkpoints.worth_keeping(folder, rounds_done)
    return {path.relative_to(folder).as_posix(): files.sha256(path) for path in paths}


def _file_problem(path: Path, digest: object, full: bool) -> str | None:
    try:
        is_large = path.stat().st_size > QUICK_BYTES
        if is_large and not files.has_right_length(path):
            return f"{path} is damaged (it was cut short or extended)"
        is_trusted = is_large and not full and path.name not in ROWS
        if is_trusted or files.sha256(path) == digest:
            return None
    except OSError as problem:
        return f"{path} is damaged (it cannot be read: {problem.strerror or problem})"
    return f"{path} is damaged (it was changed after the trial ended: its sha256 is another)"
