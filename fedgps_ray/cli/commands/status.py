"""status: how the trials of a folder are doing."""

import shlex
from collections.abc import Mapping

import typer
from rich.markup import escape
from rich.table import Table

from fedgps_ray.cli.app import err, out, show_json
from fedgps_ray.cli.declared import Status
from fedgps_ray.cli.standings import show_accuracies
from fedgps_ray.identity import Settings
from fedgps_ray.results import schema
from fedgps_ray.results.folders import below, has_results, no_results
from fedgps_ray.sweep.board import from_json
from fedgps_ray.sweep.observe import standing
from fedgps_ray.units import percent


def status(options: Status) -> None:
    """Show what is finished, running, failed and missing."""
    if not has_results(options.folder):
        reports = _show_parent(options)
    else:
        with err.status("reading results"):
            reports = [standing(options.folder, options.timing, options.verify)]
        if options.as_json:
            show_json(reports[0])
        else:
            _show(reports[0])
    if options.verify and any(report["damaged"] for report in reports):
        raise typer.Exit(1)


def _show(report: Settings) -> None:
    table = Table("status", "trials")
    for name, number in report["counts"].items():
        table.add_row(name, str(number))
    out.print(table)
    show_accuracies(out, [from_json(row) for row in report["leaderboard"]])
    for trial_id, reason in report["failures"].items():
        out.print(escape(f"{trial_id} failed: {reason.partition(chr(10))[0]}"), soft_wrap=True)
    _show_problems(report)
    if report["not_sealed"]:
        number = len(report["not_sealed"])
        out.print(f"{number} not sealed: without hashes, changes to its files cannot be noticed")
    if "note" in report:
        out.print(report["note"])
    if "verified" in report:
        out.print(f"{report['verified']} ended trials are as they were when they ended")
    for name, value in report.get("timing", {}).items():
        out.print(escape(f"{name.replace('_', ' ')}: {value}"), soft_wrap=True)
    if not report["driven"] and report["counts"].get(schema.INTERRUPTED):
        again = f"to continue: fedgps-ray resume {shlex.quote(report['folder'])}"
        out.print(escape(again), soft_wrap=True)


def _show_problems(report: Settings) -> None:
    for trial_id, reason in report["problems"].items():
        text = f"{trial_id} is damaged; the next sweep or resume runs it again: {reason}"
        out.print(escape(text), soft_wrap=True)


def _show_parent(options: Status) -> list[Settings]:
    """Show the results folders below a folder, one per line, and the damage; return them."""
    paths = list(below(options.folder))
    with err.status("reading results"):
        reports = {str(path): standing(path, options.timing, options.verify) for path in paths}
    if not reports:
        raise no_results(options.folder)
    if options.as_json:
        show_json(reports)
    else:
        _show_all(reports)
    return list(reports.values())


def _show_all(reports: Mapping[str, Settings]) -> None:
    table = Table("folder", "trials", "status", "best")
    for folder, each in reports.items():
        counts = each["counts"]
        parts = [f"{number} {name}" for name, number in counts.items()]
        damaged = [f"{len(each['damaged'])} damaged"] if each["damaged"] else []
        bests = [row["best"] for row in each["leaderboard"] if row["best"] is not None]
        told, best = ", ".join(parts + damaged), percent(max(bests, default=None))
        table.add_row(escape(folder), str(sum(counts.values())), told, best)
    out.print(table)
    for report in reports.values():
        _show_problems(report)
