"""Units of work over actors: longest first, again after a death, until all are done."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import ray
from ray.exceptions import OutOfMemoryError, RayActorError

from fedgps_ray.cluster.liveness import Liveness
from fedgps_ray.cluster.parcels import AnyJob
from fedgps_ray.cluster.placement import place
from fedgps_ray.cluster.policy import RetryPolicy
from fedgps_ray.cluster.session import Actor, Reference
from fedgps_ray.errors import ClientFailed, GpuFull, Lost, Stopped
from fedgps_ray.rounds.setup import Setup

DEATH = (RayActorError, OutOfMemoryError)


def all_alive(nodes: set[str]) -> bool:
    """Say whether Ray still has these nodes; what died with its node is not to blame for it."""
    return nodes <= {node["NodeID"] for node in ray.nodes() if node["Alive"]}


class Shared(NamedTuple):
    """A trial's setup in the object store, its data set apart: trials may share that."""

    clients: int
    setup: Reference
    data: Reference


def share(setup: Setup, data: Reference | None = None) -> Shared:
    """Put a setup into the object store, and its data set unless that is there already."""
    bare = setup._replace(data=None)  # type: ignore[arg-type]
    stored = ray.put(setup.data) if data is None else data
    return Shared(setup.spec.clients, ray.put(bare), stored)


class Arguments:
    """The references that a call hands to an actor, each once."""

    def __init__(self) -> None:
        self.references: list[Reference] = []

    def add(self, reference: Reference) -> int:
        """Return the number of a reference among the arguments."""
        if reference not in self.references:
            self.references.append(reference)
        return self.references.index(reference)


@dataclass
class Unit:
    """A piece of work that any actor can do, and do again with the same result."""

    on_wire: Callable[[Arguments], AnyJob]  # puts what the job needs among a call's arguments
    cost: float
    name: str
    own_actor: int | None = None
    apart: bool = False  # what a client keeps is returned apart from its reply
    deaths: int = 0
    died_on: set[str] = field(default_factory=set)  # nodes, and "" for want of memory
    result: Any = None
    is_done: bool = False


class Call(NamedTuple):
    """A call that an actor has not answered yet."""

    units: list[Unit]
    references: list[Reference]


@dataclass
class Seat:
    """An actor as the dispatcher sees it."""

    handle: Actor
    name: str
    facts: dict[str, Any] = field(default_factory=dict)
    setting_up: Reference | None = None
    calls: dict[Reference, Call] = field(default_factory=dict)
    failing_since: float | None = None
    ping: Reference | None = None
    is_retired: bool = False  # its share of a GPU is too small: it gets nothing more to do
    liveness: Liveness = field(default_factory=Liveness)

    @property
    def is_ready(self) -> bool:
        """Whether the actor is set up and, as far as known, alive."""
        return self.setting_up is None and not self.is_retired

    @property
    def load(self) -> float:
        """Cost of what the actor has still to do."""
        return sum(unit.cost for call in self.calls.values() for unit in call.units)

    def takes(self, unit: Unit) -> bool:
        """Say whether it can do a unit now; one with which an actor died has to be alone.

        Otherwise it could be blamed for what comes after it: its answer may be lost in that death.
        """
        held = [one for call in self.calls.values() for one in call.units]
        return self.is_ready and not (held and any(one.deaths for one in [unit, *held]))


class Dispatcher:
    """Hands units to actors and waits for them."""

    def __init__(
        self, handles: Sequence[Actor], shared: Shared, device: str, policy: RetryPolicy
    ) -> None:
        self.shared, self.device, self.policy = shared, device, policy
        # with one for every client, actor i is client i
        kind = "client" if len(handles) == shared.clients else "worker"
        self.seats = [Seat(handle, f"{kind}-{i}") for i, handle in enumerate(handles)]
        self.waiting: list[tuple[float, Unit]] = []
        self.last_ready = self.began = time.monotonic()
        self.pace, self.is_measured = policy.pace(), False
        self.restarts = 0
        self.stopping = False
        for seat in self.seats:
            self._set_up(seat)

    # --- handing out ----------------------------------------------------------------------------

    def submit(self, units: Sequence[Unit]) -> None:
        """Hand out units, one call an actor; those whose actor is not ready wait."""
        loads = {i: seat.load for i, seat in enumerate(self.seats) if seat.is_ready}
        costs, owners = [u.cost for u in units], [u.own_actor for u in units]
        calls, waiting = place(costs, owners, loads)
        for actor, numbers in calls.items():
            self._call(self.seats[actor], [units[number] for number in numbers])
        self.waiting += [(time.monotonic(), units[number]) for number in waiting]

    def _call(self, seat: Seat, units: list[Unit]) -> None:
        arguments = Arguments()
        jobs = [unit.on_wire(arguments) for unit in units]
        apart = units[0].apart
        call: Any = seat.handle.call.options(num_returns=1 + 2 * len(units) if apart else 1)
        references = call.remote("do", jobs, apart, *arguments.references)
        references = references if isinstance(references, list) else [references]
        seat.calls[references[0]] = Call(units, references)

    def _set_up(self, seat: Seat) -> None:
        _, setup, data = self.shared
        seat.setting_up = seat.handle.call.remote("setup", seat.name, self.device, setup, data)

    # --- waiting --------------------------------------------------------------------------------

    def wait(self, units: Sequence[Unit]) -> None:
        """Work through what happens until the units are done."""
        while not all(unit.is_done for unit in units):
            self.tick()

    def wait_ready(self) -> None:
        """Wait until every actor is set up, or the last ones seem to have lost their place."""
        ready, since = 0, time.monotonic()
        while ready < len(self.seats):
            self.tick()
            before, ready = ready, sum(seat.is_ready or seat.is_retired for seat in self.seats)
            if ready != before:
                since = time.monotonic()
            elif ready and not self.policy.keeps_waiting(ready, self._seconds_since(since)):
                return

    def tick(self) -> None:
        """Wait until something happens, or it is time to look for hangs; take in what happened."""
        if self.stopping:
            raise Stopped
        watched = {seat.setting_up: seat for seat in self.seats if seat.setting_up is not None}
        watched |= {first: seat for seat in self.seats for first in seat.calls}
        ray.wait(list(watched), timeout=self.policy.tick_seconds)
        ready, _ = ray.wait(list(watched), num_returns=len(watched), timeout=0)
        for reference in ready:
            self._take(watched[reference], reference)
        self._hand_out_waiting()
        for seat in self.seats:
            self._watch(seat)
        self._give_up_without_actors()

    def _take(self, seat: Seat, reference: Reference) -> None:
        if reference == seat.setting_up:
            self._take_set_up(seat, reference)
        elif reference in seat.calls:
            self._take_results(seat, reference)

    def _take_set_up(self, seat: Seat, reference: Reference) -> None:
        try:
            seat.facts = ray.get(reference)
        except DEATH as death:
            self._set_up_again(seat, death)
            return
        except GpuFull as problem:
            self._retire(seat, problem)
            return
        seat.setting_up = seat.failing_since = None
        if not self.is_measured:
            self.is_measured = True
            self.pace.learn(time.monotonic() - self.began)

    def _set_up_again(self, seat: Seat, death: Exception) -> None:
        """Try again, unless no other actor is ready either and this has lasted too long."""
        seat.failing_since = seat.failing_since or time.monotonic()
        seconds = self._seconds_since(seat.failing_since)
        others_ready = any(other.is_ready for other in self.seats)
        another = self.policy.after_failed_set_up(seconds, others_ready)
        if not another.again:
            raise Lost(f"no actor can be set up: {death}") from death
        time.sleep(another.pause)
        self._set_up(seat)

    def _take_results(self, seat: Seat, reference: Reference) -> None:
        try:
            results = ray.get(reference)
        except DEATH as death:
            self._bury(seat, death)
            return
        except GpuFull as problem:
            self._retire(seat, problem)
            return
        units, references = seat.calls.pop(reference)
        for number, (unit, result) in enumerate(zip(units, results, strict=True)):
            kept = references[1 + 2 * number : 3 + 2 * number]
            unit.result, unit.is_done = (result, *kept) if kept else result, True

    def _bury(self, seat: Seat, death: Exception) -> None:
        """Take back what a dead actor had to do; Ray restarts it, and it is set up again."""
        calls = [call.units for call in seat.calls.values()]
        seat.calls = {}
        self.restarts += 1
        for unit in calls[0]:  # the later calls had not begun: what is in them is not to blame
            unit.deaths += 1
            unit.died_on.add("" if isinstance(death, OutOfMemoryError) else seat.facts["node"])
            if not self.policy.after_death(unit.deaths).again:
                raise (ClientFailed if all_alive(unit.died_on) else Lost)(
                    f"{unit.name}: its actor died {unit.deaths} times while working on it ({death})"
                )
        self.waiting += [(time.monotonic(), unit) for units in calls for unit in units]
        self._set_up(seat)

    def _retire(self, seat: Seat, problem: GpuFull) -> None:
        """Go on without an actor whose GPU is full: the others there have more room then."""
        units = [unit for call in seat.calls.values() for unit in call.units]
        seat.calls, seat.setting_up, seat.is_retired = {}, None, True
        if all(other.is_retired for other in self.seats):
            raise ClientFailed(str(getattr(problem, "cause", problem)))  # Ray wraps it
        seat.handle.call.remote("release")
        self.restarts += 1
        for unit in units:
            unit.own_actor = None
        self.waiting += [(time.monotonic(), unit) for unit in units]

    def _hand_out_waiting(self) -> None:
        """Give lost units to their own actor once it is back, later to any; one unit per call."""
        still, self.waiting = self.waiting, []
        for since, unit in still:
            if time.monotonic() - since > self.policy.own_actor_seconds or self._is_gone(unit):
                unit.own_actor = None
            loads = {i: seat.load for i, seat in enumerate(self.seats) if seat.takes(unit)}
            calls, _ = place([unit.cost], [unit.own_actor], loads)
            for actor in calls:
                self._call(self.seats[actor], [unit])
            self.waiting += [] if calls else [(since, unit)]

    def _is_gone(self, unit: Unit) -> bool:
        return unit.own_actor is not None and self.seats[unit.own_actor].is_retired

    def _watch(self, seat: Seat) -> None:
        """Ping an actor that has something to do, and kill one that is silent: it is replaced."""
        is_busy = bool(seat.calls) or seat.setting_up is not None
        silence = self.policy.allowed_silence(seat.is_ready) * self.pace.slowness
        limit = silence if is_busy else None
        answered = bool(seat.liveness.is_asked and ray.wait([seat.ping], timeout=0)[0])
        step = seat.liveness.look(time.monotonic(), answered, limit)
        if step == "ping":
            seat.ping = seat.handle.control.remote("ping")
        elif step == "replace":
            ray.kill(seat.handle, no_restart=False)

    def _give_up_without_actors(self) -> None:
        if any(seat.is_ready for seat in self.seats):
            self.last_ready = time.monotonic()
        elif not self.policy.keeps_waiting(0, self._seconds_since(self.last_ready)):
            raise Lost(f"no actor was ready for {time.monotonic() - self.last_ready:.0f} s")

    def _seconds_since(self, then: float) -> float:
        """Return how long ago something was; seconds of a slow machine count less."""
        return (time.monotonic() - then) / self.pace.slowness

    def in_flight(self) -> list[str]:
        """Return the names of the units that are being worked on."""
        calls = [call.units for seat in self.seats for call in list(seat.calls.values())]
        return [unit.name for units in calls for unit in units if not unit.is_done]
