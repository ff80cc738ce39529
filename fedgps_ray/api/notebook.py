"""Where progress is shown: a terminal, a notebook, or nowhere."""

import io
import sys
from typing import Literal

from rich.console import Console

from fedgps_ray.api.guard import GuardedConsole

Progress = Literal["auto"] | bool


class _OneLine(io.StringIO):
    """Shows what is printed in one line that changes, as notebooks without widgets can."""

    def __init__(self) -> None:
        super().__init__()
        self.shown = 0

    def write(self, text: str) -> int:
        """Replace the line."""
        for line in filter(None, text.splitlines()):
            sys.stdout.write("\r" + line.ljust(self.shown))
            self.shown = len(line)
        sys.stdout.flush()
        return len(text)


def console_for(progress: Progress) -> Console:
    """Return where to print progress."""
    console = GuardedConsole(stderr=True)
    if progress == "auto" and console.is_jupyter:
        one_line = _OneLine()
        return GuardedConsole(file=one_line, force_jupyter=False, force_terminal=False, width=120)
    shown = console.is_terminal if progress == "auto" else progress
    return console if shown else Console(quiet=True)
