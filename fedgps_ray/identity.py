"""What identifies a trial: its id, made from the settings that are not neutral, and its columns."""

import dataclasses
import functools
import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple, get_type_hints

from pydantic import BaseModel, TypeAdapter
from pydantic.fields import FieldInfo

Table = dict[str, Any]
Settings = Mapping[str, Any]

IDENTITY_VERSION = 2  # of the rule by which ids are made; 1 was a hash of all settings
ID = re.compile(r"[0-9a-f]{12}")
SELECTORS = {
    "dataset": "name",
    "model": "name",
    "method": "name",
    "partition": "kind",
    "surrogate": "kind",
}
NOT_OPTIONS = ("name", "code")  # of a method
EXACT = 2**53  # up to here a whole number is the same as int and as float
PLAIN: TypeAdapter[Any] = TypeAdapter(Any)
NOTHING: Mapping[str, str] = {}


@dataclasses.dataclass(frozen=True)
class Neutral:
    """The neutral value of a setting that has another default: Annotated[float, Neutral(0.1)].

    A neutral value is left out of the id and never changes, so whoever changes a default writes
    down the old one in this way. Of settings that come in several kinds, only the kind counts.
    """

    value: Any


class _Absent:
    """A setting without a neutral value, or nothing in it that is not neutral."""


ABSENT = _Absent()


class Label(NamedTuple):
    """A trial in words: its method, and the settings that differ within its experiment."""

    method: str
    settings: Mapping[str, str] = NOTHING

    def __str__(self) -> str:
        return ", ".join([self.method, *self.parts()])

    def parts(self, *without: str) -> list[str]:
        """Return each setting as its name and value."""
        return [f"{key} {value}" for key, value in self.settings.items() if key not in without]


_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"))


def trial_id(identity: Settings, version: int = IDENTITY_VERSION) -> str:
    """Return the id of a trial: the name of its folder, and the key to resume it."""
    return hashlib.sha256(f"{version}:{canonical(identity)}".encode()).hexdigest()[:12]


def canonical(content: object) -> str:
    """Return JSON with sorted keys: the same text for the same content."""
    return _CANONICAL.encode(content)


# --- neutral values -------------------------------------------------------------------------------


class _Value(NamedTuple):
    """A neutral value as it was declared, and as JSON."""

    declared: Any = ABSENT
    plain: Any = ABSENT


UNKNOWN = _Value()


def neutral_values(kind: type) -> Table:
    """Return the neutral values of a class of settings; of settings with kinds, only the kind."""
    return {
        name: _kind_of(value.declared) if _has_fields(value.declared) else value.plain
        for name, value in _neutral_values(kind).items()
    }


def _kind_of(value: object) -> str:
    return str(getattr(value, "kind", getattr(value, "name", type(value).__name__)))


@functools.cache
def _neutral_values(kind: type) -> dict[str, _Value]:
    declared = {name: _declared(*field) for name, field in _fields(kind).items()}
    return {
        name: _Value(value, _plain(value))
        for name, value in declared.items()
        if value is not ABSENT
    }


def _declared(default: object, annotations: tuple[object, ...]) -> object:
    return next((item.value for item in annotations if isinstance(item, Neutral)), default)


def _fields(kind: Any) -> dict[str, tuple[Any, tuple[Any, ...]]]:
    """Return default and annotations of each field of a dataclass or a pydantic model."""
    if issubclass(kind, BaseModel) or hasattr(kind, "__pydantic_fields__"):  # or inherits them
        infos = kind.model_fields if issubclass(kind, BaseModel) else kind.__pydantic_fields__
        return {name: (_default_of(info), tuple(info.metadata)) for name, info in infos.items()}
    hints = get_type_hints(kind, include_extras=True)
    return {
        field.name: (_default(field), getattr(hints[field.name], "__metadata__", ()))
        for field in dataclasses.fields(kind)
    }


def _default_of(info: FieldInfo) -> object:
    return ABSENT if info.is_required() else info.get_default(call_default_factory=True)


def _default(field: "dataclasses.Field[Any]") -> object:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return ABSENT if field.default is dataclasses.MISSING else field.default


def _plain(value: object) -> Any:
    return _numbers(PLAIN.dump_python(value, mode="json"))


def _numbers(value: object) -> Any:
    """Write equal numbers in one way: 1 for 1.0, and 0 for -0.0."""
    if isinstance(value, dict):
        return {key: _numbers(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_numbers(item) for item in value]
    if isinstance(value, float) and value.is_integer() and abs(value) <= EXACT:
        return int(value)
    return value


# --- the settings that are not neutral ------------------------------------------------------------


def identity(spec: BaseModel) -> Table:
    """Return the settings of a spec that are not neutral, as JSON."""
    return _departures(spec, _numbers(spec.model_dump(mode="json")), SELECTORS)


def _departures(settings: object, written: Table, selectors: Mapping[str, str] = NOTHING) -> Table:
    """Return what is not neutral in settings, which are given as an object and as JSON."""
    kind: type = type(settings)
    neutral, departures = _neutral_values(kind), {}
    for name, own in written.items():
        known = neutral.get(name, UNKNOWN)
        if not isinstance(own, dict) and _is_same(own, known.plain):
            continue  # most settings: no need to look further
        departure = _departure(getattr(settings, name, None), own, known, selectors.get(name))
        if departure is not ABSENT:
            departures[name] = departure
    return departures


def _departure(value: object, written: Any, neutral: _Value, selector: str | None) -> Any:
    if not _has_fields(value):
        return ABSENT if _is_same(written, neutral.plain) else written
    own = _departures(value, {key: item for key, item in written.items() if key != selector})
    if selector is not None:
        kind = written[selector]
        is_neutral = kind == _selected(neutral.plain, selector)
        return (own or ABSENT) if is_neutral else {selector: kind, **own}
    if type(value) is type(neutral.declared):
        return own or ABSENT
    return {"class": type(value).__name__, **own}  # no field can be called like a keyword


def _selected(neutral: object, selector: str) -> object:
    return neutral[selector] if isinstance(neutral, Mapping) else neutral


def _has_fields(value: object) -> bool:
    return isinstance(value, BaseModel) or (
        dataclasses.is_dataclass(value) and not isinstance(value, type)
    )


def _is_same(one: object, other: object) -> bool:
    """Say whether two values are the same JSON: true is not 1."""
    if type(one) is not type(other):
        return False
    return canonical(one) == canonical(other) if isinstance(one, list | dict) else one == other


def completed(settings: object, stored: Settings) -> Table:
    """Return stored settings, with neutral values for those that were added later."""
    kind: type = type(settings)
    table = {
        name: PLAIN.dump_python(value.declared, mode="json")
        for name, value in _neutral_values(kind).items()
    }
    for name, own in stored.items():
        part = getattr(settings, name, None)
        nested = _has_fields(part) and isinstance(own, Mapping)
        table[name] = completed(part, own) if nested else own
    return table


# --- columns --------------------------------------------------------------------------------------


def columns(trial_id: str, settings: Settings, options: Settings) -> Table:
    """Return the columns that identify a trial; every row of its results has them.

    settings: as JSON. options: the hyperparameters of the method that are not neutral.
    """
    dataset, partition = settings["dataset"], settings["partition"]
    method, optimizer = settings["method"], settings["optimizer"]
    return {
        "trial_id": trial_id,
        "dataset": dataset.get("file", "").removesuffix(".npz") or _called(dataset),
        "model": _called(settings["model"]),
        "method": method["name"],
        "method_options": json.dumps(options, sort_keys=True),
        "partition": partition["kind"],
        "alpha": partition.get("alpha"),
        "classes_per_client": partition.get("classes_per_client"),
        "scenario": settings["scenario"],
        "seed": settings["seed"],
        "clients": settings["clients"],
        "sampling_rate": settings["sampling_rate"],
        "rounds": settings["rounds"],
        "local_epochs": settings["local_epochs"],
        "batch_size": settings["batch_size"],
        "lr": optimizer["lr"],
        "weighting": method.get("weighting"),
        "client_momentum": optimizer["client_momentum"],
    }


def method_options(settings: Settings, identity: Settings) -> Table:
    """Return the hyperparameters of a method that are not neutral, as they were written."""
    method = settings["method"]
    return {key: method[key] for key in identity.get("method", {}) if key not in NOT_OPTIONS}


def _called(choice: Any) -> str:
    """Return the name of a model or data set, with the options of one from outside."""
    if isinstance(choice, str):
        return choice
    options = choice.get("options") or {}
    told = ", ".join(f"{key}={value}" for key, value in options.items())
    return f"{choice['name']}({told})" if told else str(choice["name"])
