"""One trial from its options to its summary."""

import contextlib
from pathlib import Path

import typer
from rich.markup import escape

from fedgps_ray.api.devices import device_settings, unused_gpu
from fedgps_ray.api.progress import ending, follow, opening
from fedgps_ray.api.running import has_ended, start
from fedgps_ray.api.settings import suited_trial
from fedgps_ray.cli.again import expect_deaths, how_to_continue, survive
from fedgps_ray.cli.app import err, out, say, show_json
from fedgps_ray.cli.declared import Run
from fedgps_ray.cluster.stops import hear
from fedgps_ray.experiment.suited import is_usual
from fedgps_ray.identity import Settings, Table
from fedgps_ray.loggers import following
from fedgps_ray.methods import METHODS
from fedgps_ray.results.read import read_trial
from fedgps_ray.results.store import TrialStore
from fedgps_ray.spec import ExecutionSpec, TrialSpec, columns, execution_spec, method_name
from fedgps_ray.sweep.board import titled
from fedgps_ray.tools.cost.brief import brief_seconds


def run(options: Run) -> None:
    """Run one trial."""
    values = _settings(options) | device_settings(options.wanted)
    spec, files, chosen = suited_trial(values, options.settings or [])
    execution = execution_spec(out=options.folder, files=files, **options.wanted)
    say(_opening(spec, chosen))
    run_and_show(spec, kept_here(spec, execution), options.restart, options.as_json)


def kept_here(spec: TrialSpec, execution: ExecutionSpec) -> ExecutionSpec:
    """Keep a trial in this process if it would be over before Ray has started."""
    elsewhere = execution.address is not None or execution.client_gpus > 0
    if execution.actors != "auto" or elsewhere or spec.device == "cuda":
        return execution
    if not isinstance(spec.model, str) or method_name(spec.method) not in METHODS:
        return execution
    if (seconds := brief_seconds(spec, execution.source)) is None:
        return execution
    say(
        f"about {max(1, round(seconds))} s of work, less than Ray takes to start:"
        " staying in this process (--actors 2 would use Ray)"
    )
    return execution.model_copy(update={"actors": 0})


def _opening(spec: TrialSpec, chosen: Settings) -> str:
    """Return what will run, with the values that were chosen by the data set."""
    values = columns(spec)
    noise = {"noise images": spec.surrogate.batch_size} if spec.method.needs_surrogate else {}
    told = {
        "clients": f"{values['clients']} ({spec.per_round} per round)",
        "rounds": values["rounds"],
        "batch size": values["batch_size"],
        **noise,
        "lr": values["lr"],
    }
    names = {"rounds": "rounds", "batch_size": "batch size", "surrogate": "noise images"}
    special = [names[key] for key in chosen if not is_usual(key, chosen[key])]
    what = f"{titled(values['method'])} on {values['dataset']} with {values['model']}"
    return f"{what}: {opening(told, special)}"


def _settings(options: Run) -> Table:
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
    ended = not restart and has_ended(spec, execution)
    with following(execution.log, execution.out, say, spec.trial_id):
        if ended:
            say(f"trial {spec.trial_id} has ended already (--restart runs it again)")
        else:
            _run(spec, execution, restart, folder)
    info = read_trial(folder)
    if as_json:
        show_json(info)
    else:
        out.print(escape(ending(info, str(folder))), soft_wrap=True)


def _run(spec: TrialSpec, execution: ExecutionSpec, restart: bool, folder: Path) -> None:
    events = start(spec, execution, restart)
    if idle := unused_gpu(spec, execution):
        say(idle)
    if execution.actors == 0:
        hear()
    else:
        survive(folder, execution)
    try:
        follow(err, titled(method_name(spec.method)), spec.rounds, events)
    except KeyboardInterrupt:
        if execution.actors != 0:
            expect_deaths()
            say("stopping: the trial writes its checkpoint; Ctrl-C again ends at once")
        with contextlib.suppress(KeyboardInterrupt):  # the user does not want to wait
            events.close()
        say(f"interrupted; to continue: {how_to_continue(folder, execution)}")
        raise typer.Exit(130) from None
