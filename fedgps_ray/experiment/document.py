"""An experiment file as it is written: read, checked, and changed by --set."""

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fedgps_ray.data import datasets
from fedgps_ray.errors import UserError, nearest, unknown
from fedgps_ray.experiment.files import user_path
from fedgps_ray.experiment.search import Search, parse_search
from fedgps_ray.experiment.tables import (
    TOO_DEEP,
    Table,
    flat,
    merged,
    oddity,
    parse_setting,
)
from fedgps_ray.identity import Settings
from fedgps_ray.methods import METHODS
from fedgps_ray.references import is_reference, published
from fedgps_ray.spec import execution_spec

PATHS = ("dataset", "dataset.name", "dataset.file", "surrogate", "surrogate.kind")
TEXTS = ("name", "title", "description")
TABLES = ("base", "grid", "methods", "execution", "search")
MOST_BYTES = 16 * 2**20
EXECUTION = ("actors", "client_cpus", "client_gpus", "checkpoint_seconds", "hang_seconds")


class Document(NamedTuple):
    """The parts of a file; settings go by dotted keys."""

    path: Path
    name: str
    title: str
    description: str
    base: Table
    grid: Table
    cases: list[Table]
    methods: dict[str, Table]
    execution: Table
    search: Search | None
    overrides: Table  # from --set: these win over all


def read(path: Path, settings: Sequence[str] | Settings) -> Document:
    """Return the checked parts of a file; settings are KEY=VALUE, or values by key."""
    named = settings if isinstance(settings, Mapping) else dict(map(parse_setting, settings))
    return checked(_parsed(path), path, named)


def checked(content: Table, path: Path, settings: Settings) -> Document:
    """Return the checked parts of tables as a file has them; settings win over what they say."""
    overrides: Table = {}
    for key, value in settings.items():
        if key.split(".")[0] in TABLES:
            content = merged(content, {key: value})
        else:
            overrides[key] = _from_here(key, value)
    _check_known("part", content, (*TEXTS, *TABLES, "cases"))
    name, title, description = (_text(key, content.get(key, "")) for key in TEXTS)
    parts = {key: _table(key, content.get(key, {})) for key in TABLES}
    return Document(
        path=path,
        name=name or path.stem,
        title=title,
        description=description,
        base=_single("base", flat(parts["base"])),
        grid=_lists(flat(parts["grid"])),
        cases=_cases(content.get("cases", [{}])),
        methods=_methods(parts["methods"]),
        execution=_execution(parts["execution"]),
        search=parse_search(parts["search"]) if "search" in content else None,
        overrides=overrides,
    )


def _parsed(path: Path) -> Table:
    try:
        content = tomllib.loads(_text_of(path))
    except FileNotFoundError:
        there = sorted(file.name for file in path.parent.glob("*.toml"))
        listed = ", ".join(there) or "none"
        close = nearest(path.name, there)
        raise UserError(f"no file {path}.{close} Files in {path.parent}: {listed}") from None
    except OSError as problem:
        raise UserError(f"cannot read {path}: {problem.strerror}") from None
    except UnicodeDecodeError:
        raise UserError("not a text file: expected TOML in UTF-8") from None
    except UserError:
        raise
    except ValueError as problem:  # also for a number of thousands of digits
        raise UserError(f"not valid TOML: {problem}") from None
    except RecursionError:
        raise UserError(TOO_DEEP) from None
    if reason := oddity(content):
        raise UserError(reason)
    return content


def _text_of(path: Path) -> str:
    with path.open("rb") as file:
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise UserError(f"{path} has more than {MOST_BYTES:,} bytes: it is no experiment file")
    return content.decode().replace("\r\n", "\n").replace("\r", "\n")


def _from_here(key: str, value: Any) -> Any:
    """Take the path of a file from the current folder: it comes from the command line."""
    if isinstance(value, list):
        return [_from_here(key, item) for item in value]
    if isinstance(value, Mapping) and key in ("dataset", "surrogate"):
        return {inner: _from_here(f"{key}.{inner}", given) for inner, given in value.items()}
    named = str(value)
    is_folder = named not in datasets.DATASETS and Path(named).is_dir()
    names_data = key in PATHS and (datasets.is_path(named) or is_folder)
    return str(user_path(value).absolute()) if names_data else value


def _check_known(kind: str, given: Iterable[str], known: Sequence[str]) -> None:
    for key in given:
        if key not in known:
            raise unknown(kind, key, known)


def _text(key: str, value: object) -> str:
    if not isinstance(value, str):
        raise UserError(f"{key}: must be a text, got {value!r}")
    return value.strip()


def _table(key: str, value: object) -> Table:
    if not isinstance(value, Mapping):
        raise UserError(f"{key}: must be a table, written as [{key}], got {value!r}")
    return dict(value)


def _single(where: str, table: Table) -> Table:
    for key, value in table.items():
        if isinstance(value, list):
            raise UserError(
                f"{where}.{key}: must be one value, got {value!r}; lists belong to [grid]"
            )
    return table


def _lists(grid: Table) -> Table:
    for key, value in grid.items():
        if not isinstance(value, list):
            raise UserError(
                f"grid.{key}: must be a list, got {value!r}; write [{value!r}] or move it to [base]"
            )
    return _full("grid", grid)


def _full(where: str, table: Table) -> Table:
    for key, value in table.items():
        if value == []:
            raise UserError(f"{where}.{key}: the list is empty, so there would be no cell")
    return table


def _cases(cases: object) -> list[Table]:
    if not isinstance(cases, list) or not all(isinstance(case, Mapping) for case in cases):
        raise UserError(f"cases: must be tables, each written under [[cases]], got {cases!r}")
    if not cases:
        raise UserError("cases: the list is empty, so there would be no cell")
    return [_full(f"case {number}", flat(case)) for number, case in enumerate(cases, 1)]


def _methods(given: Table) -> dict[str, Table]:
    outside = published("method")
    own = [name for name in given if not is_reference(name) and name not in outside]
    _check_known("method", own, list(METHODS))
    return {
        name: _single(f"methods.{name}", flat(_table(f"methods.{name}", table)))
        for name, table in given.items()
    }


def _execution(given: Table) -> Table:
    _check_known("key of [execution]", given, EXECUTION)
    execution_spec(**given)
    return given
