"""What a sweep would cost, and the paper's tables as experiments: list, show, run."""

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Column, Table

from fedgps_ray.cli import options
from fedgps_ray.cli.app import Json, app, err, out
from fedgps_ray.cli.options import (
    Actors,
    Address,
    ClientCpus,
    ClientGpus,
    DataDir,
    Device,
    Download,
    Settings,
)
from fedgps_ray.cli.commands.sweep import Borrow, Concurrent, Out, drive_and_show, make_job, show_plan
from fedgps_ray.errors import UserError, unknown

if TYPE_CHECKING:
    from fedgps_ray.experiment import Experiment

paper = typer.Typer(
    name="paper",
    help="The tables of the FedGPS paper as experiments.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(paper)

FIGURES = ("ablation", "convergence", "divergence")  # not among the tables of results
Name = Annotated[str, typer.Argument(help="A name of `fedgps-ray paper list`.")]


@paper.command("list", epilog="Example: fedgps-ray paper list")
def list_(
    no_estimate: Annotated[
        bool, typer.Option("--no-estimate", help="Do not measure this machine.")
    ] = False,
    gpu_speedup: Annotated[
        float | None, typer.Option(help="Without a GPU here: how much faster one is assumed.")
    ] = None,
    as_json: Json = False,
) -> None:
    """List the paper's tables: trials, distinct runs, and what they would take."""
    with err.status("reading the experiment files") as status:
        tables = _tables()
        rows = _count(tables)
        told = ""
        if not no_estimate:
            status.update("measuring this machine")
            assumed = {} if gpu_speedup is None else {"gpu_speedup": gpu_speedup}
            told = _estimate(tables, rows, assumed)
    if as_json:
        distinct = sum(row["new"] for row in rows)
        print(json.dumps({"tables": rows, "distinct": distinct, "estimate": told}))
        return
    hours = [] if no_estimate else [Column("GPU-hours", justify="right")]
    numbers = [Column(head, justify="right") for head in ("trials", "not above")]
    table = Table("name", "what", *numbers, *hours)
    for row in rows:
        more = [] if no_estimate else [f"{row['gpu_hours']:,.0f}"]
        table.add_row(row["name"], row["title"], str(row["trials"]), str(row["new"]), *more)
    out.print(table)
    out.print(_totals([row for row in rows if row["name"] not in FIGURES], "the 19 tables"))
    out.print(_totals(rows, "with the figures"))
    if told:
        out.print(escape(told), soft_wrap=True)


def _tables() -> "dict[str, Experiment]":
    """Return all tables of the paper, then its figures."""
    from fedgps_ray.experiment import load, paper_files

    known = paper_files()
    return {name: load(known[name]) for name in sorted(known, key=lambda n: (n in FIGURES, n))}


def _count(tables: "dict[str, Experiment]") -> list[dict[str, Any]]:
    """Return a row a table; trials of the tables above are not new."""
    rows, known = [], set[str]()
    for name, table in tables.items():
        ids = {cell.trial_id for cell in table.cells}
        new = len(ids - known)
        known |= ids
        rows.append({"name": name, "title": table.title, "trials": len(ids), "new": new})
    return rows


def _estimate(
    tables: "dict[str, Experiment]", rows: list[dict[str, Any]], assumed: dict[str, float]
) -> str:
    """Add the hours to the rows; return what was measured and what assumed."""
    from fedgps_ray.tools.cost import budget

    specs = {name: [cell.spec for cell in table.cells] for name, table in tables.items()}
    for row in rows:
        row["gpu_hours"] = budget(specs[row["name"]], **assumed).gpu_hours  # type: ignore[arg-type]
    distinct = {spec.trial_id: spec for part in specs.values() for spec in part}
    whole = budget(list(distinct.values()), **assumed)  # type: ignore[arg-type]
    return f"All distinct runs together: {whole.gpu_hours:,.0f} GPU-hours. {whole.sentence}"


def _totals(rows: list[dict[str, Any]], what: str) -> str:
    trials, distinct = (sum(row[key] for row in rows) for key in ("trials", "new"))
    return f"{what}: {trials} trials, {distinct} distinct"


@paper.command(epilog="Example: fedgps-ray paper write cifar10_10_5_1 --out my_table.toml")
def write(name: Name, target: Annotated[Path, typer.Option("--out", help="The file.")]) -> None:
    """Write the experiment file of a table, to change it."""
    if target.exists():
        raise UserError(f"{target} exists already; choose another --out")
    shutil.copyfile(_path(name), target)
    out.print(f"wrote {target}; run it with: fedgps-ray sweep {target}", soft_wrap=True)


@paper.command(epilog="Example: fedgps-ray paper run cifar10_10_5_1 --scale small")
def run(  # noqa: PLR0913  one option a parameter is how typer reads them
    name: Name,
    scale: Annotated[
        str, typer.Option(help="full as in the paper, or small: the same grid for a laptop.")
    ] = "full",
    dataset: Annotated[
        str | None, typer.Option(help="With --scale small: synthetic, or the path of an .npz file.")
    ] = None,
    rounds: Annotated[int | None, typer.Option(help="With --scale small: rounds a trial.")] = None,
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
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would run.")] = False,
    as_json: Json = False,
) -> None:
    """Run a table of the paper, as printed or at laptop scale."""
    options.with_token(address)
    given = options.execution(
        actors,
        device,
        client_cpus=client_cpus,
        client_gpus=client_gpus,
        address=address,
        data_dir=data_dir,
        download=download,
    )
    experiment = _experiment(name, scale, settings or [], dataset, rounds)
    job = make_job(experiment, folder, given, borrow or [], max_concurrent, name)
    if dry_run:
        show_plan(job, as_json)
    else:
        drive_and_show(job, as_json)


def _experiment(
    name: str, scale: str, settings: list[str], dataset: str | None, rounds: int | None
) -> "Experiment":
    from fedgps_ray.experiment import load, scaled

    if scale not in ("full", "small"):
        raise unknown("scale", scale, ["full", "small"])
    found = load(_path(name), settings)
    if scale == "small":
        return scaled(found, "small", dataset, rounds)
    if dataset or rounds:
        raise UserError("--dataset and --rounds are for --scale small; use --set otherwise")
    return found


def _path(name: str) -> Path:
    from fedgps_ray.experiment import paper_files

    known = paper_files()
    if name not in known:
        raise unknown("table of the paper", name, known)
    return known[name]
