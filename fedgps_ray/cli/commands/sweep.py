"""sweep, paper run, and how a sweep is resumed: many trials launched and shown."""

import shlex
from collections.abc import Mapping
from pathlib import Path

import typer
from rich.markup import escape
from rich.table import Table

from fedgps_ray.api.devices import check_devices, placed
from fedgps_ray.api.sweeps import Screen
from fedgps_ray.cli.again import LOST, how_to_continue, survive
from fedgps_ray.cli.app import err, out, say, show_json
from fedgps_ray.cli.commands.paper import path_of
from fedgps_ray.cli.declared import PaperRun, Sweep
from fedgps_ray.cli.options import Launch
from fedgps_ray.cli.standings import result
from fedgps_ray.errors import UserError, first_line
from fedgps_ray.experiment import Experiment, load, scaled
from fedgps_ray.results.folders import check_target
from fedgps_ray.results.mirror import Mirror
from fedgps_ray.spec import ExecutionSpec, execution_spec
from fedgps_ray.sweep.drive import drive
from fedgps_ray.sweep.ledger import Facts, Ledger
from fedgps_ray.sweep.observe import standing
from fedgps_ray.sweep.plan import Stopping, SweepPlan, imported, plan_of
from fedgps_ray.sweep.state import State
from fedgps_ray.sweep.view import counts
from fedgps_ray.tools.cost.estimate import budget


def sweep(options: Sweep) -> None:
    """Run all trials of an experiment file that have not ended yet."""
    with err.status("reading the experiment"):
        experiment = loaded(options.file, options)
    _launch(_plan(experiment, options, str(options.file)), options)


def run_paper(options: PaperRun) -> None:
    """Run a table of the paper, as printed or at laptop scale."""
    experiment = loaded(path_of(options.name), options)
    if options.scale == "small":
        experiment = scaled(experiment, "small", options.dataset, options.rounds)
    _launch(_plan(experiment, options, options.name), options)


def loaded(file: Path, options: Launch) -> Experiment:
    """Return the experiment of a file with the settings of options, which win over it."""

    def on(device: Mapping[str, str]) -> Experiment:
        chosen = [f"{key}={value}" for key, value in device.items()]
        return load(file, [*chosen, *(options.settings or [])])

    return placed(on, options.wanted)


def _launch(plan: SweepPlan, options: Launch) -> None:
    if options.dry_run:
        _check_places(plan.execution)
        _show_plan(plan, options.as_json)
    else:
        check_devices(plan.ledger.specs, plan.execution)
        _drive(plan, options.as_json)


def _check_places(execution: ExecutionSpec) -> None:
    """Refuse places that a launch could not use, without writing there."""
    check_target(execution.out)
    if execution.storage is not None:
        Mirror(execution.storage).names("trials")


def _plan(experiment: Experiment, options: Launch, file: str) -> SweepPlan:
    """Return what a launch of an experiment is to do; options win over the file."""
    folder = options.folder or Path("runs") / experiment.name
    own = {"out": folder, "files": experiment.files}
    execution = execution_spec(**{**experiment.execution, **options.wanted, **own})
    if execution.actors == 0:
        raise UserError("actors = 0: a sweep runs on Ray; use 1 or more, or auto")
    for told in imported(experiment):
        say(told)
    return plan_of(experiment, execution, file, options.reuse or (), options.max_concurrent)


def resume_sweep(
    ledger: Ledger, facts: Facts, execution: ExecutionSpec, failed: bool, as_json: bool
) -> None:
    """Continue a sweep as its folder describes it."""
    name, search = facts.pop("name"), facts["search"]
    facts.pop("finished")
    stopping = None if search is None else Stopping(**search)
    check_devices(ledger.specs, execution)
    _drive(SweepPlan(name, ledger, execution, facts, stopping, again=failed), as_json)


def _show_plan(plan: SweepPlan, as_json: bool) -> None:
    """Show what a launch would do, and what it would take."""
    with err.status("reading results"):
        entries = plan.ledger.entries()
        to_do = plan.ledger.to_do(plan.again)
    with err.status("measuring this machine"):
        estimate = budget(to_do, source=plan.execution.source) if to_do else None
    if as_json:
        ids = {entry.spec.trial_id: entry.status for entry in entries}
        show_json({"trials": ids, "estimate": estimate._asdict() if estimate else None})
        return
    table = Table("trial", "what", "rounds", "status")
    for entry in entries:
        trial_id = entry.spec.trial_id
        label = escape(str(plan.ledger.labels[trial_id]))
        table.add_row(trial_id, label, str(entry.spec.rounds), entry.status)
    out.print(table)
    out.print(f"{len(entries)} trials, {len(to_do)} to run")
    if estimate is not None:
        traffic = (estimate.bytes_up + estimate.bytes_down) / 1e9
        hours = estimate.gpu_hours if estimate.core_hours is None else estimate.core_hours
        unit = "GPU-hours" if estimate.core_hours is None else "core-hours"
        out.print(f"about {hours:.2g} {unit} and {traffic:.3g} GB between clients and servers")
        out.print(escape(estimate.sentence), soft_wrap=True)


def _drive(plan: SweepPlan, as_json: bool) -> None:
    """Drive a sweep to its end with a live view; exit 1 if trials failed, 130 if interrupted."""
    folder = plan.ledger.folder
    survive(folder, plan.execution)
    try:
        state = drive(plan, Screen(err))
    except KeyboardInterrupt:  # before Tune takes it as a request to stop
        say(f"interrupted; to continue: {how_to_continue(folder, plan.execution)}")
        raise typer.Exit(130) from None
    if as_json:
        show_json(standing(folder, False))
    else:
        out.print(escape(f"{plan.name}: {counts(state)}"), soft_wrap=True)
        result(out, list(state.records.values()))
        out.print(escape(f"results: {folder}"), soft_wrap=True)
        out.print(escape(f"report: fedgps-ray report {shlex.quote(str(folder))}"), soft_wrap=True)
    _end(state, how_to_continue(folder, plan.execution))


def _end(state: State, again: str) -> None:
    """Say how to go on if trials are left, and exit with a code that says why."""
    if state.left and state.losses:
        reason = first_line(next(iter(state.losses.values())))
        say(f"{state.left} trials are left ({reason}); to continue: {again}")
        raise typer.Exit(LOST)
    if state.left:
        say(f"interrupted; to continue: {again}")
        raise typer.Exit(130)
    if state.failed:
        say(f"to run the failed ones again: {again} --failed")
        raise typer.Exit(1)
