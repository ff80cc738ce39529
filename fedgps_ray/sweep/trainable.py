"""A trial as Tune sees it: an actor without PyTorch that owns a crew and passes on what it tells.

Tune keeps it for the next trial of the same shape, and with it the server and the clients.
"""

import time
from collections.abc import Generator
from typing import Any

import ray
from ray import tune

from fedgps_ray.cluster import session
from fedgps_ray.cluster.crew import Crew, TrialSettings, answer, bundle, follow, start_clients
from fedgps_ray.cluster.session import Actor
from fedgps_ray.errors import CannotWrite, ClientFailed, Lost, UserError
from fedgps_ray.events import Event, Started, Status
from fedgps_ray.identity import Table

TELL_SECONDS = 1.0
OWNER_BYTES = 200 * 2**20  # of a trial's own process


def bundles(config: Table) -> tune.PlacementGroupFactory:
    """Return what a trial reserves: room for itself, its server and its clients."""
    cell = config["cell"]
    own: dict[str, float] = {"memory": OWNER_BYTES}
    server: dict[str, float] = {"memory": session.SERVER_BYTES}
    return tune.PlacementGroupFactory([own, server, *[cell["share"]] * cell["actors"]])


def with_storage(settings: TrialSettings, library: Actor) -> TrialSettings:
    """Return settings with the whole URI of the storage, which Tune is not to write down."""
    if settings.execution["storage"] is None:
        return settings
    storage = answer(library, library.storage.remote, settings.policy)
    return settings._replace(execution={**settings.execution, "storage": storage})


class SweepTrial(tune.Trainable):
    """Carries out one cell of a sweep; config["cell"] says which, and with how many actors."""

    def setup(self, config: Table) -> None:
        """Start the crew in the bundles that Tune reserved, and the first trial."""
        group = ray.util.get_current_placement_group()
        assert group is not None
        share = config["cell"]["share"]
        places = [bundle(group, 2 + i) for i in range(config["cell"]["actors"])]
        self.crew = Crew(bundle(group, 1), start_clients(share, places))
        self._begin(config)

    def reset_config(self, new_config: Table) -> bool:
        """Begin another trial with the same crew; its server sets up everything again."""
        self.cleanup()
        self._begin(new_config)
        return True

    def _begin(self, config: Table) -> None:
        cell = config["cell"]
        library = ray.get_actor(cell["library"])
        self.told: dict[str, Any] = {"what": "starting"}
        self.began, self.first = time.monotonic(), 0
        settings = with_storage(TrialSettings(**cell["settings"]), library)
        self.events: Generator[Event] = follow(self.crew, settings, library)

    def step(self) -> Table:
        """Follow the trial for a second, then report its progress."""
        until = time.monotonic() + TELL_SECONDS
        try:
            while time.monotonic() < until:
                event = next(self.events, None)
                if event is None:
                    return self._tell(done=True)
                self._take(event)
        except CannotWrite as problem:  # not to be tried again before somebody makes room
            return self._tell(stuck=str(problem), done=True)
        except Lost as loss:
            return self._tell(lost=str(loss), done=True)
        except (UserError, ClientFailed) as failure:  # would fail again: not for Tune to repeat
            return self._tell(failed=str(failure), done=True)
        return self._tell()

    def _tell(self, **more: object) -> Table:
        """Return the trial's progress; problems on disk are reported once."""
        told = {**self.told, **more}
        self.told.pop("problems", None)
        return told

    def _take(self, event: Event) -> None:
        if isinstance(event, Started):
            self.began, self.first = time.monotonic(), event.rounds_done
            self.told |= {"rounds_done": event.rounds_done, "problems": event.problems}
        elif isinstance(event, Status):
            self.told |= event._asdict()
        elif event.get("weights_sha256"):
            self._take_row(event)

    def _take_row(self, row: Table) -> None:
        done = row["round"]
        seconds = (time.monotonic() - self.began) / max(1, done - self.first)
        self.told |= {"rounds_done": done, "seconds_a_round": seconds}
        if row["accuracy"] is not None:
            best = max(row["accuracy"], self.told.get("best", 0.0))
            self.told |= {"accuracy": row["accuracy"], "loss": row["loss"], "best": best}

    def cleanup(self) -> None:
        """Let a running trial write its checkpoint; one that has ended needs none."""
        self.events.close()
