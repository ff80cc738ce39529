"""Which actor does which work: a pure function of costs, owners and loads."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Placement(NamedTuple):
    """Work by its number: for each actor in the order of doing, and what has to wait."""

    calls: dict[int, list[int]]
    waiting: list[int]


def place(
    costs: Sequence[float], owners: Sequence[int | None], loads: Mapping[int, float]
) -> Placement:
    """Give the longest work first to whoever has least to do; of equals to the lower number.

    loads: what each actor that is ready has still to do. Work with an owner goes to that actor
    alone, and waits while it is not ready.
    """
    loads, placement = dict(loads), Placement({}, [])
    for number in sorted(range(len(costs)), key=lambda number: -costs[number]):
        owner = owners[number]
        able = loads if owner is None else loads.keys() & {owner}
        if not able:
            placement.waiting.append(number)
            continue
        actor = min(able, key=lambda actor: (loads[actor], actor))
        loads[actor] += costs[number]
        placement.calls.setdefault(actor, []).append(number)
    return placement
