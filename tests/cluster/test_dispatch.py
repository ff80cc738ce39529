"""Who is to blame for the deaths of an actor."""

import time
from types import SimpleNamespace

import pytest
from ray.exceptions import ActorDiedError, OutOfMemoryError

from fedgps_ray.cluster import dispatch
from fedgps_ray.cluster.dispatch import Call, Dispatcher, Seat, Unit
from fedgps_ray.cluster.policy import RetryPolicy
from fedgps_ray.errors import ClientFailed, Lost

DIED, NO_MEMORY = ActorDiedError(), OutOfMemoryError("killed by the memory monitor")


def die(*deaths):
    """Let an actor die again and again while it does the same work, on these nodes."""
    unit = Unit(lambda arguments: None, 1.0, "client 2")
    state = SimpleNamespace(policy=RetryPolicy(), restarts=0, waiting=[], _set_up=lambda seat: None)
    for node, death in deaths:
        seat = Seat(None, "worker-0", {"node": node}, calls={"call": Call([unit], [])})
        Dispatcher._bury(state, seat, death)


@pytest.mark.parametrize(
    ("deaths", "kind"),
    [
        ([("here", DIED)] * 3, ClientFailed),
        ([("here", DIED), ("there", DIED), ("here", DIED)], ClientFailed),
        ([("here", DIED), ("gone", DIED), ("here", DIED)], Lost),
        ([("here", DIED), ("here", DIED), ("here", NO_MEMORY)], Lost),
    ],
)
def test_what_dies_with_its_node_or_for_want_of_memory_is_not_to_blame(deaths, kind, monkeypatch):
    nodes = [{"NodeID": name, "Alive": name != "gone"} for name in ("here", "there", "gone")]
    monkeypatch.setattr(dispatch.ray, "nodes", lambda: nodes)
    with pytest.raises(kind, match="client 2: its actor died 3 times"):
        die(*deaths)


def test_two_deaths_are_not_enough():
    die(("here", DIED), ("here", DIED))


def test_what_actors_died_with_is_alone_in_the_next_one():
    """The answer of a unit may be lost because the next one kills the actor."""
    units = [Unit(lambda arguments: None, 1.0, f"client {i}", deaths=i < 2) for i in range(4)]
    seat, now = Seat(None, "worker-0"), time.monotonic()
    state = SimpleNamespace(
        policy=RetryPolicy(),
        seats=[seat],
        waiting=[(now, unit) for unit in units],
        _is_gone=lambda unit: False,
        _call=lambda seat, units: seat.calls.update({units[0].name: Call(units, [])}),
    )
    together = []
    while state.waiting:
        seat.calls.clear()
        Dispatcher._hand_out_waiting(state)
        together.append(list(seat.calls))
    assert together == [["client 0"], ["client 1"], ["client 2", "client 3"]]
