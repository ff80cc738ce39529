"""What a running trial tells its owner; light, so that an owner need not import PyTorch."""

from collections.abc import Sequence
from typing import Any, NamedTuple

Row = dict[str, Any]


class Started(NamedTuple):
    """The first thing a trial tells: how many rounds it found done, and what was wrong on disk."""

    rounds_done: int
    problems: list[str]


class Status(NamedTuple):
    """What a trial is doing between two rows: clients in flight, actors restarted so far."""

    what: str
    in_flight: Sequence[str] = ()
    restarts: int = 0


Event = Started | Row | Status
