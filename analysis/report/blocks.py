"""What a report is made of, whatever it is written as."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from matplotlib.figure import Figure

from fedgps_ray.analysis.figures.chart import Chart
from fedgps_ray.analysis.tables import Table
from fedgps_ray.errors import UserError


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
    """A chart, the name of its files and what it shows; `figure` draws the files another way."""

    name: str
    chart: Chart
    caption: str
    figure: Callable[[], Figure] | None = None
    kind: Literal["picture"] = "picture"


Block = Text | Points | Code | Shown | Picture


@dataclass(frozen=True)
class Section:
    """A heading and the blocks below it; of one data set, if it shows one setting."""

    title: str
    slug: str
    blocks: list[Block] = field(default_factory=list)
    dataset: str = ""


@dataclass(frozen=True)
class Filter:
    """A choice of what the page shows: values with their texts."""

    name: Literal["dataset", "setting", "method"]
    choices: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Report:
    """A title, a verdict, some facts, and sections."""

    title: str
    lead: tuple[str, ...]
    sections: list[Section]
    files: dict[str, str] = field(default_factory=dict)  # name -> text, written beside the report
    verdict: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()
    reload: int = 0  # seconds after which the page loads itself again; 0: never
    written: str = ""  # the time of day, of a page that reloads

    @property
    def filters(self) -> list[Filter]:
        """The choices that there are."""
        own = [section for section in self.sections if section.dataset]
        datasets = dict.fromkeys(section.dataset for section in own)
        choices = [
            Filter("dataset", tuple((name, name) for name in datasets)),
            Filter("setting", tuple((section.slug, section.title) for section in own)),
            Filter("method", tuple((name, name) for name in self.methods)),
        ]
        return [choice for choice in choices if len(choice.choices) > 1]


def drawn(name: str, caption: str, draw: Callable[[], Chart], say: bool = True) -> list[Block]:
    """Return the figure, or (if asked to say it) why there is none."""
    try:
        return [Picture(name, draw(), caption)]
    except UserError as problem:
        what = re.split("[:;]", caption)[0].lower()
        return [Text(f"No figure ({what}): {problem}.")] if say else []


def points(lines: list[str]) -> list[Block]:
    """Return a list, if there is anything in it."""
    return [Points(tuple(lines))] if lines else []
