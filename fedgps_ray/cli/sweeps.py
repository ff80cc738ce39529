"""Commands for many trials: sweep, watch, status."""

import contextlib
import io
import json
import re
import shlex
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from fedgps_ray.cli import options
from fedgps_ray.cli.app import Json, app, err, out, writing
from fedgps_ray.cli.options import (
    Actors,
    Address,
    CheckpointSeconds,
    ClientCpus,
    ClientGpus,
    DataDir,
    Device,
    Download,
    Settings,
)
from fedgps_ray.errors import UserError

if TYPE_CHECKING:
    from fedgps_ray.experiment import Experiment
    from fedgps_ray.sweep.drive import SweepPlan
    from fedgps_ray.sweep.state import State

REFRESHES = 4  # a second
Out = Annotated[Path | None, typer.Option("--out", help="Folder for results; default runs/NAME.")]
Borrow = Annotated[
    list[Path] | None,
    typer.Option("--reuse", help="Take finished trials over from this folder; may be repeated."),
]
Concurrent = Annotated[
    int | None, typer.Option(min=1, help="Most trials at the same time; default: what fits.")
]


@app.command(epilog="Example: fedgps-ray sweep experiments/quickstart.toml --set 'seed=[0,1,2]'")
def sweep(  # noqa: PLR0913  one option a parameter is how typer reads them
    file: Annotated[Path, typer.Argument(help="An experiment file (.toml).")],
    settings: Settings = None,
    folder: Out = None,
    borrow: Borrow = None,
    max_concurrent: Concurrent = None,
    actors: Actors = None,
    client_cpus: ClientCpus = None,
    client_gpus: ClientGpus = None,
    address: Address = None,
    device: Device = "auto",
    data_dir: DataDir = None,
    download: Download = False,
    checkpoint_seconds: CheckpointSeconds = None,
    storage: Annotated[
        str | None,
        typer.Option(help="Keep results at this URI (s3://, gs://, file://); --out is a copy."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would run.")] = False,
    as_json: Json = False,
) -> None:
    """Run all trials of an experiment file that have not ended yet, here or on a cluster."""
    options.with_token(address)
    from fedgps_ray.experiment import load

    given = options.execution(
        actors,
        device,
        client_cpus=client_cpus,
        client_gpus=client_gpus,
        address=address,
        data_dir=data_dir,
        download=download,
        checkpoint_seconds=checkpoint_seconds,
        storage=storage,
    )
    experiment = load(file, settings or [])
    job = make_job(experiment, folder, given, borrow or [], max_concurrent, str(file))
    if dry_run:
        show_plan(job, as_json)
        return
    drive_and_show(job, as_json)


def make_job(
    experiment: "Experiment",
    folder: Path | None,
    given: dict[str, Any],
    borrow: list[Path],
    max_concurrent: int | None,
    file: str,
) -> "SweepPlan":
    """Return what a launch of an experiment is to do; options come before the file's wishes."""
    from fedgps_ray.spec import execution_spec
    from fedgps_ray.sweep.drive import SweepPlan, facts
    from fedgps_ray.sweep.launch import Stopping
    from fedgps_ray.sweep.ledger import Ledger

    for other in borrow:
        if not other.is_dir():
            raise UserError(f"--reuse {other}: there is no such folder")
    where = folder or Path("runs") / experiment.name
    wanted = {name: value for name, value in given.items() if value is not None}
    own = {"out": where, "files": experiment.files}
    execution = execution_spec(**{**experiment.execution, **wanted, **own})
    if execution.actors == 0:
        raise UserError("--actors 0: a sweep runs on Ray; use 1 or more, or auto")
    search, cells = experiment.search, experiment.cells
    stopping = None if search is None else Stopping(search.scheduler, search.metric)
    return SweepPlan(
        experiment.name,
        Ledger(where, [cell.spec for cell in cells], {c.trial_id: c.label for c in cells}),
        execution,
        facts(experiment.title, experiment.description, stopping, file),
        stopping,
        tuple(borrow),
        max_concurrent=max_concurrent,
    )


def show_plan(job: "SweepPlan", as_json: bool) -> None:
    """Show what a launch would do, and what it would take."""
    from fedgps_ray.tools.cost import budget

    cells = job.ledger.cells()
    to_do = job.ledger.to_do(job.again)
    with err.status("measuring this machine"):
        found = budget(to_do, source=job.execution.source) if to_do else None
    if as_json:
        ids = {cell.spec.trial_id: cell.status for cell in cells}
        print(json.dumps({"trials": ids, "estimate": found._asdict() if found else None}))
        return
    table = Table("trial", "what", "rounds", "status")
    for cell in cells:
        trial_id = cell.spec.trial_id
        label = escape(job.ledger.labels[trial_id])
        table.add_row(trial_id, label, str(cell.spec.rounds), cell.status)
    out.print(table)
    out.print(f"{len(cells)} trials, {len(to_do)} to run")
    if found is not None:
        traffic = (found.bytes_up + found.bytes_down) / 1e9
        hours = found.gpu_hours if found.core_hours is None else found.core_hours
        unit = "GPU-hours" if found.core_hours is None else "core-hours"
        out.print(f"about {hours:.2g} {unit} and {traffic:.3g} GB between clients and servers")
        out.print(escape(found.sentence), soft_wrap=True)


def drive_and_show(job: "SweepPlan", as_json: bool) -> None:
    """Drive a sweep to its end with a live view; exit 1 if trials failed, 130 if interrupted."""
    from fedgps_ray.sweep.drive import drive
    from fedgps_ray.sweep.view import counts

    folder = job.ledger.folder
    again = f"fedgps-ray resume {shlex.quote(str(folder))}"
    try:
        state = drive(job, _Screen())
    except KeyboardInterrupt:  # before Tune takes it for a wish to stop
        err.print(escape(f"interrupted; to continue: {again}"), soft_wrap=True)
        raise typer.Exit(130) from None
    if as_json:
        print(json.dumps(summary(folder)))
    else:
        out.print(escape(f"{job.name}: {counts(state)}"), soft_wrap=True)
        out.print(escape(f"results: {folder}"), soft_wrap=True)
    if state.left:
        err.print(escape(f"interrupted; to continue: {again}"), soft_wrap=True)
        raise typer.Exit(130)
    if state.failed:
        err.print(escape(f"to run the failed ones again: {again} --failed"), soft_wrap=True)
        raise typer.Exit(1)


def resume_sweep(folder: Path, failed: bool, address: str | None, as_json: bool) -> None:
    """Continue a sweep as its folder describes it."""
    from fedgps_ray.spec import execution_spec
    from fedgps_ray.sweep.ledger import read

    ledger, facts = read(folder)
    other = {} if address is None else {"address": address}
    execution = execution_spec(**{**facts.pop("execution"), "out": folder, **other})
    options.with_token(execution.address)
    from fedgps_ray.sweep.drive import SweepPlan
    from fedgps_ray.sweep.launch import Stopping

    name, search = facts.pop("name"), facts["search"]
    facts.pop("finished")
    found = None if search is None else Stopping(**search)
    drive_and_show(SweepPlan(name, ledger, execution, facts, found, again=failed), as_json)


class _Screen:
    """A live view in a terminal; elsewhere a line an event."""

    def say(self, text: str) -> None:
        """Tell something about the launch as a whole."""
        err.print(escape(text), soft_wrap=True, highlight=False)

    def event(self, text: str) -> None:
        """Tell what happened to a trial; in a terminal the live view does."""
        if not err.is_terminal:
            self.say(text)

    @contextlib.contextmanager
    def live(self, state: "State") -> Iterator[None]:
        """Show a sweep while it runs."""
        from fedgps_ray.sweep.view import view

        if not err.is_terminal:
            yield
            return
        with Live(get_renderable=lambda: view(state), console=err, refresh_per_second=REFRESHES):
            yield


@app.command(epilog="Example: fedgps-ray watch runs/quickstart")
def watch(
    folder: Annotated[Path, typer.Argument(help="The folder of a run or a sweep.")],
    once: Annotated[bool, typer.Option("--once", help="Show it once and end.")] = False,
    svg: Annotated[
        Path | None, typer.Option(help="Also write what is shown to this SVG file.")
    ] = None,
) -> None:
    """Show a run or sweep live from another terminal, also after it has ended; Ctrl-C leaves."""
    from fedgps_ray.sweep.observe import observe
    from fedgps_ray.sweep.view import view

    seen = observe(folder)
    if once or svg or not out.is_terminal or not seen.is_driven:
        _show_once(view(*seen), svg)
        return
    with Live(console=out, refresh_per_second=REFRESHES, screen=False) as live:
        while seen.is_driven:
            live.update(view(*seen))
            time.sleep(1)
            seen = observe(folder)
        live.update(view(*seen))


def _show_once(picture: Any, svg: Path | None) -> None:
    from rich.console import Console

    out.print(picture)
    if svg is not None:
        console = Console(record=True, width=110, file=io.StringIO())
        console.print(picture)
        drawn = console.export_svg(title="fedgps-ray")
        alone = re.sub(r"@font-face \{.*?\}", "", drawn, flags=re.DOTALL)  # fonts of another host
        writing(svg, lambda: svg.write_text(alone))


@app.command(epilog="Example: fedgps-ray status runs/quickstart --timing")
def status(
    folder: Annotated[Path, typer.Argument(help="The folder of a run or a sweep.")],
    timing: Annotated[
        bool, typer.Option("--timing", help="Also how much of the time was training.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Show what is finished, running, failed and missing."""
    found = summary(folder, timing)
    if as_json:
        print(json.dumps(found))
        return
    table = Table("status", "trials")
    for name, number in found["counts"].items():
        table.add_row(name, str(number))
    out.print(table)
    for trial_id, reason in found["failures"].items():
        out.print(escape(f"{trial_id} failed: {reason.splitlines()[0]}"), soft_wrap=True)
    for trial_id in found["damaged"]:
        out.print(f"{trial_id} is damaged; the next sweep or resume runs it again")
    for line in found.get("timing", {}).items():
        out.print(f"{line[0].replace('_', ' ')}: {line[1]}")


def summary(folder: Path, timing: bool = False) -> dict[str, Any]:
    """Return how the trials of a folder stand."""
    from fedgps_ray.sweep.observe import standing

    return standing(folder, timing)
