"""Methods from outside the package: checked when they are named, made from checked options."""

import dataclasses
from typing import Any, get_type_hints

from pydantic import TypeAdapter, ValidationError
from pydantic.dataclasses import is_pydantic_dataclass

from fedgps_ray.errors import UserError, unknown
from fedgps_ray.identity import Settings, Table
from fedgps_ray.methods.base import Method, missing
from fedgps_ray.references import Code, found_of, give_object, given
from fedgps_ray.references.failures import failed

RESERVED = ("name", "code", "preset")
SEE = "docs/adding-a-method.md shows one"


def kind_of(code: Code) -> type[Method]:
    """Import the class of a method, and check that it is one."""
    kind = given(code)
    _check(kind, code.name)
    checked: type[Method] = kind
    return checked


def _check(kind: object, name: str) -> None:
    if not isinstance(kind, type):
        raise UserError(f"{name} is not a method: it is a function, not a class; {SEE}")
    abstract = sorted(getattr(kind, "__abstractmethods__", ()))
    lacking = [member for member in missing(kind) if not member.startswith("__")] + abstract
    if lacking:
        raise UserError(
            f"{name} is not a method: it lacks {', '.join(lacking)}; all but init, send, work and"
            f" merge come with the parent class fedgps_ray.methods.base:BaseMethod; {SEE}"
        )
    if not dataclasses.is_dataclass(kind) or not _is_frozen(kind):
        raise UserError(
            f"{name} must be a frozen dataclass, so that it keeps nothing in self:"
            " write @dataclass(frozen=True) above the class"
        )
    taken = [field.name for field in dataclasses.fields(kind) if field.name in RESERVED]
    if taken:
        raise UserError(f"{name}: no option can be called {taken[0]}")


def _is_frozen(kind: Any) -> bool:
    return bool(kind.__dataclass_params__.frozen)


def make(kind: type[Method], name: str, options: Settings) -> Method:
    """Make a method; options that it does not know, or of another type, are refused."""
    known = [field.name for field in dataclasses.fields(kind) if field.init]
    for key in options:
        if key not in known:
            raise unknown(f"setting of {name}", key, ["preset", *known])
    if not is_pydantic_dataclass(kind):
        options = _checked(kind, options)
    try:
        return kind(**options)
    except (ValidationError, UserError):
        raise
    except Exception as problem:  # the user's code can raise anything
        raise failed(f"{name} cannot be made with {dict(options)}", problem) from None


def _checked(kind: type[Method], options: Settings) -> Table:
    """Return the options of a plain dataclass in the types that it declares."""
    hints = get_type_hints(kind, include_extras=True)
    return {key: _value(hints[key], key, value) for key, value in options.items()}


def _value(hint: Any, key: str, value: Any) -> Any:
    try:
        return TypeAdapter(hint).validate_python(value)
    except ValidationError as problem:
        reason = problem.errors()[0]["msg"].replace("Input should be", "must be")
        raise UserError(f"method.{key}: {reason[:1].lower()}{reason[1:]}, got {value!r}") from None


def reimported(method: Method) -> Method:
    """Return a method of a class of the user's as other processes have it: from its source."""
    if found_of(type(method)) is not None:
        return method
    kind = kind_of(give_object(type(method), "method"))
    fields = [field.name for field in dataclasses.fields(kind) if field.init]
    return kind(**{name: getattr(method, name) for name in fields})
