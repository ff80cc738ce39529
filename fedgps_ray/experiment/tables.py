"""Nested tables of settings: dotted keys, what overrides what, and lists of alternatives."""

import itertools
import json
from collections.abc import Callable, Mapping
from typing import Any

from fedgps_ray.errors import UserError
from fedgps_ray.identity import SELECTORS, Settings

Table = dict[str, Any]

DEEPEST = 20  # levels of tables and lists
TOO_DEEP = f"nested too deeply: at most {DEEPEST} levels"


def is_whole(key: str, value: Settings) -> bool:
    """Say whether a table has a name or kind of its own, and so replaces the one before it."""
    return SELECTORS.get(key) in value


def flat(
    table: Settings,
    stop: Callable[[str, Settings], bool] = is_whole,
    prefix: str = "",
) -> Table:
    """Return a table by dotted keys; tables at which to stop are kept as values."""
    values: Table = {}
    for key, value in table.items():
        full = f"{prefix}{key}"
        if isinstance(value, Mapping) and not stop(full, value):
            values |= flat(value, stop, f"{full}.")
        else:
            values[full] = value
    return values


def put(values: Table, key: str, value: object) -> None:
    """Set a dotted key; a plain name is turned into a table where one is needed."""
    *parents, last = key.split(".")
    for parent in parents:
        held = values.get(parent, {})
        whole = isinstance(held, Mapping)
        values[parent] = dict(held) if whole else {SELECTORS.get(parent, "name"): held}
        values = values[parent]
    values[last] = value


def merged(*tables: Settings) -> Table:
    """Return one nested table from several with dotted keys, the later ones winning."""
    values: Table = {}
    for table in tables:
        for key in sorted(table, key=lambda key: key.count(".")):  # a method before its options
            put(values, key, table[key])
    return values


def alternatives(value: object) -> list[object]:
    """Return all single values that a value with lists in it stands for."""
    if isinstance(value, list):
        return [each for item in value for each in alternatives(item)]
    if isinstance(value, Mapping):
        options = [alternatives(item) for item in value.values()]
        return [dict(zip(value, chosen, strict=True)) for chosen in itertools.product(*options)]
    return [value]


def parse_setting(setting: str) -> tuple[str, object]:
    """Return key and value of KEY=VALUE; the value is JSON, or else a plain word."""
    key, equals, text = setting.partition("=")
    if not equals or not all(key.strip().split(".")):
        raise UserError(f"--set {setting}: expected KEY=VALUE, such as --set method.rho=0.3")
    try:
        parsed = key.strip(), json.loads(text)
    except json.JSONDecodeError:
        parsed = key.strip(), text
    except RecursionError:
        raise UserError(f"--set {key}: {TOO_DEEP}") from None
    if key.count(".") >= DEEPEST or is_too_deep(parsed[1]):
        raise UserError(f"--set {key[:60]}: {TOO_DEEP}")
    return parsed


def is_too_deep(value: object) -> bool:
    """Say whether a value is nested deeper than any setting."""
    level = [value]
    for _ in range(DEEPEST):
        level = [inner for outer in level for inner in _inside(outer)]
        if not level:
            return False
    return True


def _inside(value: object) -> list[object]:
    if isinstance(value, Mapping):
        return list(value.values())
    return value if isinstance(value, list) else []
