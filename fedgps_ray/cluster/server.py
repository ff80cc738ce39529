"""The inside of a server actor: runs one trial after another on the client actors it is given."""

import os
from collections.abc import Iterator
from typing import Any

import ray

from fedgps_ray.cluster.dispatch import Dispatcher, share
from fedgps_ray.cluster.pool import RayPool
from fedgps_ray.cluster.session import LOST
from fedgps_ray.events import Event, Status
from fedgps_ray.results.mirror import Mirror, mirrored
from fedgps_ray.results.store import TrialStore
from fedgps_ray.rounds.pool import Pool
from fedgps_ray.rounds.trial import run_trial
from fedgps_ray.rounds.worker import Worker
from fedgps_ray.spec import ExecutionSpec, TrialSpec

PATIENCE = 20.0  # seconds for which the server of a lost trial may still hold its folder


def _kept(
    spec: TrialSpec, how: ExecutionSpec, anew: bool, make_pool: Any, data: Any
) -> Iterator[Event]:
    """Run a trial whose results are kept where the execution says."""
    if how.storage is None:
        yield from run_trial(spec, how, anew, make_pool, data, PATIENCE)
        return
    mirror, name = Mirror(how.storage), f"trials/{spec.trial_id}"
    mirror.fetch(how.out, name)
    events = run_trial(spec, how, anew, make_pool, data, PATIENCE)
    yield from mirrored(mirror, how.out, name, events, how.checkpoint_seconds)


class Server:
    """The coordinator of a trial: state, rounds, checkpoints and results."""

    def __init__(self) -> None:
        self.dispatcher: Dispatcher | None = None
        self.stop_wanted = self.running = False

    def run(
        self,
        spec: dict[str, Any],
        execution: dict[str, Any],
        clients: list[Any],
        anew: bool,
        data: list[Any],
    ) -> Iterator[Event]:
        """Yield where the trial starts, then its rows; data: where the data set lies, if it does.

        Nothing of an earlier trial is used but the client actors, which are set up anew.
        """
        how, trial = ExecutionSpec(**execution), TrialSpec(**spec)
        self.dispatcher = None

        def make_pool(worker: Worker) -> Pool:
            shared = share(worker.setup, data[0] if data else None)
            self.dispatcher = Dispatcher(clients, shared, how.device, how.hang_seconds)
            self.dispatcher.stopping = self.stop_wanted
            self.dispatcher.wait_ready()
            return RayPool(worker.setup, self.dispatcher)

        self.running = True
        try:
            loaded = ray.get(data[0]) if data else None
            yield from _kept(trial, how, anew, make_pool, loaded)
        except LOST:  # no fault of the trial: its surroundings are lost, and it can go on
            TrialStore(how.out, trial).note(status="interrupted", error=None)
            raise
        finally:
            self.running = False

    def stop(self) -> None:
        """Let the trial write a checkpoint and end."""
        self.stop_wanted = True
        if self.dispatcher is not None:
            self.dispatcher.stopping = True

    def status(self) -> Status:
        """Say what is being worked on."""
        if self.dispatcher is None:
            return Status("reading data")
        ready = all(seat.is_ready for seat in self.dispatcher.seats)
        what = "training" if ready else "waiting for actors"
        return Status(what, self.dispatcher.in_flight(), self.dispatcher.restarts)

    def facts(self) -> list[dict[str, Any]]:
        """Say where this actor and the client actors are."""
        seats = self.dispatcher.seats if self.dispatcher else []
        return [{"name": "server", "pid": os.getpid()}, *(seat.facts for seat in seats)]
