"""report: results as tables, statistics and figures."""

import json
from pathlib import Path

from rich.markup import escape
from rich.status import Status

from fedgps_ray.analysis import formats, load, metrics, tables
from fedgps_ray.analysis.report import write, write_published
from fedgps_ray.cli.app import err, out, writing
from fedgps_ray.cli.declared import Report
from fedgps_ray.results.folders import has_results, no_results
from fedgps_ray.loading import load as load_code
from fedgps_ray.methods import METHODS, about


def report(options: Report) -> None:
    """Write a report and show the comparison."""
    if options.published:
        _publish(options.target or Path("report-published"), options.as_json)
        return
    folders = options.folders or []
    for folder in folders:
        if not has_results(folder):
            raise no_results(folder)
    where = options.target or folders[0] / "report"
    with err.status("reading results") as status:
        if options.theory:
            _measure_theory(folders, status)
        written = writing(where, lambda: _write(folders, where, options, status))
    if options.as_json:
        rows = json.loads(load.trials(*folders).to_json(orient="records"))
        print(json.dumps({"report": str(written), "trials": rows}))
        return
    _show(folders)
    out.print(escape(f"report: {written}"), soft_wrap=True)


def _write(folders: list[Path], where: Path, options: Report, status: Status) -> Path:
    formulas = {name: (about(kind).up, about(kind).down) for name, kind in METHODS.items()}
    return write(
        folders,
        where,
        against=options.against == "paper",
        theory=options.theory,
        formulas=formulas,
        tell=lambda text: status.update(escape(text)),
    )


def _measure_theory(folders: list[Path], status: Status) -> None:
    measure_all = load_code("fedgps_ray.tools.theory:measure_all")
    for folder in folders:
        measure_all(folder, lambda text: status.update(escape(text)))


def _publish(where: Path, as_json: bool) -> None:
    with err.status("the paper's numbers") as status:
        written = writing(where, lambda: write_published(where, lambda t: status.update(escape(t))))
    print(json.dumps({"report": str(written)}) if as_json else f"report: {written}")


def _show(folders: list[Path]) -> None:
    """Show the comparison of each setting in the terminal."""
    runs = metrics.runs(load.trials(*folders), load.rounds(*folders))
    for _, part in metrics.settings(runs):
        out.print(formats.to_rich(tables.overview(part)))
