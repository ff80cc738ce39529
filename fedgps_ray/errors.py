"""Exceptions that are shown to a user as a message instead of a traceback."""

import difflib
from collections.abc import Iterable


class UserError(ValueError):
    """Something the user can mend: the message says what was given and what to do."""


class ClientFailed(Exception):
    """A client's work raised an exception, or its actors keep dying; ends one trial, not others."""


class Lost(ClientFailed):
    """What a trial runs on keeps being lost: memory is short, or nodes go; not its own fault."""


class Stopped(Exception):
    """Somebody asked the trial to stop."""


def nearest(given: str, known: Iterable[str]) -> str:
    """Return " Did you mean 'x'?" for the known name nearest to a misspelt one, or nothing."""
    near = difflib.get_close_matches(given, list(known), n=1)
    return f" Did you mean '{near[0]}'?" if near else ""


def unknown(kind: str, given: str, known: Iterable[str]) -> UserError:
    """Return an error for a name that does not exist, suggesting the nearest one."""
    names = list(known)
    return UserError(f"unknown {kind} '{given}'.{nearest(given, names)} Known: {', '.join(names)}")
