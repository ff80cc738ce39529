"""Consoles that print text from results folders, and let none of it control the terminal."""

from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderHook, RenderResult
from rich.control import Control
from rich.measure import Measurement
from rich.segment import Segment

from fedgps_ray.units import printable


class Shown:
    """Lets nothing reach a terminal but what it shows: texts may come from anybody's folder."""

    def __init__(self, inner: ConsoleRenderable) -> None:
        self.inner = inner

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for part in console.render(self.inner, options):
            yield part if part.control else Segment(printable(part.text), part.style)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement.get(console, options, self.inner)


class Guard(RenderHook):
    """Wraps all that a console prints."""

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        """Return the same things to print, without control characters of their own."""
        return [each if isinstance(each, Control) else Shown(each) for each in renderables]


def guarded(console: Console) -> Console:
    """Return a console, made to print nothing but what it shows."""
    console.push_render_hook(Guard())
    return console
