"""The one exception that is shown to a user as a message instead of a traceback."""

import difflib
from collections.abc import Iterable


class UserError(ValueError):
    """Something the user can mend: the message says what was given and what to do."""


def unknown(kind: str, given: str, known: Iterable[str]) -> UserError:
    """Return an error for a name that does not exist, suggesting the nearest one."""
    names = list(known)
    near = difflib.get_close_matches(given, names, n=1)
    hint = f" Did you mean '{near[0]}'?" if near else ""
    return UserError(f"unknown {kind} '{given}'.{hint} Known: {', '.join(names)}")
