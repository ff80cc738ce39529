"""Keys read one by one from a terminal, as soon as they are pressed.

Read by hand: five keys need no framework for whole applications, and `watch` starts at once.
"""

import contextlib
import os
import select
import sys
from collections.abc import Callable, Iterator

try:
    import termios
    import tty
except ImportError:  # a system without terminals of this kind: no keys
    termios = tty = None  # type: ignore[assignment]

LONGEST = 16  # bytes of an escape sequence
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
    tty.setcbreak(handle)
    try:
        yield lambda seconds: _key(handle, seconds)
    finally:
        termios.tcsetattr(handle, termios.TCSADRAIN, before)


def _key(handle: int, seconds: float) -> str | None:
    if not select.select([handle], [], [], max(0.0, seconds))[0]:
        return None
    told = os.read(handle, LONGEST).decode(errors="ignore")
    return ARROWS.get(told, told[:1] if told[:1] != "\x1b" or len(told) == 1 else None)
