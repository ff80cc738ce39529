"""What a running trial reports to its owner, which does not need to import PyTorch for it."""

from collections.abc import Sequence
from typing import Any, NamedTuple

Row = dict[str, Any]


class Started(NamedTuple):
    """The first event of a trial: how many rounds were already done, and what was wrong on disk."""

    rounds_done: int
    problems: list[str]


class Status(NamedTuple):
    """What a trial does between two rows: clients in progress, actors restarted so far."""

    what: str
    in_flight: Sequence[str] = ()
    restarts: int = 0


Event = Started | Row | Status
