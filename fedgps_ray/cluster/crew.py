"""A trial on Ray: its owner reserves room, starts clients and a server, and passes on rows.

The owner may be one of many in a sweep, so it stays light: only the actors import PyTorch.
"""

import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import ray
from ray.exceptions import RayTaskError
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from fedgps_ray.cluster import session
from fedgps_ray.cluster.session import LOST
from fedgps_ray.errors import ClientFailed, Lost, Stopped, UserError
from fedgps_ray.events import Event, Status

if TYPE_CHECKING:
    from fedgps_ray.spec import ExecutionSpec, TrialSpec

LOOK_SECONDS = 0.5
SERVER_RETRIES = 3  # in a row without a finished round


class ClientActor:
    """Ray's coat around a client; the process imports PyTorch when it is made."""

    def __init__(self) -> None:
        from fedgps_ray.cluster.client import Client

        self.inner = Client()

    def setup(self, *arguments: Any) -> dict[str, Any]:
        """Make ready for a trial."""
        return self.inner.setup(*arguments)

    def facts(self) -> dict[str, Any]:
        """Say where and what this actor is."""
        return self.inner.facts()

    def do(self, plans: Any, apart: bool, *arguments: Any) -> Any:
        """Carry out plans."""
        return self.inner.do(plans, apart, *arguments)

    @ray.method(concurrency_group="control")
    def ping(self) -> None:
        """Answer, also while working: a process that does not is hung."""


class ServerActor:
    """Ray's coat around a server."""

    def __init__(self) -> None:
        from fedgps_ray.cluster.server import Server

        self.inner = Server()

    def run(self, *arguments: Any) -> Iterator[Event]:
        """Yield where the trial starts, then its rows."""
        yield from self.inner.run(*arguments)

    @ray.method(concurrency_group="control")
    def is_idle(self) -> bool:
        """Say whether the trial has ended."""
        return not self.inner.running

    @ray.method(concurrency_group="control")
    def stop(self) -> None:
        """Let the trial write a checkpoint and end."""
        self.inner.stop()

    @ray.method(concurrency_group="control")
    def status(self) -> Status:
        """Say what is being worked on."""
        return self.inner.status()

    @ray.method(concurrency_group="control")
    def facts(self) -> list[dict[str, Any]]:
        """Say where this actor and the client actors are."""
        return self.inner.facts()


@dataclass
class Crew:
    """The client actors of a trial, the room reserved for its server, and the server in it."""

    server_room: PlacementGroupSchedulingStrategy
    clients: list[Any]
    server: Any = None

    def take_server(self) -> Any:
        """Return the server; start one if there is none."""
        self.server = self.server or self.start_server()
        return self.server

    def start_server(self) -> Any:
        """Start a server in its own room; the client actors are the owner's and outlive it."""
        room = {"num_cpus": 0, "memory": session.SERVER_BYTES}
        made = _with_control(ServerActor).options(**room, scheduling_strategy=self.server_room)
        return made.remote()

    def facts(self) -> list[dict[str, Any]]:
        """Say where the server and the clients of its trial are."""
        found: list[dict[str, Any]] = ray.get(self.take_server().facts.remote())
        return found

    def drop_server(self) -> None:
        """End the server; the next trial gets another."""
        if self.server is not None:
            ray.kill(self.server)
            self.server = None


def _with_control(kind: type) -> Any:
    """Make an actor that works one call at a time and still answers its control methods."""
    return ray.remote(concurrency_groups={"control": 1})(kind)  # type: ignore[call-overload]


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
        if not (server_room.wait(timeout_seconds=30) and group.wait(timeout_seconds=30)):
            raise UserError(
                f"no room for {number} actors within 30 s: the cluster is busy, or too small;"
                " use fewer with --actors, or wait"
            )
        places = [bundle(group, i) for i in range(number)]
        yield Crew(bundle(server_room, 0), start_clients(client_share(execution), places))
    finally:
        remove_placement_group(group)
        remove_placement_group(server_room)


def start_clients(share: dict[str, float], places: list[Any]) -> list[Any]:
    """Start a client actor in each place."""
    kind = _with_control(ClientActor)
    room = {"num_cpus": share["CPU"], "num_gpus": share.get("GPU", 0)}
    return [
        kind.options(**room, max_restarts=-1, scheduling_strategy=place).remote()
        for place in places
    ]


def run_on_ray(
    spec: "TrialSpec", execution: "ExecutionSpec", anew: bool = False
) -> Generator[Event]:
    """Yield where a trial starts, its rows, and what it does in between."""
    yield Status("starting Ray" if execution.address is None else f"joining {execution.address}")
    with session.connected(execution.address):
        yield Status("reserving room for the actors")
        with start(execution, spec.clients, spec.per_round) as started:
            yield Status(f"starting {len(started.clients)} actors, reading data")
            settings = spec.model_dump(mode="json"), execution.anywhere()
            yield from follow(started, *settings, anew)


def follow(
    started: Crew,
    spec: dict[str, Any],
    execution: dict[str, Any],
    anew: bool = False,
    library: Any = None,
) -> Generator[Event]:
    """Run servers until one reaches the end; a lost one is followed by another.

    The last server stays for the next trial. A library is an actor that has data sets to share.
    """
    failures = 0
    while True:
        server = started.take_server()
        try:
            data = ray.get(library.find.remote(spec["dataset"])) if library else []
            for event in _events(server, spec, execution, started.clients, anew, data):
                failures = 0 if isinstance(event, dict) else failures
                yield event
            return
        except LOST as loss:
            started.drop_server()
            failures, anew = failures + 1, False
            if failures > SERVER_RETRIES:
                raise Lost(f"the server was lost {failures} times in a row: {loss}") from loss
            time.sleep(failures)  # a shortage may pass
        except BaseException as reason:
            if isinstance(reason, (KeyboardInterrupt, GeneratorExit)):
                _stop(server)
            started.drop_server()
            raise


def _events(server: Any, *arguments: Any) -> Iterator[Event]:
    """Let a server run a trial and yield what it tells."""
    rows = server.run.options(num_returns="streaming").remote(*arguments)
    while True:
        ready, _ = ray.wait([rows], timeout=LOOK_SECONDS)
        if not ready:
            yield _status(server)
            continue
        try:
            yield ray.get(next(rows))
        except StopIteration:
            return
        except RayTaskError as failure:
            raise _cause(failure) from None


def _cause(failure: RayTaskError) -> BaseException:
    """Return what really happened behind Ray's wrapping."""
    cause = failure.cause
    if isinstance(cause, RayTaskError):
        return _cause(cause)
    return cause if isinstance(cause, (UserError, ClientFailed, Stopped, *LOST)) else failure


def _status(server: Any) -> Status:
    try:
        found: Status = ray.get(server.status.remote(), timeout=5)
    except (ray.exceptions.GetTimeoutError, *LOST):
        return Status("waiting for the server")
    return found


def _stop(server: Any) -> None:
    """Give a server the time to write its checkpoint."""
    server.stop.remote()
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            if ray.get(server.is_idle.remote(), timeout=5):
                return
        except (ray.exceptions.GetTimeoutError, *LOST):
            return
        time.sleep(0.1)
