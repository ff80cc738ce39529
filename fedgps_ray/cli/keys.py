"""Keys read one by one from a terminal, as soon as they are pressed.

Read by hand: five keys need no framework for whole applications, and `watch` starts at once.
"""

import contextlib
import os
import re
import select
import sys
from collections.abc import Callable, Iterator

try:
    import termios
    import tty
except ImportError:  # a system without terminals of this kind: no keys
    termios = tty = None  # type: ignore[assignment]

MOST = 1024  # bytes read at once
SEQUENCE = re.compile(r"\x1b[\[O][0-9;]*[A-Za-z~]|.", re.DOTALL)
ARROWS = {
    "\x1b[A": "up",
    "\x1b[B": "down",
    "\x1bOA": "up",
    "\x1bOB": "down",
    "\x1b[5~": "page up",
    "\x1b[6~": "page down",
    "\x1b[H": "home",
    "\x1b[F": "end",
}

Wait = Callable[[float], str | None]


def can_read() -> bool:
    """Say whether keys can be read here."""
    try:
        return termios is not None and os.isatty(sys.stdin.fileno())
    except (OSError, ValueError):  # standard input is closed, or is no file
        return False


@contextlib.contextmanager
def pressed() -> Iterator[Wait]:
    """Give a function that waits for a key for some seconds; the terminal is put back later."""
    handle = sys.stdin.fileno()
    before = termios.tcgetattr(handle)
    tty.setcbreak(handle, termios.TCSADRAIN)  # keeps what was typed already
    waiting: list[str] = []  # keys that came together with another
    try:
        yield lambda seconds: _key(handle, seconds, waiting)
    finally:
        termios.tcsetattr(handle, termios.TCSADRAIN, before)


def _key(handle: int, seconds: float, waiting: list[str]) -> str | None:
    if not waiting and select.select([handle], [], [], max(0.0, seconds))[0]:
        waiting += split(os.read(handle, MOST).decode(errors="ignore"))
    return waiting.pop(0) if waiting else None


def split(told: str) -> list[str]:
    """Return the keys in what a terminal sent: characters, and names for escape sequences."""
    keys = SEQUENCE.findall(told)
    return [ARROWS.get(key, key) for key in keys if len(key) == 1 or key in ARROWS]
