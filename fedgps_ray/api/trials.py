"""run and spec: one trial."""

import shlex
from collections.abc import Generator
from functools import partial
from pathlib import Path

from rich.console import Console
from torch import nn

from fedgps_ray.api import settings as given
from fedgps_ray.api.notebook import Progress, console_for
from fedgps_ray.api.progress import follow, say
from fedgps_ray.api.results import Result
from fedgps_ray.api.running import has_ended, start
from fedgps_ray.data.datasets import Source
from fedgps_ray.events import Event
from fedgps_ray.identity import Settings
from fedgps_ray.loggers import following
from fedgps_ray.results.code import admit
from fedgps_ray.results.named import known_files
from fedgps_ray.results.store import TrialStore, spec_of
from fedgps_ray.rounds.final import final_model
from fedgps_ray.rounds.setup import own_threads
from fedgps_ray.spec import TrialSpec, method_name


def spec(**settings: object) -> TrialSpec:
    """Return the checked settings of a trial, with all defaults and its id."""
    return given.trial(settings).spec


def run(
    method: object = "fedgps",
    dataset: object = "digits",
    rounds: int | None = None,
    *,
    restart: bool = False,
    progress: Progress = "auto",
    **settings: object,
) -> Result:
    """Run one trial and return its result; one that has ended is not run again.

    settings: those of the trial, such as clients=10 or optimizer={"lr": 0.05}, and those of the
    execution: out, log, actors, address, device and so on. It runs in this process unless actors
    ("auto" or a number) or the address of a Ray cluster are given.
    rounds: by default, as batch_size, what suits the data set.
    progress: "auto" shows it in a terminal and in a notebook, True and False everywhere or nowhere.
    """
    what, execution_options = given.split(settings)
    trial = given.trial({"method": method, "dataset": dataset, "rounds": rounds, **what})
    made = trial.spec
    execution = given.execution({**execution_options, "files": trial.files})
    console = console_for(progress)
    ended = not restart and has_ended(made, execution)
    folder = TrialStore(execution.out, made).folder
    logs = following(execution.log, execution.out, partial(say, console), made.trial_id)
    with own_threads(), logs:
        if not ended:
            _run(start(made, execution, restart), console, made, folder)
    return Result(folder, execution.data_dir)


def _run(events: Generator[Event], console: Console, made: TrialSpec, folder: Path) -> None:
    try:
        follow(console, method_name(made.method), made.rounds, events)
    except KeyboardInterrupt:
        events.close()  # writes a checkpoint
        raise KeyboardInterrupt(_hint(folder)) from None


def _hint(folder: Path) -> str:
    again = "call run again with the same settings"
    if not (folder / "trial.json").exists():
        return f"interrupted before the first round; {again}"
    return f"interrupted; to continue: {again}, or fedgps-ray resume {shlex.quote(str(folder))}"


def model_of(folder: Path, info: Settings, data_dir: Path | None = None) -> nn.Module:
    """Return the final model of a trial, from what its trial.json says.

    Where data is read from the folder does not say, except for files with the hash in its settings.
    Code outside the package is imported as `resume` does it: if it is the user's own, unchanged.
    """
    admit(info["spec"], [folder])
    made = spec_of(folder, dict(info))
    files = known_files(info["execution"].get("files", {}))
    return final_model(folder, made, Source(data_dir, files=files))
