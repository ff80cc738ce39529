"""Units of work over actors: longest first, again after a death, until all are done."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import ray
from ray.exceptions import OutOfMemoryError, RayActorError

from fedgps_ray.errors import ClientFailed, Stopped
from fedgps_ray.rounds.worker import Setup

TICK_SECONDS = 0.5
PATIENCE_SECONDS = 10.0  # how long a unit waits for its own actor before another takes it
READY_SECONDS = 15.0  # how long a trial waits for the next actor once it has one
SET_UP_SECONDS = 60.0  # how long it tries when it has none; a lost node is noticed within 30
MAX_DEATHS = 3  # of actors while they worked on the same unit
DEATH = (RayActorError, OutOfMemoryError)


class Shared(NamedTuple):
    """A trial's setup in the object store, its data set apart: trials may share that."""

    clients: int
    setup: Any
    data: Any


def share(setup: Setup, data: Any = None) -> Shared:
    """Put a setup into the object store, and its data set unless that is there already."""
    bare = setup._replace(data=None)  # type: ignore[arg-type]
    lies = ray.put(setup.data) if data is None else data
    return Shared(setup.spec.clients, ray.put(bare), lies)


class Arguments:
    """The references that a call hands to an actor, each once."""

    def __init__(self) -> None:
        self.references: list[Any] = []

    def add(self, reference: Any) -> int:
        """Return the number of a reference among the arguments."""
        if reference not in self.references:
            self.references.append(reference)
        return self.references.index(reference)


@dataclass
class Unit:
    """A piece of work that any actor can do, and do again with the same result."""

    plan: Callable[[Arguments], Any]
    cost: float
    name: str
    own_actor: int | None = None
    apart: bool = False
    deaths: int = 0
    result: Any = None
    is_done: bool = False


@dataclass
class Seat:
    """An actor as the dispatcher sees it."""

    handle: Any
    name: str
    facts: dict[str, Any] = field(default_factory=dict)
    setting_up: Any = None
    calls: dict[Any, tuple[list[Unit], list[Any]]] = field(default_factory=dict)
    failing_since: float | None = None
    ping: Any = None
    pinged: float = 0.0

    @property
    def is_ready(self) -> bool:
        """Whether the actor is set up and, as far as known, alive."""
        return self.setting_up is None

    @property
    def load(self) -> float:
        """Cost of what the actor has still to do."""
        return sum(unit.cost for units, _ in self.calls.values() for unit in units)


class Dispatcher:
    """Hands units to actors and waits for them."""

    def __init__(
        self, handles: Sequence[Any], shared: Shared, device: str, hang_seconds: float
    ) -> None:
        self.shared, self.device, self.hang_seconds = shared, device, hang_seconds
        # with one for every client, actor i is client i
        kind = "client" if len(handles) == shared.clients else "worker"
        self.seats = [Seat(handle, f"{kind}-{i}") for i, handle in enumerate(handles)]
        self.waiting: list[tuple[float, Unit]] = []
        self.restarts = 0
        self.stopping = False
        for seat in self.seats:
            self._set_up(seat)

    # --- handing out ----------------------------------------------------------------------------

    def submit(self, units: Sequence[Unit]) -> None:
        """Hand out units, the longest first, to whoever has least to do; one call an actor."""
        shares: dict[int, list[Unit]] = {}
        loads = {i: seat.load for i, seat in enumerate(self.seats) if seat.is_ready}
        for unit in sorted(units, key=lambda unit: -unit.cost):
            number = self._choose(unit, loads)
            if number is None:
                self.waiting.append((time.monotonic(), unit))
                continue
            loads[number] += unit.cost
            shares.setdefault(number, []).append(unit)
        for number, share in shares.items():
            self._call(self.seats[number], share)

    def _choose(self, unit: Unit, loads: dict[int, float]) -> int | None:
        if unit.own_actor is not None:
            return unit.own_actor if unit.own_actor in loads else None
        return min(loads, key=lambda number: (loads[number], number)) if loads else None

    def _call(self, seat: Seat, units: list[Unit]) -> None:
        arguments = Arguments()
        plans = [unit.plan(arguments) for unit in units]
        apart = units[0].apart
        method = seat.handle.do.options(num_returns=1 + 2 * len(units) if apart else 1)
        references = method.remote(plans, apart, *arguments.references)
        references = references if isinstance(references, list) else [references]
        if not seat.calls:
            seat.pinged = time.monotonic()
        seat.calls[references[0]] = (units, references)

    def _set_up(self, seat: Seat) -> None:
        _, setup, data = self.shared
        seat.setting_up = seat.handle.setup.remote(seat.name, self.device, setup, data)

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
            before, ready = ready, sum(seat.is_ready for seat in self.seats)
            if ready != before:
                since = time.monotonic()
            elif ready and time.monotonic() - since > READY_SECONDS:
                return

    def tick(self) -> None:
        """Take in what has happened, or wait a moment for something to happen."""
        if self.stopping:
            raise Stopped
        watched = {seat.setting_up: seat for seat in self.seats if not seat.is_ready}
        watched |= {first: seat for seat in self.seats for first in seat.calls}
        if watched:
            ray.wait(list(watched), timeout=TICK_SECONDS)
            ready, _ = ray.wait(list(watched), num_returns=len(watched), timeout=0)
        else:
            time.sleep(TICK_SECONDS)
            ready = []
        for reference in ready:
            self._take(watched[reference], reference)
        self._hand_out_waiting()
        self._watch_for_hangs()

    def _take(self, seat: Seat, reference: Any) -> None:
        if reference == seat.setting_up:
            self._take_set_up(seat)
        elif reference in seat.calls:
            self._take_results(seat, reference)

    def _take_set_up(self, seat: Seat) -> None:
        try:
            seat.facts = ray.get(seat.setting_up)
        except DEATH as death:
            self._set_up_again(seat, death)
            return
        seat.setting_up = seat.failing_since = None

    def _set_up_again(self, seat: Seat, death: Exception) -> None:
        """Try once more, unless there is no other actor either and it has gone on for long."""
        seat.failing_since = seat.failing_since or time.monotonic()
        alone = not any(other.is_ready for other in self.seats)
        if alone and time.monotonic() - seat.failing_since > SET_UP_SECONDS:
            raise ClientFailed(f"no actor can be set up: {death}") from death
        time.sleep(0.1)
        self._set_up(seat)

    def _take_results(self, seat: Seat, reference: Any) -> None:
        try:
            results = ray.get(reference)
        except DEATH as death:
            self._bury(seat, death)
            return
        units, references = seat.calls.pop(reference)
        for number, (unit, result) in enumerate(zip(units, results, strict=True)):
            kept = references[1 + 2 * number : 3 + 2 * number]
            unit.result, unit.is_done = (result, *kept) if kept else result, True

    def _bury(self, seat: Seat, death: Exception) -> None:
        """Take back what a dead actor had to do; Ray restarts it, and it is set up anew."""
        calls = [units for units, _ in seat.calls.values()]
        seat.calls, seat.ping = {}, None
        self.restarts += 1
        for unit in calls[0]:  # the later calls had not begun: what is in them is not to blame
            unit.deaths += 1
            if unit.deaths >= MAX_DEATHS:
                raise ClientFailed(
                    f"{unit.name}: its actor died {unit.deaths} times while working on it ({death})"
                )
        self.waiting += [(time.monotonic(), unit) for units in calls for unit in units]
        self._set_up(seat)

    def _hand_out_waiting(self) -> None:
        """Give lost units to their own actor once it is back, after a while to any; one a call."""
        still, self.waiting = self.waiting, []
        for since, unit in still:
            loads = {i: seat.load for i, seat in enumerate(self.seats) if seat.is_ready}
            if time.monotonic() - since > PATIENCE_SECONDS:
                unit.own_actor = None
            number = self._choose(unit, loads)
            if number is None:
                self.waiting.append((since, unit))
            else:
                self._call(self.seats[number], [unit])

    def _watch_for_hangs(self) -> None:
        now = time.monotonic()
        for seat in self.seats:
            if not (seat.is_ready and seat.calls):
                seat.ping = None
            elif seat.ping is None:
                if now - seat.pinged > self.hang_seconds / 3:
                    seat.ping, seat.pinged = seat.handle.ping.remote(), now
            elif ray.wait([seat.ping], timeout=0)[0]:
                seat.ping, seat.pinged = None, now
            elif now - seat.pinged > self.hang_seconds:
                ray.kill(seat.handle, no_restart=False)
                seat.ping, seat.pinged = None, now

    def in_flight(self) -> list[str]:
        """Return the names of the units that are being worked on."""
        calls = [units for seat in self.seats for units, _ in list(seat.calls.values())]
        return [unit.name for units in calls for unit in units if not unit.is_done]
