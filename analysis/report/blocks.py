"""What a report is made of, whatever it is written as."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from matplotlib.figure import Figure

from fedgps_ray.analysis.tables import Table
from fedgps_ray.errors import UserError

SCREEN_DPI = 96


@dataclass(frozen=True)
class Text:
    """A paragraph."""

    text: str
    kind: Literal["text"] = "text"


@dataclass(frozen=True)
class Points:
    """A list of sentences."""

    lines: tuple[str, ...]
    kind: Literal["points"] = "points"


@dataclass(frozen=True)
class Code:
    """Text that is shown as it is, under a line that says what it is."""

    summary: str
    text: str
    kind: Literal["code"] = "code"


@dataclass(frozen=True)
class Shown:
    """A table and the name of its files."""

    name: str
    table: Table
    kind: Literal["table"] = "table"


@dataclass(frozen=True)
class Picture:
    """A figure, the name of its files and what it shows."""

    name: str
    figure: Figure
    caption: str
    kind: Literal["picture"] = "picture"

    @property
    def width(self) -> int:
        """How wide it is on a screen, in pixels."""
        return round(float(self.figure.get_size_inches()[0]) * SCREEN_DPI)


Block = Text | Points | Code | Shown | Picture


@dataclass(frozen=True)
class Section:
    """A heading and what stands under it."""

    title: str
    slug: str
    blocks: list[Block] = field(default_factory=list)


@dataclass(frozen=True)
class Report:
    """A title, some sentences, and sections."""

    title: str
    lead: tuple[str, ...]
    sections: list[Section]
    files: dict[str, str] = field(default_factory=dict)  # name -> text, written beside the report


def drawn(name: str, caption: str, draw: Callable[[], Figure], say: bool = True) -> list[Block]:
    """Return the figure, or (if asked to say it) why there is none."""
    try:
        return [Picture(name, draw(), caption)]
    except UserError as problem:
        return [Text(f"No figure ({caption.split(':')[0].lower()}): {problem}.")] if say else []


def points(lines: list[str]) -> list[Block]:
    """Return a list, if there is anything in it."""
    return [Points(tuple(lines))] if lines else []
