"""Reading results folders, of this layout or an older one, without PyTorch and Ray."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from fedgps_ray import identity
from fedgps_ray.errors import UserError
from fedgps_ray.results.schema import LAYOUT_VERSION

Row = dict[str, Any]

NEEDED = ("schema_version", "status", "spec", "execution")
MOVE = "move the folder away, or use another --out"
UNREADABLE = (pa.ArrowException, OSError)  # which of them depends on where a file is damaged


class NewerLayout(UserError):
    """The results were written by a newer version, in a layout that this one does not know."""


# --- trial.json -----------------------------------------------------------------------------------


def read_trial(folder: Path) -> Row:
    """Return trial.json of a trial's folder, checked against the folder's name."""
    path = folder / "trial.json"
    try:
        info: Row = json.loads(path.read_text())
        missing = [key for key in NEEDED if key not in info]
    except (FileNotFoundError, NotADirectoryError):
        raise UserError(f"{folder} is not a trial's folder: it has no trial.json") from None
    except (ValueError, TypeError) as problem:
        raise UserError(f"{path} is damaged ({problem}); {MOVE}") from None
    if missing:
        raise UserError(f"{path} is damaged (it lacks {', '.join(missing)}); {MOVE}")
    if not isinstance(info["spec"], dict):
        raise UserError(f"{path} is damaged (spec is {info['spec']!r}); {MOVE}")
    _check_layout(path, info["schema_version"])
    if info["schema_version"] == 1:  # the id was a hash of all settings
        info |= {"identity_version": 1, "identity": info["spec"]}
    _check_id(folder, info)
    return info


def _check_layout(path: Path, layout: Any) -> None:
    if not isinstance(layout, int) or layout < 1:
        raise UserError(f"{path} is damaged (schema_version is {layout!r}); {MOVE}")
    if layout > LAYOUT_VERSION:
        raise NewerLayout(
            f"{path} was written by a newer version of fedgps-ray: it has layout {layout}, this"
            f" version reads layouts up to {LAYOUT_VERSION}; update fedgps-ray"
        )


def _check_id(folder: Path, info: Row) -> None:
    name = folder.resolve().name
    if not identity.ID.fullmatch(name):
        raise UserError(
            f"{folder}: a trial's folder is named after its id, 12 digits from 0 to f, got {name!r}"
        )
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


def _agrees(identity_: Any, settings: Any) -> bool:
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
    return identity.columns(folder.resolve().name, info["spec"], options)


def _written_options(path: Path) -> Row:
    """Return the hyperparameters that layout 1 has in its rows only."""
    if not path.exists():
        return {}
    column = pq.ParquetFile(path).read_row_group(0, columns=["method_options"])[0]
    options: Row = json.loads(column[0].as_py())
    return options


def trial_folders(experiment: Path) -> list[Path]:
    """Return the folders of an experiment's trials, or the folder itself if it is a trial's."""
    if (experiment / "trial.json").exists():
        return [experiment]
    return listed(experiment, "trials/*/trial.json")


def listed(folder: Path, pattern: str) -> list[Path]:
    """Return the trials whose trial.json matches a pattern, without incomplete copies."""
    folders = sorted(path.parent for path in folder.glob(pattern))
    return [trial for trial in folders if not trial.name.startswith(".")]


# --- experiment.json ------------------------------------------------------------------------------


def read_experiment(folder: Path) -> Row:
    """Return experiment.json of a sweep's folder: its cells, and what else it says."""
    path = folder / "experiment.json"
    try:
        content: Row = json.loads(path.read_text())
        for cell in content["cells"]:
            _check_cell(cell)
        _check_layout(path, content.get("schema_version", LAYOUT_VERSION))
    except FileNotFoundError:
        raise UserError(f"{folder} has no experiment.json: it is not a sweep's folder") from None
    except (ValueError, TypeError, LookupError) as problem:
        if isinstance(problem, UserError):
            raise
        raise UserError(
            f"{path} is damaged ({problem!r}); start the sweep again with its experiment file"
        ) from None
    return content


def _check_cell(cell: Row) -> None:
    if not identity.ID.fullmatch(cell["trial_id"]) or not isinstance(cell["spec"], dict):
        raise LookupError(f"trial_id {cell['trial_id']!r}")


# --- rows -----------------------------------------------------------------------------------------


def read_rows(path: Path, columns_: pa.Schema) -> pa.Table:
    """Return a table of a trial; columns that it lacks are empty, unknown ones are kept."""
    table = pq.ParquetFile(path).read()
    for field in columns_:
        if field.name not in table.column_names:
            table = table.append_column(field, pa.nulls(len(table), field.type))
        elif table.schema.field(field.name).type != field.type:
            place = table.column_names.index(field.name)
            table = table.set_column(place, field, table[field.name].cast(field.type))
    return table


def joined(tables: Iterable[pa.Table], columns_: pa.Schema) -> pa.Table:
    """Return the rows of many trials in one table, with the columns of all of them."""
    whole = pa.concat_tables([columns_.empty_table(), *tables], promote_options="permissive")
    return whole.unify_dictionaries()


def work_seconds(trials: Iterable[Path]) -> Iterator[float]:
    """Yield how long the clients of each trial have trained."""
    for folder in trials:
        path = folder / "clients.parquet"
        if path.exists():
            yield sum(pq.read_table(path, columns=["work_seconds"])["work_seconds"].to_pylist())
