"""A sweep from its experiment to its end: what is there already, one launch, what came of it."""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

from fedgps_ray.cluster import session
from fedgps_ray.results import files
from fedgps_ray.results.mirror import Mirror
from fedgps_ray.results.read import work_seconds
from fedgps_ray.results.schema import LAYOUT_VERSION
from fedgps_ray.results.store import PACKAGES, recorded
from fedgps_ray.spec import ExecutionSpec, TrialSpec
from fedgps_ray.sweep import launch
from fedgps_ray.sweep.launch import Stopping, Way
from fedgps_ray.sweep.ledger import Ledger
from fedgps_ray.sweep.state import State
from fedgps_ray.sweep.tracker import Tracker


class Screen(Protocol):
    """Where a sweep is shown."""

    def say(self, text: str) -> None:
        """Tell something about the launch as a whole."""
        ...

    def event(self, text: str) -> None:
        """Tell what happened to a trial, unless the live view shows it anyway."""
        ...

    def live(self, state: State) -> AbstractContextManager[Any]:
        """Show a state that changes."""
        ...


@dataclass(frozen=True)
class SweepPlan:
    """What a launch is to do."""

    name: str
    ledger: Ledger
    execution: ExecutionSpec
    facts: dict[str, Any]  # for experiment.json
    stopping: Stopping | None = None  # of a search
    borrow_from: tuple[Path, ...] = ()
    again: bool = False  # also what failed before
    max_concurrent: int | None = None
    reuse_crews: bool = True


def facts(title: str, description: str, stopping: Stopping | None, file: str) -> dict[str, Any]:
    """Return what experiment.json says beside the cells."""
    return {
        "schema_version": LAYOUT_VERSION,
        "title": title,
        "description": description,
        "file": file,
        "search": None if stopping is None else stopping._asdict(),
        "versions": {name: version(name) for name in PACKAGES},
    }


def drive(plan: SweepPlan, screen: Screen) -> State:
    """Run what is missing and return how the sweep stands then; one driver a folder."""
    ledger = plan.ledger
    with files.lock(ledger.folder):
        if plan.execution.storage is not None:
            mirror = Mirror(plan.execution.storage)
            screen.say(f"comparing with {mirror.uri}")
            ledger.keep_at(mirror)
        to_do = _to_do(plan, screen)
        ledger.write({"name": plan.name, **plan.facts, "execution": _plain(plan.execution)})
        tracker = Tracker(plan.name, ledger, to_do, plan.execution, screen.event)
        if not to_do:
            return tracker.state
        _launch(plan, tracker, to_do, screen)
        ledger.write({"name": plan.name, **plan.facts, "execution": _plain(plan.execution)})
        return tracker.state


def _plain(execution: ExecutionSpec) -> dict[str, Any]:
    return {key: value for key, value in recorded(execution).items() if key != "out"}


def _to_do(plan: SweepPlan, screen: Screen) -> list[TrialSpec]:
    """Return what has to be run; say what was found."""
    ledger = plan.ledger
    ledger.quarantine()
    borrowed = ledger.borrow(plan.borrow_from)
    for note in ledger.notes:
        screen.say(note)
    if borrowed:
        screen.say(
            f"{len(borrowed)} trials taken over from {', '.join(map(str, plan.borrow_from))}"
        )
    to_do = ledger.to_do(plan.again)
    screen.say(f"{len(to_do)} of {len(ledger.specs)} trials to run")
    return to_do


def _launch(plan: SweepPlan, tracker: Tracker, to_do: list[TrialSpec], screen: Screen) -> None:
    tracker.state.work_before = sum(work_seconds(map(plan.ledger.place, plan.ledger.specs)))
    where = plan.execution.address
    tracker.tell("starting Ray" if where is None else f"joining the cluster at {where}")
    with screen.live(tracker.state), session.connected(where):
        launch.run(tracker, to_do, Way(plan.max_concurrent, plan.stopping, plan.reuse_crews))
        tracker.close()
