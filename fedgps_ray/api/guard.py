"""Consoles that print text from results folders, and let none of it control the terminal."""

from collections.abc import Iterator
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from fedgps_ray.units import printable


class GuardedConsole(Console):
    """Lets nothing reach a terminal but what it shows: texts may come from anybody's folder.

    All that is printed goes through render, also what a live view or a status line shows. Words
    between colons stay words: a path with :x: in it is to be copied as it is.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(emoji=False, **options)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterator[Segment]:
        """Yield the parts to print, without control characters or links of their own."""
        for part in super().render(renderable, options):
            yield part if part.control else _harmless(part)


def _harmless(part: Segment) -> Segment:
    style = part.style
    if style is not None and style.link is not None:
        style = style.update_link(None)
    return Segment(printable(part.text), style)
