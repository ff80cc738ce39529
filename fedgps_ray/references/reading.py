"""From a reference to the code it means, without importing it."""

import ast
from collections.abc import Iterable
from pathlib import Path

from fedgps_ray.errors import UserError, nearest, unknown
from fedgps_ray.references.closure import INIT, collect, parse, read_text
from fedgps_ray.references.code import Code, Found, Kind, digest, never_local
from fedgps_ray.references.installed import file_digest, locate, package_of, published

HINT = "Code of your own is given as my_file.py:Name or package.module:Name"


def is_reference(text: str) -> bool:
    """Say whether a text can only mean code outside the package."""
    return ":" in text or text.endswith(".py")


def read(reference: str, kind: Kind, folder: Path = Path(), known: Iterable[str] = ()) -> Found:
    """Return the code that a reference means; files are relative to folder.

    Names in known are built in; they are mentioned where a name means nothing.
    """
    place, colon, attribute = reference.rpartition(":")
    if not colon:
        return _published(reference, kind, folder, known)
    if not all(part.isidentifier() for part in attribute.split(".")):
        raise UserError(f"{reference}: '{attribute}' is not a name in Python. {HINT}")
    if place.endswith(".py"):
        return _file(place, attribute, folder)
    return _module(place, attribute, folder)


def _published(name: str, kind: Kind, folder: Path, known: Iterable[str]) -> Found:
    if name.endswith(".py"):
        file = _existing(name, folder)
        defined = _definitions(file)
        example = f"{name}:{defined[0] if defined else 'Name'}"
        raise UserError(f"{name}: say which {kind} in it, such as {example}")
    points = published(kind)
    if name not in points:
        raise UserError(f"{unknown(kind, name, [*known, *points])}. {HINT}")
    origin = read(points[name], kind, folder)
    return origin._replace(code=_renamed(origin.code, name))


def _renamed(code: Code, name: str) -> Code:
    return Code(name, code.target, code.sha256, code.package, code.version)


def _existing(place: str, folder: Path) -> Path:
    file = folder / Path(place).expanduser()
    if not file.is_file():
        beside = [path.name for path in file.parent.glob("*.py")]
        raise UserError(f"there is no file {place}.{nearest(file.name, beside)}")
    if "." in file.stem:
        raise UserError(f"{place}: a Python file needs a name without further dots")
    return file


def _definitions(file: Path) -> list[str]:
    """Return the classes and functions that a file defines."""
    tree = parse(read_text(file, file.name), file.name)
    kinds = (ast.ClassDef, ast.FunctionDef)
    return [node.name for node in tree.body if isinstance(node, kinds) and node.name[0] != "_"]


def _file(place: str, attribute: str, folder: Path) -> Found:
    file = _existing(place, folder)
    return _kept(f"{file.name}:{attribute}", attribute, file)


def _kept(name: str, attribute: str, file: Path, root: Path | None = None) -> Found:
    sources = collect(file, file.name, root)
    return Found(Code(name, f"{sources.entry}:{attribute}", digest(*sources)), sources.texts)


def _module(module: str, attribute: str, folder: Path) -> Found:
    name = f"{module}:{attribute}"
    if not all(part.isidentifier() for part in module.split(".")):
        raise UserError(f"{name}: '{module}' is neither a file that ends in .py nor a module")
    file = _in_folder(module, folder)
    if file is not None:
        return _kept(name, attribute, file, folder)
    file = locate(module)
    if file is None:
        raise UserError(f"{name}: there is no module '{module}', neither here nor installed")
    package = package_of(module)
    if package is None:
        return _kept(name, attribute, file, root_of(file, module))
    return Found(Code(name, name, file_digest(file), package.name, package.version), {})


def _in_folder(module: str, folder: Path) -> Path | None:
    """Return the file of a module that lies in the user's folder."""
    if never_local(module.partition(".")[0]):
        return None
    path = folder.joinpath(*module.split("."))
    candidates = (path / INIT, path.with_suffix(".py"))
    return next((file for file in candidates if file.is_file()), None)


def root_of(file: Path, module: str) -> Path:
    """Return the folder from which a module has its name."""
    depth = module.count(".") + (file.name == INIT)
    return file.parents[depth]


def entry_file(reference: str, kind: Kind, folder: Path = Path()) -> Path | None:
    """Return the file that a reference leads to, or None if there is none."""
    place, colon, _ = reference.rpartition(":")
    if not colon:
        points = published(kind)
        return entry_file(points[reference], kind, folder) if reference in points else None
    if place.endswith(".py"):
        return _existing(place, folder).resolve()
    file = _in_folder(place, folder) or locate(place)
    return None if file is None else file.resolve()
