"""Settings to a TrialSpec; files and folders are found, hashed, and named by their content."""

from collections.abc import Collection, Mapping
from pathlib import Path

from fedgps_ray.data import datasets
from fedgps_ray.errors import UserError, unknown
from fedgps_ray.identity import SELECTORS, Settings, Table
from fedgps_ray.methods import METHODS, Method
from fedgps_ray.methods.base import is_method
from fedgps_ray.methods.outside import kind_of, reimported
from fedgps_ray.models import MODELS
from fedgps_ray.references import Code, Kind, entry_file, give_own, is_reference, published, read
from fedgps_ray.spec import TrialSpec, trial_spec
from fedgps_ray.units import is_text, printable

KNOWN: Mapping[Kind, Collection[str]] = {
    "method": METHODS,
    "model": MODELS,
    "dataset": datasets.DATASETS,
}


def resolve(values: Settings, *folders: Path) -> tuple[TrialSpec, dict[str, str]]:
    """Return the spec, and where the files and folders lie that it names by content.

    A relative path is looked for in the folders in turn, by default in the current one.
    """
    values, files = dict(values), dict[str, str]()
    method = values.get("method")
    if is_method(method) and type(method) not in METHODS.values():
        values["method"] = reimported(method)
    for kind in KNOWN:
        values, files = _with_code(kind, values, files, folders)
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


def _with_code(
    kind: Kind, values: Table, files: dict[str, str], folders: tuple[Path, ...]
) -> tuple[Table, dict[str, str]]:
    """Read the code that a method, model or data set refers to, so that it may be imported."""
    table = _table(kind, values.get(kind))
    name = table.get("name")
    if not isinstance(name, str) or "code" in table or not _is_outside(kind, name):
        return values, files
    folder = _holding(name, (*folders, Path()))  # --set names files from here
    found, file = read(name, kind, folder, KNOWN[kind]), entry_file(name, kind, folder)
    code = give_own(found, file)
    paths = {} if file is None else {code.sha256: str(file)}
    return values | {kind: {**table, "name": code.name, "code": code.table}}, files | paths


def _is_outside(kind: Kind, name: str) -> bool:
    if name in KNOWN[kind] or name.startswith("torchvision.datasets:"):
        return False
    return is_reference(name) or name in published(kind)


def _holding(reference: str, folders: tuple[Path, ...]) -> Path:
    """Return the first folder that has the file of a reference, else the first one."""
    place = reference.rpartition(":")[0] or reference
    path = user_path(place)
    if not place.endswith(".py"):
        path = Path(place.partition(".")[0])
    tried = [f for f in folders if (f / path).exists() or (f / path).with_suffix(".py").exists()]
    return (*tried, *folders, Path())[0]


def _table(key: str, value: object) -> Table:
    return dict(value) if isinstance(value, Mapping) else {SELECTORS[key]: value}


def _without_name(described: dict[str, str]) -> dict[str, str]:
    return {key: value for key, value in described.items() if key != "name"}


def _given_path(key: str, table: Settings, folders: tuple[Path, ...]) -> str | None:
    """Return the path that a table names, either in place of a name or as its file."""
    name = str(table.get(SELECTORS[key]))
    if "code" in table:
        return None
    if key == "surrogate":
        return name if name.endswith(".npz") else None
    if name in datasets.DATASETS:
        return str(table["file"]) if "file" in table and "sha256" not in table else None
    is_folder = ":" not in name and _located(name, folders).is_dir()
    return name if datasets.is_path(name) or is_folder else None


def _located(name: str, folders: tuple[Path, ...]) -> Path:
    places = [(folder / user_path(name)).resolve() for folder in folders or (Path(),)]
    return next((place for place in places if place.exists()), places[0])


def user_path(name: object) -> Path:
    """Return a path as a user writes it; refuse what cannot be one."""
    text = str(name)
    if not is_text(text):
        raise UserError(f"{printable(text)!r} is not a path: it has bytes that no name has")
    try:
        return Path(text).expanduser()
    except RuntimeError:
        raise UserError(f"{text}: there is no user of this name") from None


def named_method(name: str) -> tuple[type[Method], Code | None]:
    """Return the class of a method that is built in or referred to, and the code of the latter."""
    if not _is_outside("method", name):
        if name not in METHODS:
            raise unknown("method", name, METHODS)
        return METHODS[name], None
    user_path(name)
    code = give_own(read(name, "method", Path(), METHODS), entry_file(name, "method"))
    return kind_of(code), code
