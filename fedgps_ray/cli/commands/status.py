"""status: how the trials of a folder are doing."""

import json
from typing import Any

from rich.markup import escape
from rich.table import Table

from fedgps_ray.cli.app import out
from fedgps_ray.cli.declared import Status
from fedgps_ray.cli.standings import show_accuracies
from fedgps_ray.results.folders import below, has_results, no_results
from fedgps_ray.sweep.board import from_json
from fedgps_ray.sweep.observe import standing
from fedgps_ray.units import percent


def status(options: Status) -> None:
    """Show what is finished, running, failed and missing."""
    if not has_results(options.folder):
        _show_parent(options)
        return
    found = standing(options.folder, options.timing)
    if options.as_json:
        print(json.dumps(found))
    else:
        _show(found)


def _show(found: dict[str, Any]) -> None:
    table = Table("status", "trials")
    for name, number in found["counts"].items():
        table.add_row(name, str(number))
    out.print(table)
    show_accuracies(out, [from_json(row) for row in found["leaderboard"]])
    for trial_id, reason in found["failures"].items():
        out.print(escape(f"{trial_id} failed: {reason.partition(chr(10))[0]}"), soft_wrap=True)
    for trial_id in found["damaged"]:
        out.print(f"{trial_id} is damaged; the next sweep or resume runs it again")
    for name, value in found.get("timing", {}).items():
        out.print(f"{name.replace('_', ' ')}: {value}")


def _show_parent(options: Status) -> None:
    """Show the results folders below a folder, a line each."""
    found = {str(path): standing(path, options.timing) for path in below(options.folder)}
    if not found:
        raise no_results(options.folder)
    if options.as_json:
        print(json.dumps(found))
        return
    table = Table("folder", "trials", "status", "best")
    for folder, each in found.items():
        counts = each["counts"]
        told = ", ".join(f"{number} {name}" for name, number in counts.items())
        bests = [row["best"] for row in each["leaderboard"] if row["best"] is not None]
        best = percent(max(bests, default=None))
        table.add_row(escape(folder), str(sum(counts.values())), told, best)
    out.print(table)
