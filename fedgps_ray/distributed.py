"""A trial on Ray: its owner reserves room, starts clients and a server, and passes on rows."""

import os
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import (
    ObjectLostError,
    OutOfMemoryError,
    RayActorError,
    RayTaskError,
)
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from fedgps_ray import cluster
from fedgps_ray.errors import ClientFailed, UserError
from fedgps_ray.runtime.actors import ClientActor
from fedgps_ray.runtime.dispatch import Dispatcher
from fedgps_ray.runtime.pool import Pool, Stopped
from fedgps_ray.runtime.ray_pool import RayPool
from fedgps_ray.runtime.worker import Worker
from fedgps_ray.spec import ExecutionSpec, TrialSpec
from fedgps_ray.trial import Event, Status, run_trial

LOOK_SECONDS = 0.5
SERVER_RETRIES = 3  # in a row without a finished round
LOST = (RayActorError, OutOfMemoryError, ObjectLostError)


class ServerActor:
    """The coordinator of a trial: state, rounds, checkpoints and results."""

    def __init__(self) -> None:
        self.dispatcher: Dispatcher | None = None
        self.stop_wanted = self.running = False

    def run(
        self, spec: dict[str, Any], execution: dict[str, Any], clients: list[Any], anew: bool
    ) -> Iterator[Event]:
        """Yield where the trial starts, then its rows."""
        how = ExecutionSpec(**execution)

        def make_pool(worker: Worker) -> Pool:
            setup = ray.put(worker.setup)
            self.dispatcher = Dispatcher(clients, setup, how.device, how.hang_seconds)
            self.dispatcher.stopping = self.stop_wanted
            self.dispatcher.wait_ready()
            return RayPool(worker.setup, self.dispatcher)

        self.running = True
        try:
            yield from run_trial(TrialSpec(**spec), how, anew, make_pool)
        finally:
            self.running = False

    @ray.method(concurrency_group="control")
    def is_idle(self) -> bool:
        """Say whether the trial has ended."""
        return not self.running

    @ray.method(concurrency_group="control")
    def stop(self) -> None:
        """Let the trial write a checkpoint and end."""
        self.stop_wanted = True
        if self.dispatcher is not None:
            self.dispatcher.stopping = True

    @ray.method(concurrency_group="control")
    def status(self) -> Status:
        """Say what is being worked on."""
        if self.dispatcher is None:
            return Status("reading data")
        ready = all(seat.is_ready for seat in self.dispatcher.seats)
        what = "training" if ready else "waiting for actors"
        return Status(what, self.dispatcher.in_flight(), self.dispatcher.restarts)

    @ray.method(concurrency_group="control")
    def facts(self) -> list[dict[str, Any]]:
        """Say where this actor and the client actors are."""
        seats = self.dispatcher.seats if self.dispatcher else []
        return [{"name": "server", "pid": os.getpid()}, *(seat.facts for seat in seats)]


@dataclass(frozen=True)
class Crew:
    """The client actors of a trial, and the room reserved for its server."""

    server_room: PlacementGroup
    clients: list[Any]

    def start_server(self) -> Any:
        """Start a server in its own room; the client actors are the owner's and outlive it."""
        return (
            _with_control(ServerActor)
            .options(
                num_cpus=0,
                memory=cluster.SERVER_BYTES,
                scheduling_strategy=_bundle(self.server_room, 0),
            )
            .remote()
        )


def _with_control(kind: type) -> Any:
    """Make an actor that works one call at a time and still answers its control methods."""
    return ray.remote(concurrency_groups={"control": 1})(kind)  # type: ignore[call-overload]


def _bundle(group: PlacementGroup, index: int) -> PlacementGroupSchedulingStrategy:
    return PlacementGroupSchedulingStrategy(
        group, placement_group_bundle_index=index, placement_group_capture_child_tasks=True
    )


@contextmanager
def crew(execution: ExecutionSpec, clients: int, per_round: int) -> Iterator[Crew]:
    """Reserve room for a server and client actors and start the clients; free it all at the end."""
    number = cluster.num_actors(execution, clients, per_round)
    share = {"CPU": execution.client_cpus}
    if execution.client_gpus:
        share["GPU"] = execution.client_gpus
    # two groups: of one that lost a node Ray replaces all bundles or none, and the server has to
    # come back even if there is no room left for all clients
    server_room = placement_group([{"memory": cluster.SERVER_BYTES}])
    group = placement_group([share] * number, strategy="PACK")
    try:
        if not (server_room.wait(timeout_seconds=30) and group.wait(timeout_seconds=30)):
            raise UserError(
                f"no room for {number} actors within 30 s: the cluster is busy, or too small;"
                " use fewer with --actors, or wait"
            )
        name = "client" if number == clients else "worker"
        started = [_client(execution, group, i, f"{name}-{i}") for i in range(number)]
        yield Crew(server_room, started)
    finally:
        remove_placement_group(group)
        remove_placement_group(server_room)


def _client(execution: ExecutionSpec, group: PlacementGroup, index: int, name: str) -> Any:
    return (
        _with_control(ClientActor)
        .options(
            num_cpus=execution.client_cpus,
            num_gpus=execution.client_gpus,
            max_restarts=-1,
            scheduling_strategy=_bundle(group, index),
        )
        .remote(name)
    )


def run_on_ray(spec: TrialSpec, execution: ExecutionSpec, anew: bool = False) -> Generator[Event]:
    """Yield where a trial starts, its rows, and what it does in between."""
    yield Status("starting Ray" if execution.address is None else f"joining {execution.address}")
    with cluster.session(execution.address):
        yield Status("reserving room for the actors")
        with crew(execution, spec.clients, spec.per_round) as started:
            yield Status(f"starting {len(started.clients)} actors, reading data")
            yield from _follow(started, spec, execution, anew)


def _follow(
    started: Crew, spec: TrialSpec, execution: ExecutionSpec, anew: bool
) -> Iterator[Event]:
    """Run servers until one reaches the end; a lost one is followed by another."""
    failures = 0
    while True:
        server = started.start_server()
        try:
            for event in server_events(server, started.clients, spec, execution, anew):
                failures = 0 if isinstance(event, dict) else failures
                yield event
            return
        except LOST as loss:
            failures, anew = failures + 1, False
            if failures > SERVER_RETRIES:
                raise ClientFailed(
                    f"the server was lost {failures} times in a row: {loss}"
                ) from loss
        except (KeyboardInterrupt, GeneratorExit):
            _stop(server)
            raise
        finally:
            ray.kill(server)


def server_events(
    server: Any, clients: list[Any], spec: TrialSpec, execution: ExecutionSpec, anew: bool
) -> Iterator[Event]:
    """Let a server run a trial and yield what it tells."""
    rows = server.run.options(num_returns="streaming").remote(
        spec.model_dump(mode="json"), execution.model_dump(mode="json"), clients, anew
    )
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
