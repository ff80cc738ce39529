"""One trial from its options to its summary."""

import json
import shlex
from pathlib import Path
from typing import Any

import typer
from rich.markup import escape

from fedgps_ray.cli import running, specs
from fedgps_ray.cli.app import err, out, say
from fedgps_ray.cli.declared import Run
from fedgps_ray.cli.progress import ending, follow
from fedgps_ray.results.read import read_trial
from fedgps_ray.results.schema import ENDED
from fedgps_ray.results.store import TrialStore, spec_of
from fedgps_ray.spec import ExecutionSpec, TrialSpec, method_name


def run(options: Run) -> None:
    """Run one trial."""
    values = _settings(options) | specs.device_settings(options.wanted)
    spec, files = specs.trial(values, options.settings or [])
    execution = specs.execution(out=options.folder, files=files, **options.wanted)
    run_and_show(spec, execution, options.restart, options.as_json)


def _settings(options: Run) -> dict[str, Any]:
    preset = {} if options.preset is None else {"preset": options.preset}
    return {
        "dataset": options.dataset,
        "model": options.model,
        "method": {"name": options.method, **preset},
        "clients": options.clients,
        "sampling_rate": options.sampling_rate,
        "rounds": options.rounds,
        "local_epochs": options.local_epochs,
        "batch_size": options.batch_size,
        "optimizer": {} if options.lr is None else {"lr": options.lr},
        "partition": options.settings_of_partition,
        "scenario": options.scenario,
        "seed": options.seed,
    }


def run_and_show(spec: TrialSpec, execution: ExecutionSpec, restart: bool, as_json: bool) -> None:
    """Run a trial unless it has ended, show its rounds and its summary."""
    folder = TrialStore(execution.out, spec).folder
    known = read_trial(folder) if (folder / "trial.json").exists() and not restart else None
    if known is not None:
        spec_of(folder, known)  # raises an error if these are not its settings
    if known is None or known["status"] not in ENDED:
        specs.check_devices([spec], execution)
        if idle := specs.unused_gpu(spec, execution):
            say(idle)
        _follow(spec, execution, restart, folder)
    else:
        say(f"trial {spec.trial_id} has ended already (--restart runs it again)")
    info = read_trial(folder)
    if as_json:
        print(json.dumps(info))
    else:
        out.print(escape(ending(info, str(folder))), soft_wrap=True)


def _follow(spec: TrialSpec, execution: ExecutionSpec, restart: bool, folder: Path) -> None:
    events = running.start(spec, execution, restart)
    try:
        follow(err, method_name(spec.method), spec.rounds, events)
    except KeyboardInterrupt:
        events.close()
        begun = (folder / "trial.json").exists()
        again = f"fedgps-ray resume {shlex.quote(str(folder))}" if begun else "the same command"
        say(f"interrupted; to continue: {again}")
        raise typer.Exit(130) from None
