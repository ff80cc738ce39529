"""A sweep from its experiment to its end: what is there already, one launch, what came of it."""

from contextlib import AbstractContextManager
from typing import Protocol

from fedgps_ray.cluster import session
from fedgps_ray.loggers import following
from fedgps_ray.results import files
from fedgps_ray.results.read import work_seconds
from fedgps_ray.spec import TrialSpec
from fedgps_ray.sweep import launch
from fedgps_ray.sweep.launch import Way
from fedgps_ray.sweep.plan import Speaker, SweepPlan
from fedgps_ray.sweep.state import State
from fedgps_ray.sweep.tracker import Tracker


class Screen(Speaker, Protocol):
    """Where a sweep is shown."""

    def event(self, text: str) -> None:
        """Tell what happened to a trial, unless the live view shows it anyway."""
        ...

    def live(self, state: State) -> AbstractContextManager[object]:
        """Show a state that changes."""
        ...


def drive(plan: SweepPlan, screen: Screen) -> State:
    """Run what is missing and return the final state; a folder has one driver at a time."""
    ledger = plan.ledger
    with files.lock(ledger.folder):
        to_do = plan.to_do(screen)
        plan.write()
        tracker = Tracker(plan.name, ledger, to_do, plan.execution, screen.event)
        with following(plan.execution.log, ledger.folder, screen.say):
            if to_do:
                _launch(plan, tracker, to_do, screen)
        if to_do:
            plan.write()
        return tracker.state


def _launch(plan: SweepPlan, tracker: Tracker, to_do: list[TrialSpec], screen: Screen) -> None:
    tracker.state.work_before = sum(work_seconds(map(plan.ledger.place, plan.ledger.specs)))
    where = plan.execution.address
    tracker.tell("starting Ray" if where is None else f"joining the cluster at {where}")
    with screen.live(tracker.state), session.connected(where):
        launch.run(tracker, to_do, Way(plan.max_concurrent, plan.stopping, plan.reuse_crews))
        tracker.close()
