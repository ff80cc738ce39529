"""The outside code that this process may import: what the user named, and nothing else."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedgps_ray.errors import UserError
from fedgps_ray.references.code import Code, Found
from fedgps_ray.references.importing import load
from fedgps_ray.references.own import note

_GIVEN: dict[Code, Mapping[str, str]] = {}
_IMPORTED: dict[Code, Any] = {}
_FOUND: dict[int, Found] = {}  # by the id of an imported object, which is kept alive above


def give(found: Found) -> Code:
    """Allow code to be imported; nothing is imported yet."""
    _GIVEN.setdefault(found.code, found.sources)
    return found.code


def give_own(found: Found, file: Path | None) -> Code:
    """Allow code that the user named to be imported, and remember that it is the user's.

    file: where the user has it, if it is in a file.
    """
    note(found.code, file)
    return give(found)


def given(code: Code) -> Any:
    """Import what was given, once; code that only a results folder names is refused."""
    if code not in _GIVEN:
        raise UserError(
            f"the code of {code.name} was not given here: name its file, or use"
            " `fedgps-ray resume`, which looks for it"
        )
    if code not in _IMPORTED:
        _IMPORTED[code] = value = load(code, _GIVEN[code])
        _FOUND.setdefault(id(value), Found(code, dict(_GIVEN[code])))
    return _IMPORTED[code]


def packages() -> set[str]:
    """Return the names of the packages that outside code was imported as."""
    return {value.__module__.partition(".")[0] for value in _IMPORTED.values()}


def found_of(imported: object) -> Found | None:
    """Return where an object comes from, if it was imported from outside code."""
    return _FOUND.get(id(imported))
