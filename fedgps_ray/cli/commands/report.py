"""report: results as tables, statistics and figures."""

import json
from collections.abc import Callable
from pathlib import Path

import pandas as pd
from rich.markup import escape
from rich.status import Status

from fedgps_ray.analysis import formats, load, metrics, tables
from fedgps_ray.analysis.report import write_following, write_published, write_with_runs
from fedgps_ray.analysis.report.verdict import judge
from fedgps_ray.analysis.text import one_line
from fedgps_ray.cli.app import err, out, say, show_json, writing
from fedgps_ray.cli.declared import Report
from fedgps_ray.loading import load as load_code
from fedgps_ray.results.folders import has_results, no_results
from fedgps_ray.units import printable

MOST_LINES = 10  # about trials that were left out


def report(options: Report) -> None:
    """Write a report and show the comparison."""
    if options.published:
        _publish(options.target or Path("report-published"), options.as_json)
        return
    folders = options.folders or []
    for folder in folders:
        if not (options.follow or has_results(folder)):
            raise no_results(folder)
    where = options.target or folders[0] / "report"
    with err.status("reading results") as status:
        if options.theory:
            _measure_theory(folders, status, options.data_dir)
        make = _follow if options.follow else _write
        written, runs = writing(where, lambda: make(folders, where, options, status))
    if options.as_json:
        frame = load.trials(*folders)
        rows = json.loads(frame.to_json(orient="records"))
        show_json({"report": str(written), "trials": rows, **frame.attrs})
        return
    _show(runs)
    _tell_gaps(runs)
    out.print(escape(f"report: {written}"), soft_wrap=True)


def _write(
    folders: list[Path], where: Path, options: Report, status: Status
) -> tuple[Path, pd.DataFrame]:
    against = options.against == "paper"
    return write_with_runs(folders, where, against, options.theory, _teller(status))


def _follow(
    folders: list[Path], where: Path, options: Report, status: Status
) -> tuple[Path, pd.DataFrame]:
    out.print(escape(f"open in a browser: {where / 'report.html'}"), soft_wrap=True)
    written = write_following(folders, where, options.against == "paper", _teller(status))
    return written, metrics.runs(load.trials(*folders), load.rounds(*folders))


def _teller(status: Status) -> Callable[[str], None]:
    return lambda text: status.update(escape(printable(text)))


def _measure_theory(folders: list[Path], status: Status, data_dir: Path | None) -> None:
    measure_all = load_code("fedgps_ray.tools.theory:measure_all")
    for folder in folders:
        measure_all(folder, _teller(status), data_dir=data_dir)


def _publish(where: Path, as_json: bool) -> None:
    with err.status("the paper's numbers") as status:
        written = writing(where, lambda: write_published(where, _teller(status)))
    if as_json:
        show_json({"report": str(written)})
    else:
        print(f"report: {written}")


def _show(runs: pd.DataFrame) -> None:
    """Show the comparison of each setting, and the verdict, in the terminal."""
    for _, part in metrics.settings(runs):
        out.print(formats.to_rich(tables.overview(part)))
    for line in judge(runs):
        out.print(escape(one_line(line)), soft_wrap=True)


def _tell_gaps(runs: pd.DataFrame) -> None:
    """Say what was left out because it is damaged, and whose changes could not be noticed."""
    problems, not_sealed = list(dict.fromkeys(runs.attrs["problems"])), runs.attrs["not_sealed"]
    for problem in problems[:MOST_LINES]:
        say(f"left out: {one_line(problem)}")
    if len(problems) > MOST_LINES:
        say(f"left out: {len(problems) - MOST_LINES} more, see the report")
    if not_sealed:
        some = ", ".join(not_sealed[:MOST_LINES]) + (", ..." if not_sealed[MOST_LINES:] else "")
        say(f"not sealed, so changes to their files cannot be noticed: {len(not_sealed)} ({some})")
