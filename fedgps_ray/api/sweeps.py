"""sweep: many trials."""

import shlex
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live

from fedgps_ray.api import settings as given
from fedgps_ray.api.devices import check_devices, placed
from fedgps_ray.api.notebook import Progress, console_for
from fedgps_ray.api.progress import follow, say
from fedgps_ray.api.results import Results
from fedgps_ray.errors import UserError
from fedgps_ray.events import Event
from fedgps_ray.experiment import Experiment, from_tables
from fedgps_ray.experiment import load as read_file
from fedgps_ray.identity import Settings, Table
from fedgps_ray.loading import load as load_code
from fedgps_ray.rounds.setup import own_threads
from fedgps_ray.spec import ExecutionSpec, TrialSpec
from fedgps_ray.sweep.inline import run_here
from fedgps_ray.sweep.plan import SweepPlan, imported, plan_of
from fedgps_ray.sweep.state import State
from fedgps_ray.sweep.view import view

REFRESHES = 2  # per second


class Screen:
    """Shows a sweep on a console."""

    def __init__(self, console: Console) -> None:
        self.console = console

    def say(self, text: str) -> None:
        """Print a line that can be copied."""
        say(self.console, text)

    def event(self, text: str) -> None:
        """Tell what happened to a trial; in a terminal the live view does."""
        if not self.console.is_terminal:
            self.say(text)

    @contextmanager
    def live(self, state: State) -> Iterator[None]:
        """Show a sweep while it runs."""
        if not self.console.is_terminal or self.console.quiet:
            yield
            return
        with Live(
            get_renderable=lambda: view(state),
            console=self.console,
            refresh_per_second=REFRESHES,
            transient=True,
        ):
            yield


def sweep(
    experiment: str | Path | Settings,
    *,
    methods: Sequence[Any] | None = None,
    seeds: Sequence[int] | None = None,
    scenarios: Sequence[int] | None = None,
    progress: Progress = "auto",
    **settings: object,
) -> Results:
    """Run all trials of an experiment that have not ended yet, and return the results.

    experiment: the path of a TOML file, or tables as in one: {"base": {...}, "grid": {...}}.
    methods, seeds, scenarios and settings win over what it says; a list means one trial for each.
    It runs in this process, trial by trial, unless actors or the address of a cluster are given.
    """
    axes = {"method": methods, "seed": seeds, "scenario": scenarios}
    what, execution_options = given.split(settings)
    wanted = {key: list(values) for key, values in axes.items() if values is not None}
    settled = given.dotted({**wanted, **what})
    cells = placed(lambda device: _experiment(experiment, {**device, **settled}), settings)
    plan = plan_of(cells, _execution(cells, execution_options), _described(experiment))
    screen = Screen(console_for(progress))
    for told in imported(cells):
        screen.say(told)
    _launch(plan, screen)
    return Results(plan.ledger.folder)


def _experiment(experiment: str | Path | Settings, wanted: Table) -> Experiment:
    if isinstance(experiment, Mapping):
        return from_tables(experiment, wanted)
    return read_file(Path(experiment), wanted)


def _described(experiment: str | Path | Settings) -> str:
    return "Python" if isinstance(experiment, Mapping) else str(experiment)


def _execution(experiment: Experiment, options: Settings) -> ExecutionSpec:
    folder = Path(options.get("out", Path("runs") / experiment.name))
    own = {"out": folder, "files": experiment.files}
    of_file = {key: value for key, value in experiment.execution.items() if key != "actors"}
    return given.execution({**of_file, **options, **own})


def _launch(plan: SweepPlan, screen: Screen) -> None:
    check_devices(plan.ledger.specs, plan.execution)
    try:
        if plan.execution.actors == 0:
            _run_here(plan, screen)
        else:
            state = load_code("fedgps_ray.sweep.drive:drive")(plan, screen)
            if state.left:
                raise KeyboardInterrupt
    except KeyboardInterrupt:
        folder = shlex.quote(str(plan.ledger.folder))
        raise KeyboardInterrupt(
            f"interrupted; to continue: call sweep again, or fedgps-ray resume {folder}"
        ) from None


def _run_here(plan: SweepPlan, screen: Screen) -> None:
    if plan.stopping is not None and plan.stopping.scheduler != "none":
        raise UserError(
            "a search stops trials early and needs them side by side: give actors='auto'"
        )

    def show(spec: TrialSpec, events: Generator[Event]) -> None:
        try:
            follow(screen.console, str(plan.ledger.labels[spec.trial_id]), spec.rounds, events)
        finally:
            events.close()  # writes a checkpoint if the trial has not ended

    with own_threads():
        run_here(plan, screen, show)
