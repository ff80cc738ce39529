"""The actor that runs trials on client actors; it is in a process of its own, inside a Host."""

import os
from collections.abc import Generator, Sequence

import ray

from fedgps_ray.cluster.crew import TrialSettings
from fedgps_ray.cluster.dispatch import Dispatcher, share
from fedgps_ray.cluster.losses import is_loss
from fedgps_ray.cluster.pool import RayPool
from fedgps_ray.cluster.session import Actor, Reference
from fedgps_ray.events import Event, Started, Status
from fedgps_ray.identity import Table
from fedgps_ray.results.kept import kept_at
from fedgps_ray.rounds.setup import Ready, prepare
from fedgps_ray.rounds.trial import claimed, run_with_pool
from fedgps_ray.spec import ExecutionSpec, TrialSpec, received

Data = Sequence[Reference]  # where the data set is, if a library has it


class ServerActor:
    """Runs one trial after another on the client actors it is given."""

    def __init__(self) -> None:
        self.dispatcher: Dispatcher | None = None
        self.stop_wanted = self.is_running = False

    def run(
        self, settings: TrialSettings, clients: Sequence[Actor], data: Data
    ) -> Generator[Event]:
        """Yield where the trial starts, then its rows.

        Nothing of an earlier trial is used but the client actors, which are set up again.
        """
        spec = received(settings.spec, settings.code.found)
        execution = ExecutionSpec(**settings.execution)
        self.dispatcher, self.is_running = None, True
        try:
            events = self._trial(spec, execution, settings, clients, data)
            patience = settings.policy.after_driver_loss().pause
            name, anew = f"trials/{spec.trial_id}", settings.start_over
            yield from kept_at(execution, name, events, anew, patience)
        finally:
            self.is_running = False

    def _trial(
        self,
        spec: TrialSpec,
        execution: ExecutionSpec,
        settings: TrialSettings,
        clients: Sequence[Actor],
        data: Data,
    ) -> Generator[Event]:
        patience = settings.policy.after_driver_loss().pause
        with claimed(spec, execution, settings.start_over, patience) as store:
            if (rounds_done := store.ended()) is not None:
                yield Started(rounds_done, [])
                return
            loaded = ray.get(data[0]) if data else None
            ready = Ready(prepare(spec, execution.source, loaded))
            shared = share(ready.setup, data[0] if data else None)
            dispatcher = Dispatcher(clients, shared, spec.device, settings.policy)
            pool = RayPool(ready.setup, self._ready(dispatcher))
            yield from run_with_pool(store, execution, ready, pool, is_loss=is_loss)

    def _ready(self, dispatcher: Dispatcher) -> Dispatcher:
        """Wait for the client actors, so that the wait can be seen and stopped."""
        self.dispatcher = dispatcher
        dispatcher.stopping = self.stop_wanted
        dispatcher.wait_ready()
        return dispatcher

    def stop(self) -> None:
        """Let the trial write a checkpoint and end."""
        self.stop_wanted = True
        if self.dispatcher is not None:
            self.dispatcher.stopping = True

    def is_idle(self) -> bool:
        """Say whether the trial has ended."""
        return not self.is_running

    def status(self) -> Status:
        """Say what is being worked on."""
        if self.dispatcher is None:
            return Status("reading data")
        ready = all(seat.is_ready or seat.is_retired for seat in self.dispatcher.seats)
        what = "training" if ready else "waiting for actors"
        return Status(what, self.dispatcher.in_flight(), self.dispatcher.restarts)

    def facts(self) -> list[Table]:
        """Say where this actor and the client actors are."""
        seats = self.dispatcher.seats if self.dispatcher else []
        return [{"name": "server", "pid": os.getpid()}, *(seat.facts for seat in seats)]
