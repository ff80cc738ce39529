"""What a check is, and how it becomes a proof."""

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias

DIGEST = re.compile("[0-9a-f]{16,}")
Value: TypeAlias = "float | str | tuple[Value, ...]"


class Check(NamedTuple):
    """A claim about a method, and how to test it; with tolerance 0 both values must be equal."""

    method: str
    claim: str
    run: Callable[[], tuple[Value, Value]]  # expected and got
    tolerance: float = 0.0


class Proof(NamedTuple):
    """The result of a check."""

    method: str
    claim: str
    expected: str
    got: str
    holds: bool


class Stated(NamedTuple):
    """A value that is written down, and how to compute it."""

    expected: Value
    got: Callable[[], Value]
    tolerance: float = 1e-9

    def both(self) -> tuple[Value, Value]:
        """Return the expected and the computed value."""
        return self.expected, self.got()


Claims = Mapping[str, Stated]  # by what is claimed


def stated(**claims_of: Claims) -> list[Check]:
    """Return the checks of the claims about each method."""
    return [
        Check(method, claim, value.both, value.tolerance)
        for method, claims in claims_of.items()
        for claim, value in claims.items()
    ]


def prove(check: Check) -> Proof:
    """Run a check; an exception means that the claim does not hold."""
    try:
        expected, got = check.run()
    except Exception as problem:  # whatever a broken method raises is shown as the result
        error = f"{type(problem).__name__}: {problem}"
        return Proof(check.method, check.claim, "no exception", error, False)
    holds = agree(expected, got, check.tolerance)
    return Proof(check.method, check.claim, shown(expected), shown(got), holds)


def agree(expected: Value, got: Value, tolerance: float) -> bool:
    """Tell whether two values are equal, numbers up to the tolerance."""
    if isinstance(expected, tuple) and isinstance(got, tuple):
        pairs = zip(expected, got, strict=False)
        return len(expected) == len(got) and all(agree(a, b, tolerance) for a, b in pairs)
    if isinstance(expected, float | int) and isinstance(got, float | int):
        return abs(expected - got) <= tolerance
    return expected == got


def shown(value: Value) -> str:
    """Return a value as text; a digest is shortened to its first characters."""
    if isinstance(value, tuple):
        return f"({', '.join(shown(item) for item in value)})"
    if isinstance(value, str):
        return value[:8] if DIGEST.fullmatch(value) else value
    return str(value) if isinstance(value, int) else f"{value:.8g}"
