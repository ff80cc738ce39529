"""A trial on Ray: its owner reserves room, starts clients and a server, and passes on rows.

The owner may be one of many in a sweep, so it stays light: only the actors import PyTorch.
"""

import itertools
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import ray
from ray.exceptions import ActorUnavailableError, GetTimeoutError, RaySystemError, RayTaskError
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from fedgps_ray.cluster import session
from fedgps_ray.cluster.host import Host, start_actor
from fedgps_ray.cluster.liveness import Liveness
from fedgps_ray.cluster.losses import LOST, is_loss
from fedgps_ray.cluster.policy import POLICY, RetryPolicy
from fedgps_ray.cluster.session import Actor, Reference
from fedgps_ray.errors import ClientFailed, Lost, Stopped, UserError
from fedgps_ray.events import Event, Started, Status
from fedgps_ray.identity import Table
from fedgps_ray.references import Bundle

if TYPE_CHECKING:
    from fedgps_ray.spec import ExecutionSpec, TrialSpec


SERVER = "fedgps_ray.cluster.server:ServerActor"
CLIENT = "fedgps_ray.cluster.client:ClientActor"


class TrialSettings(NamedTuple):
    """What a server is to do; the specs as JSON, since their classes need PyTorch."""

    spec: dict[str, Any]
    execution: dict[str, Any]
    start_over: bool = False
    policy: RetryPolicy = POLICY
    code: Bundle = Bundle()  # from outside the package, as text


def settings_of(
    spec: "TrialSpec",
    execution: "ExecutionSpec",
    start_over: bool = False,
    policy: RetryPolicy = POLICY,
) -> TrialSettings:
    """Return what a server needs to carry out a trial."""
    patient = policy.with_hang(execution.hang_seconds)
    settings = spec.model_dump(mode="json")
    return TrialSettings(settings, execution.anywhere(), start_over, patient, Bundle(spec.code))


class ServerHost(Host):
    """The host of a server, whose trial tells what happens."""

    def stream(self, *arguments: object) -> Iterator[list[Event]]:
        """Run a trial; its events are passed on in lists."""
        yield from bunched(self.actor.run(*arguments), POLICY.tell_seconds)


def bunched(events: Iterable[Event], seconds: float) -> Iterator[list[Event]]:
    """Yield events in lists; rows that follow each other within some seconds share one.

    A message costs the owner and the actor milliseconds, which short rounds have to wait for.
    """
    held: list[Event] = []
    again = 0.0
    try:
        for event in events:
            held.append(event)
            if (now := time.monotonic()) >= again:
                yield held
                held, again = [], now + seconds * isinstance(event, dict)
    except Exception:  # any kind: events before it are passed on first
        if held:
            yield held
        raise
    if held:
        yield held


@dataclass
class Crew:
    """The client actors of a trial, the room reserved for its server, and the server in it."""

    server_room: PlacementGroupSchedulingStrategy
    clients: Sequence[Actor]
    server: Actor | None = None

    def take_server(self) -> Actor:
        """Return the server; start one if there is none."""
        self.server = self.server or self.start_server()
        return self.server

    def start_server(self) -> Actor:
        """Start a server in its own room; the client actors are the owner's and outlive it."""
        room = {"num_cpus": 0, "memory": session.SERVER_BYTES}
        return start_actor(ServerHost, SERVER, **room, scheduling_strategy=self.server_room)

    def facts(self) -> list[Table]:
        """Say where the server and the clients of its trial are."""
        facts: list[dict[str, Any]] = ray.get(self.take_server().control.remote("facts"))
        return facts

    def restart_clients(self) -> None:
        """Let no client go on with what a lost server wanted: the next one would wait for it."""
        for client in self.clients:
            ray.kill(client, no_restart=False)

    def drop_server(self) -> None:
        """End the server; the next trial gets another."""
        if self.server is not None:
            ray.kill(self.server)
            self.server = None


def bundle(group: PlacementGroup, index: int) -> PlacementGroupSchedulingStrategy:
    """Return the place of an actor; without a number Ray may put it into any bundle with room."""
    return PlacementGroupSchedulingStrategy(
        group, placement_group_bundle_index=index, placement_group_capture_child_tasks=True
    )


def client_share(execution: "ExecutionSpec") -> dict[str, float]:
    """Return what a client actor reserves."""
    share = {"CPU": execution.client_cpus}
    return share | ({"GPU": execution.client_gpus} if execution.client_gpus else {})


@contextmanager
def start(execution: "ExecutionSpec", clients: int, per_round: int) -> Iterator[Crew]:
    """Reserve room for a server and client actors and start the clients; free it all at the end."""
    number = session.num_actors(execution, clients, per_round)
    # two groups: of one that lost a node Ray replaces all bundles or none, and the server has to
    # come back even if there is no room left for all clients
    server_room = placement_group([{"memory": session.SERVER_BYTES}])
    group = placement_group([client_share(execution)] * number, strategy="PACK")
    try:
        seconds = POLICY.room_seconds * POLICY.pace().slowness
        if not all(room.wait(timeout_seconds=seconds) for room in (server_room, group)):
            raise UserError(
                f"no room for {number} actors within {seconds:.0f} s: the cluster is"
                " busy, or too small; use fewer with --actors, or wait"
            )
        places = [bundle(group, i) for i in range(number)]
        yield Crew(bundle(server_room, 0), start_clients(client_share(execution), places))
    finally:
        remove_placement_group(group)
        remove_placement_group(server_room)


def start_clients(
    share: dict[str, float], places: Sequence[PlacementGroupSchedulingStrategy]
) -> list[Actor]:
    """Start a client actor in each place."""
    room = {"num_cpus": share["CPU"], "num_gpus": share.get("GPU", 0), "max_restarts": -1}
    return [start_actor(Host, CLIENT, **room, scheduling_strategy=place) for place in places]


def run_on_ray(
    spec: "TrialSpec", execution: "ExecutionSpec", start_over: bool = False
) -> Generator[Event]:
    """Yield where a trial starts, its rows, and what it does in between."""
    yield Status("starting Ray" if execution.address is None else f"joining {execution.address}")
    with session.connected(execution.address):
        yield Status("reserving room for the actors")
        with start(execution, spec.clients, spec.per_round) as crew:
            yield Status(f"starting {len(crew.clients)} actors, reading data")
            yield from follow(crew, settings_of(spec, execution, start_over))


def follow(crew: Crew, settings: TrialSettings, library: Actor | None = None) -> Generator[Event]:
    """Run servers until one reaches the end; a lost one is followed by another.

    The last server stays for the next trial. A library is an actor that has data sets to share.
    """
    attempts = Attempts(settings)
    while True:
        server = crew.take_server()
        try:
            for event in _events(server, attempts.settings, crew.clients, library):
                attempts.note(event)
                yield event
            return
        except Exception as problem:  # any kind: no server may stay behind
            crew.drop_server()
            time.sleep(attempts.pause_after(problem))  # a shortage may pass
            crew.restart_clients()
        except BaseException as stop:  # KeyboardInterrupt or GeneratorExit
            if isinstance(stop, KeyboardInterrupt):
                session.expect_deaths()
            _stop(server, settings.policy)
            crew.drop_server()
            raise


class Attempts:
    """What the servers of a trial have reached, one after the other."""

    def __init__(self, settings: TrialSettings) -> None:
        self.settings = settings
        self.losses = self.furthest = 0

    def note(self, event: Event) -> None:
        """Take in what a server tells; rounds that are done again are no progress."""
        if isinstance(event, Started):  # from here on there is nothing old to discard
            self.settings = self.settings._replace(start_over=False)
        elif isinstance(event, dict) and event["round"] > self.furthest:
            self.losses, self.furthest = 0, event["round"]

    def pause_after(self, problem: Exception) -> float:
        """Return how long to wait before the next server; raise what no other one would mend."""
        if isinstance(problem, Lost) or not is_loss(problem):
            raise problem
        self.losses += 1
        another = self.settings.policy.after_server_loss(self.losses)
        if not another.again:
            raise Lost(f"the server was lost {self.losses} times in a row: {problem}") from problem
        return another.pause


def _events(
    server: Actor,
    settings: TrialSettings,
    clients: Sequence[Actor],
    library: Actor | None,
) -> Iterator[Event]:
    """Let a server run a trial and yield what it tells."""
    data: list[Reference] = []
    if library is not None:
        dataset = settings.spec["dataset"]
        data = yield from asking(library, lambda: library.find.remote(dataset), settings.policy)
    stream: Any = server.stream.options(num_returns="streaming")
    rows = stream.remote(settings, clients, data)
    silence = Silence(settings.policy)
    while True:
        ready, _ = ray.wait([rows], timeout=settings.policy.look_seconds)
        if not ready:
            yield silence.note(_status(server, settings.policy))
            continue
        try:
            yield from ray.get(next(rows))
            silence.hear()
        except StopIteration:
            return
        except RayTaskError as failure:
            raise _cause(failure) from None


def _cause(failure: RayTaskError) -> BaseException:
    """Return what really happened behind Ray's wrapping."""
    cause = failure.cause
    if isinstance(cause, RayTaskError):
        return _cause(cause)
    known = isinstance(cause, (UserError, ClientFailed, Stopped)) or is_loss(cause)
    return cause if known else failure


class Silence:
    """Notes whether a server answers, and ends the wait for one that hangs."""

    def __init__(self, policy: RetryPolicy) -> None:
        self.policy, self.pace = policy, policy.pace()
        self.since, self.has_answered = time.monotonic(), False

    def hear(self) -> None:
        """Note that the server has told something."""
        self.since, self.has_answered = time.monotonic(), True

    def note(self, status: Status | None) -> Status:
        """Take in an answer, or that there was none; raise an error if there was none for long."""
        if status is not None:
            self.hear()
            return status
        seconds = time.monotonic() - self.since
        if seconds > self.policy.allowed_silence(self.has_answered) * self.pace.slowness:
            raise RaySystemError(f"the server has not answered for {seconds:.0f} s")
        return Status("waiting for the server")


def _status(server: Actor, policy: RetryPolicy) -> Status | None:
    """Return what a server does, or None if it does not say."""
    try:
        asked: Reference = server.control.remote("status")
        status: Status = ray.get(asked, timeout=policy.status_seconds)
    except (GetTimeoutError, *LOST):
        return None
    return status


def asking(
    actor: Actor, ask: Callable[[], Reference], policy: RetryPolicy = POLICY
) -> Generator[Status, None, Any]:
    """Wait for an actor's data and return them; one that hangs is replaced, and the next asked.

    The actor needs a method `ping` that is answered also while it works. Ray itself asks the next
    actor, unless it could not connect to the last one: so it is with a process that is stopped.
    """
    for failures in itertools.count(1):
        asked = ask()
        yield from _patiently(actor, asked, policy)
        try:
            return ray.get(asked)
        except ActorUnavailableError:
            ray.kill(actor, no_restart=False)
            if not policy.after_death(failures).again:
                raise


def _patiently(actor: Actor, asked: Reference, policy: RetryPolicy) -> Iterator[Status]:
    """Wait until there is an answer or an error; replace an actor that hangs."""
    liveness, pace, ping = Liveness(), policy.pace(), asked
    while not ray.wait([asked], timeout=policy.tick_seconds)[0]:
        answered = liveness.is_asked and bool(ray.wait([ping], timeout=0)[0])
        limit = policy.allowed_silence(is_ready=False) * pace.slowness
        step = liveness.look(time.monotonic(), answered, limit)
        if step == "ping":
            ping = actor.ping.remote()
        elif step == "replace":
            ray.kill(actor, no_restart=False)
        yield Status("waiting for data")


def answer(actor: Actor, ask: Callable[[], Reference], policy: RetryPolicy = POLICY) -> Any:
    """Return what an actor answers, asked in the same way."""
    waiting = asking(actor, ask, policy)
    while True:
        try:
            next(waiting)
        except StopIteration as end:
            return end.value


def _stop(server: Actor, policy: RetryPolicy) -> None:
    """Give a server the time to write its checkpoint."""
    deadline = time.monotonic() + policy.stop_seconds * policy.pace().slowness
    try:
        server.control.remote("stop")
        while not _is_idle(server, policy) and time.monotonic() < deadline:
            time.sleep(0.1)
    except Exception as problem:  # of many kinds where Ray is gone
        if not is_loss(problem):
            raise


def _is_idle(server: Actor, policy: RetryPolicy) -> bool:
    """Say whether a server's trial has ended; one that is too busy to answer has not."""
    asked: Reference = server.control.remote("is_idle")
    try:
        return bool(ray.get(asked, timeout=policy.status_seconds))
    except GetTimeoutError:
        return False
