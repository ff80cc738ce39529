"""The command that turns results into tables, statistics and figures: report."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from fedgps_ray.cli.app import Json, app, err, out, writing
from fedgps_ray.errors import UserError, unknown


@app.command(epilog="Example: fedgps-ray report runs/quickstart --against paper")
def report(
    folders: Annotated[
        list[Path] | None, typer.Argument(help="Results folders, of runs or sweeps.")
    ] = None,
    target: Annotated[
        Path | None, typer.Option("--out", help="Folder of the report; default FOLDER/report.")
    ] = None,
    against: Annotated[
        str | None, typer.Option(help="paper: also put the published numbers beside ours.")
    ] = None,
    published: Annotated[
        bool, typer.Option("--published", help="Report on the paper's printed numbers alone.")
    ] = False,
    theory: Annotated[
        bool, typer.Option("--theory", help="Also measure the terms of the paper's theory.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Write tables, statistics and figures with a report.html, and show the comparison."""
    if against not in (None, "paper"):
        raise unknown("comparison", against, ["paper"])
    if published:
        _publish(target or Path("report-published"), as_json)
        return
    if not folders:
        raise UserError("name a results folder, such as runs/quickstart, or use --published")
    where = target or folders[0] / "report"
    with err.status("reading results") as status:
        if theory:
            _measure_theory(folders, status)
        written = writing(where, lambda: _write(folders, where, against, theory, status))
    if as_json:
        from fedgps_ray.analysis import load

        rows = json.loads(load.trials(*folders).to_json(orient="records"))
        print(json.dumps({"report": str(written), "trials": rows}))
        return
    _show(folders)
    out.print(escape(f"report: {written}"), soft_wrap=True)


def _write(
    folders: list[Path], where: Path, against: str | None, theory: bool, status: Any
) -> Path:
    from fedgps_ray.analysis.report import write
    from fedgps_ray.methods import METHODS, about

    formulas = {name: (about(kind).up, about(kind).down) for name, kind in METHODS.items()}
    return write(
        folders,
        where,
        against=against == "paper",
        theory=theory,
        formulas=formulas,
        tell=lambda text: status.update(escape(text)),
    )


def _measure_theory(folders: list[Path], status: Any) -> None:
    from fedgps_ray.tools.theory import measure_all

    for folder in folders:
        measure_all(folder, lambda text: status.update(escape(text)))


def _publish(where: Path, as_json: bool) -> None:
    from fedgps_ray.analysis.report import write_published

    with err.status("the paper's numbers") as status:
        written = writing(where, lambda: write_published(where, lambda t: status.update(escape(t))))
    print(json.dumps({"report": str(written)}) if as_json else f"report: {written}")


def _show(folders: list[Path]) -> None:
    """Show the comparison of each setting in the terminal."""
    from fedgps_ray.analysis import formats, load, metrics, tables

    runs = metrics.runs(load.trials(*folders), load.rounds(*folders))
    for _, part in metrics.settings(runs):
        out.print(formats.to_rich(tables.overview(part)))
