"""Nested tables of settings: dotted keys, what overrides what, and lists of alternatives."""

import itertools
import json
import math
from collections.abc import Callable, Mapping
from typing import Any

from fedgps_ray.errors import UserError
from fedgps_ray.identity import SELECTORS, Settings
from fedgps_ray.units import is_text, printable

Table = dict[str, Any]

DEEPEST = 20  # levels of tables and lists
LONGEST_BITS = 1024  # of a whole number: as large as the largest float
TOO_LONG = "a number has too many digits"
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


def number_of_alternatives(value: object) -> int:
    """Return how many alternatives there are, without making them."""
    if isinstance(value, list):
        return sum(map(number_of_alternatives, value))
    if isinstance(value, Mapping):
        return math.prod(map(number_of_alternatives, value.values()))
    return 1


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
    value = _parsed(key, text)
    if problem := TOO_DEEP if key.count(".") >= DEEPEST else oddity([key, value]):
        raise UserError(f"--set {printable(key[:60])}: {problem}")
    return key.strip(), value


def _parsed(key: str, text: str) -> object:
    try:
        return json.loads(text, object_pairs_hook=_once_each)
    except UserError as problem:
        raise UserError(f"--set {key}: {problem}") from None
    except json.JSONDecodeError:
        return text
    except ValueError:  # Python reads no number of thousands of digits
        raise UserError(f"--set {key}: {TOO_LONG}") from None
    except RecursionError:
        raise UserError(f"--set {key}: {TOO_DEEP}") from None


def _once_each(pairs: list[tuple[str, Any]]) -> Table:
    """Return a table of JSON; refuse a key that is there twice, as only one value could count."""
    table = dict(pairs)
    if len(table) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise UserError(f"the key {twice!r} is there twice")
    return table


def oddity(value: object) -> str | None:
    """Return why a value can be no setting at all, to any depth; None if it may be one."""
    level = [value]
    for _ in range(DEEPEST):
        if any(isinstance(each, int) and each.bit_length() > LONGEST_BITS for each in level):
            return TOO_LONG
        if not all(is_text(each) for each in level if isinstance(each, str)):
            return "a text has a zero byte or half of a character"
        level = [inner for outer in level for inner in _inside(outer)]
        if not level:
            return None
    return TOO_DEEP


def _inside(value: object) -> list[object]:
    if isinstance(value, Mapping):
        return [*value, *value.values()]
    return value if isinstance(value, list) else []
