"""What a launch of a sweep is to do, whether it runs on Ray or in this process."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from fedgps_ray.experiment import Experiment
from fedgps_ray.identity import Table
from fedgps_ray.results import code
from fedgps_ray.results.mirror import Mirror
from fedgps_ray.results.schema import LAYOUT_VERSION
from fedgps_ray.results.store import PACKAGES, recorded
from fedgps_ray.spec import ExecutionSpec, TrialSpec
from fedgps_ray.sweep.ledger import Ledger

MANY = 1000  # trials that take more than two seconds to check


class Stopping(NamedTuple):
    """What stops trials of a search that have no promise, and by which figure."""

    scheduler: str
    metric: str


class Speaker(Protocol):
    """Who is told about a launch as a whole."""

    def say(self, text: str) -> None:
        """Tell something about the launch as a whole."""
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

    def write(self) -> None:
        """Write experiment.json, and the code from outside that the trials use."""
        for spec in self.ledger.specs:
            code.keep(self.ledger.folder, spec.code)
        execution = {key: value for key, value in recorded(self.execution).items() if key != "out"}
        self.ledger.write({"name": self.name, **self.facts, "execution": execution})

    def to_do(self, screen: Speaker) -> list[TrialSpec]:
        """Return what has to be run; say what was found."""
        ledger = self.ledger
        if self.execution.storage is not None:
            mirror = Mirror(self.execution.storage)
            screen.say(f"comparing with {mirror.uri}")
            ledger.keep_at(mirror)
        if len(ledger.specs) >= MANY:
            screen.say(f"checking what there is of {len(ledger.specs):,} trials")
        ledger.quarantine()
        borrowed = ledger.borrow(self.borrow_from)
        ledger.catch_up()
        for note in ledger.notes:
            screen.say(note)
        if borrowed:
            places = ", ".join(map(str, self.borrow_from))
            screen.say(f"{len(borrowed)} trials taken over from {places}")
        to_do = ledger.to_do(self.again)
        screen.say(f"{len(to_do)} of {len(ledger.specs)} trials to run")
        return to_do


def facts(title: str, description: str, stopping: Stopping | None, file: str) -> Table:
    """Return what experiment.json says beside the cells."""
    return {
        "schema_version": LAYOUT_VERSION,
        "title": title,
        "description": description,
        "file": file,
        "search": None if stopping is None else stopping._asdict(),
        "versions": {name: version(name) for name in PACKAGES},
    }


def imported(experiment: Experiment) -> Iterator[str]:
    """Yield what to say about code from outside: where it comes from."""
    for reference in {origin.code: None for cell in experiment.cells for origin in cell.spec.code}:
        place = experiment.files.get(reference.sha256, reference.place)
        yield f"{reference.name} is imported from {place}"


def plan_of(
    experiment: Experiment,
    execution: ExecutionSpec,
    file: str,
    borrow_from: Sequence[Path] = (),
    max_concurrent: int | None = None,
) -> SweepPlan:
    """Return the plan of an experiment; file: where it was described."""
    search, cells = experiment.search, experiment.cells
    stopping = None if search is None else Stopping(search.scheduler, search.metric)
    labels = {cell.trial_id: cell.label for cell in cells}
    return SweepPlan(
        name=experiment.name,
        ledger=Ledger(execution.out, [cell.spec for cell in cells], labels),
        execution=execution,
        facts=facts(experiment.title, experiment.description, stopping, file),
        stopping=stopping,
        borrow_from=tuple(borrow_from),
        max_concurrent=max_concurrent,
    )
