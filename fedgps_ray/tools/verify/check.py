"""What a check is, and how it becomes a proof."""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

Value: TypeAlias = "float | str | tuple[Value, ...]"


class Check(NamedTuple):
    """A claim about a method, and how to test it; with tolerance 0 both must be equal."""

    method: str
    claim: str
    run: Callable[[], tuple[Value, Value]]  # expected and got
    tolerance: float = 0.0


class Proof(NamedTuple):
    """What came of a check."""

    method: str
    claim: str
    expected: str
    got: str
    holds: bool


def stated(
    method: str, claim: str, expected: Value, got: Callable[[], Value], tolerance: float = 0.0
) -> Check:
    """Return a check of a number that is written down."""
    return Check(method, claim, lambda: (expected, got()), tolerance)


def prove(check: Check) -> Proof:
    """Carry out a check; an exception in it is a proof that failed."""
    try:
        expected, got = check.run()
    except Exception as problem:
        told = f"{type(problem).__name__}: {problem}"
        return Proof(check.method, check.claim, "no exception", told, False)
    holds = agree(expected, got, check.tolerance)
    return Proof(check.method, check.claim, shown(expected), shown(got), holds)


def agree(expected: Value, got: Value, tolerance: float) -> bool:
    """Say whether two values are equal, their numbers up to the tolerance."""
    if isinstance(expected, tuple) and isinstance(got, tuple):
        pairs = zip(expected, got, strict=False)
        return len(expected) == len(got) and all(agree(a, b, tolerance) for a, b in pairs)
    if isinstance(expected, float | int) and isinstance(got, float | int):
        return abs(expected - got) <= tolerance
    return expected == got


def shown(value: Value) -> str:
    """Return a value as text; of a digest its beginning."""
    if isinstance(value, tuple):
        return f"({', '.join(shown(item) for item in value)})"
    if isinstance(value, str):
        return value[:8]
    return str(value) if isinstance(value, int) else f"{value:.8g}"
