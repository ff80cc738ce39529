"""A random search: ranges of settings, and the values drawn from them before anything runs."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from fedgps_ray import seeds
from fedgps_ray.errors import UserError, unknown
from fedgps_ray.experiment.tables import Table, flat
from fedgps_ray.identity import Settings

SCHEDULERS = ("asha", "median", "none")
METRICS = ("accuracy", "loss")
DEFAULTS: Table = {"samples": 20, "seed": 0, "scheduler": "asha", "metric": "accuracy"}
DIGITS = 4  # significant ones of a drawn number
MOST_SAMPLES = 20_000
LARGEST = 2**53  # up to here floats are exact


class Span(NamedTuple):
    """All numbers from low to high, whole ones if both ends are; log: uniform in the logarithm."""

    low: float
    high: float
    log: bool = False

    def draw(self, seed: int, key: str, sample: int) -> float:
        """Return the number of a sample, rounded to a few digits."""
        rng = seeds.stream(seed, f"search {key}", sample)
        whole = isinstance(self.low, int) and isinstance(self.high, int)
        low, high = self.low, self.high + 1 if whole else self.high
        if self.log:
            drawn = math.exp(rng.uniform(math.log(low), math.log(high)))
        else:
            drawn = rng.uniform(low, high)
        rounded = math.floor(drawn) if whole else float(f"{drawn:.{DIGITS}g}")
        return min(max(rounded, self.low), self.high)


class Choices(NamedTuple):
    """A list of values, all equally likely."""

    choices: tuple[Any, ...]

    def draw(self, seed: int, key: str, sample: int) -> object:
        """Return the choice of a sample."""
        return self.choices[seeds.stream(seed, f"search {key}", sample).integers(len(self.choices))]


Range = Span | Choices


class Search(NamedTuple):
    """How many samples to draw from which ranges, and how poor trials are stopped early."""

    samples: int
    seed: int
    scheduler: str
    metric: str
    ranges: dict[str, Range]

    def draws(self) -> list[Table]:
        """Return the drawn settings of each sample; a longer search begins with a shorter one's."""
        return [
            {key: span.draw(self.seed, key, sample) for key, span in self.ranges.items()}
            for sample in range(self.samples)
        ]


def parse_search(table: Settings) -> Search:
    """Return the search that a table describes."""
    known = [*DEFAULTS, "ranges"]
    for key in table:
        if key not in known:
            raise unknown("key of [search]", key, known)
    given = {**DEFAULTS, **table}
    for key, lowest in (("samples", 1), ("seed", 0)):
        if not _is_whole_number(given[key]) or given[key] < lowest:
            raise UserError(
                f"search.{key}: must be a whole number from {lowest}, got {given[key]!r}"
            )
    if given["samples"] > MOST_SAMPLES:
        raise UserError(f"search.samples: at most {MOST_SAMPLES:,}, got {given['samples']:,}")
    for key, names in (("scheduler", SCHEDULERS), ("metric", METRICS)):
        if given[key] not in names:
            raise unknown(f"search.{key}", str(given[key]), names)
    return Search(**{**given, "ranges": _ranges(table.get("ranges"))})


def _ranges(given: object) -> dict[str, Range]:
    if not isinstance(given, Mapping) or not given:
        raise UserError(
            "search.ranges: say what is searched, such as [search.ranges] and below it"
            ' "method.rho" = { low = 0.1, high = 1.0 }'
        )
    ranges = flat(given, stop=lambda _, value: bool(_KEYS & set(value)))
    return {key: _range(f"search.ranges.{key}", value) for key, value in ranges.items()}


_KEYS = {"low", "high", "log", "choices"}


def _range(where: str, value: object) -> Range:
    if not isinstance(value, Mapping):
        raise UserError(
            f"{where}: must be a table {{ low, high, log }} or {{ choices }}, got {value!r}"
        )
    known = ["choices"] if "choices" in value else ["low", "high", "log"]
    for key in value:
        if key not in known:
            raise unknown(f"key of {where}", key, known)
    return _choices(where, value["choices"]) if "choices" in value else _span(where, value)


def _choices(where: str, choices: object) -> Choices:
    if not isinstance(choices, list) or not choices:
        raise UserError(f"{where}: choices must be a list with at least one value, got {choices!r}")
    return Choices(tuple(choices))


def _span(where: str, value: Settings) -> Span:
    if not all(_is_finite_number(value.get(end)) for end in ("low", "high")):
        raise UserError(f"{where}: low and high must be numbers, got {dict(value)!r}")
    low, high, log = value["low"], value["high"], value.get("log", False)
    if not isinstance(log, bool):
        raise UserError(f"{where}: log must be true or false, got {log!r}")
    if low >= high:
        raise UserError(f"{where}: low must be below high, got {low} and {high}")
    if log and low <= 0:
        raise UserError(f"{where}: with log, low must be above 0, got {low}")
    return Span(low, high, log)


def _is_whole_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_finite_number(value: Any) -> bool:
    number = _is_whole_number(value) or isinstance(value, float)
    return number and abs(value) <= LARGEST  # false for NaN
