"""Exceptions that are shown to a user as a message instead of a traceback."""

import difflib
from collections.abc import Iterable


class UserError(ValueError):
    """Something the user can fix: the message says what was given and what to do."""


class ClientFailed(Exception):
    """A client's work raised an exception or its actors keep dying; ends this trial only."""


class Lost(ClientFailed):
    """The processes or nodes of a trial keep getting lost, for example for lack of memory."""


class CannotWrite(UserError, Lost):
    """Results cannot be written, for a full disk or a folder that is gone; a trial waits for it."""


class InUse(CannotWrite):
    """Another process works in the same folder."""


class Overtaken(Lost):
    """Another machine has ended the same trial at the same storage."""


class GpuFull(ClientFailed):
    """An actor's share of a GPU does not hold what it has to do; others may have more room."""


class Stopped(Exception):
    """The trial was asked to stop."""


def shown(value: object) -> str:
    """Return a value as Python writes it, if it can be written at all."""
    try:
        return repr(value)
    except (ValueError, RecursionError):  # Python refuses numbers of thousands of digits
        return f"a {type(value).__name__} that is too long"


def first_line(problem: object) -> str:
    """Return the first line of an error or a text; of an error without words its name."""
    lines = str(problem).strip().splitlines()
    return lines[0] if lines else repr(problem)


def nearest(given: str, known: Iterable[str]) -> str:
    """Return " Did you mean 'x'?" for the known name closest to a misspelt one, or nothing."""
    near = difflib.get_close_matches(given, list(known), n=1)
    return f" Did you mean '{near[0]}'?" if near else ""


def unknown(kind: str, given: str, known: Iterable[str]) -> UserError:
    """Return an error for a name that does not exist, suggesting the closest one."""
    names = list(known)
    return UserError(f"unknown {kind} '{given}'.{nearest(given, names)} Known: {', '.join(names)}")
