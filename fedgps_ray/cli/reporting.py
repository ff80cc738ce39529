"""The command that turns results into tables, statistics and figures: report."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from fedgps_ray.cli.app import Json, app, err, out, writing
from fedgps_ray.errors import UserError, unknown


@app.command(epilog="Example: fedgps-ray report runs/quickstart --against paper")
def report(  # noqa: PLR0913  typer reads one option from each parameter
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
    follow: Annotated[
        bool,
        typer.Option("--follow", help="Rewrite the page while a sweep runs; it reloads itself."),
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
        make = _follow if follow else _write
        written = writing(where, lambda: make(folders, where, against, theory, status))
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

    def tell(text: str) -> None:
        status.update(escape(text))

    return write(folders, where, against=against == "paper", theory=theory, tell=tell)


def _follow(
    folders: list[Path], where: Path, against: str | None, theory: bool, status: Any
) -> Path:
    from fedgps_ray.analysis.report import write_following

    if theory:
        raise UserError("--theory measures finished trials; use it without --follow")
    out.print(escape(f"open in a browser: {where / 'report.html'}"), soft_wrap=True)
    return write_following(folders, where, against == "paper", lambda t: status.update(escape(t)))


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
    """Show the comparison of each setting, and the verdict, in the terminal."""
    from fedgps_ray.analysis import formats, load, metrics, tables
    from fedgps_ray.analysis.report.verdict import judge
    from fedgps_ray.analysis.text import one_line

    runs = metrics.runs(load.trials(*folders), load.rounds(*folders))
    for _, part in metrics.settings(runs):
        out.print(formats.to_rich(tables.overview(part)))
    for line in judge(runs):
        out.print(escape(one_line(line)), soft_wrap=True)
