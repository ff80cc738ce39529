"""paper list and paper write: the tables of the FedGPS paper as experiment files."""

import shutil
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.table import Column, Table

from fedgps_ray.cli.app import err, out, show_json, writing
from fedgps_ray.cli.declared import PaperList, PaperWrite
from fedgps_ray.errors import unknown
from fedgps_ray.experiment import Experiment, load, paper_files
from fedgps_ray.tools.cost.estimate import budget

Rows = list[dict[str, Any]]
FIGURES = ("ablation", "convergence", "divergence")  # not among the tables of results


def list_tables(options: PaperList) -> None:
    """List the paper's tables: trials, distinct runs, and what they would take."""
    with err.status("reading the experiment files") as status:
        tables = _tables()
        rows = _count(tables)
        told = ""
        if not options.no_estimate:
            status.update("measuring this machine")
            speedup = options.gpu_speedup
            told = _estimate(tables, rows, {} if speedup is None else {"gpu_speedup": speedup})
    if options.as_json:
        distinct = sum(row["new"] for row in rows)
        show_json({"tables": rows, "distinct": distinct, "estimate": told})
        return
    out.print(_overview(rows))
    out.print(_totals([row for row in rows if row["name"] not in FIGURES], "tables"))
    out.print(_totals(rows, "tables and figures"))
    if told:
        out.print(escape(told), soft_wrap=True)


def _tables() -> dict[str, Experiment]:
    """Return all tables of the paper, then its figures."""
    known = paper_files()
    return {name: load(known[name]) for name in sorted(known, key=lambda n: (n in FIGURES, n))}


def _overview(rows: Rows) -> Table:
    with_hours = any("gpu_hours" in row for row in rows)
    heads = ("trials", "of these not\nin a row above", *(["GPU-hours"] if with_hours else []))
    table = Table("name", "what", *(Column(head, justify="right") for head in heads))
    for row in rows:
        hours = [f"{row['gpu_hours']:,.0f}"] if with_hours else []
        table.add_row(row["name"], row["title"], str(row["trials"]), str(row["new"]), *hours)
    return table


def _count(tables: dict[str, Experiment]) -> Rows:
    """Return one row per table; trials that a table above has too are not new."""
    rows, known = [], set[str]()
    for name, table in tables.items():
        ids = {cell.trial_id for cell in table.cells}
        new = len(ids - known)
        known |= ids
        rows.append({"name": name, "title": table.title, "trials": len(ids), "new": new})
    return rows


def _estimate(tables: dict[str, Experiment], rows: Rows, assumed: dict[str, float]) -> str:
    """Add the hours to the rows; return what was measured and what assumed."""
    specs = {name: [cell.spec for cell in table.cells] for name, table in tables.items()}
    for row in rows:
        row["gpu_hours"] = budget(specs[row["name"]], **assumed).gpu_hours  # type: ignore[arg-type]
    distinct = {spec.trial_id: spec for part in specs.values() for spec in part}
    whole = budget(list(distinct.values()), **assumed)  # type: ignore[arg-type]
    return f"All distinct runs together: {whole.gpu_hours:,.0f} GPU-hours. {whole.sentence}"


def _totals(rows: Rows, what: str) -> str:
    trials, distinct = (sum(row[key] for row in rows) for key in ("trials", "new"))
    return f"{len(rows)} {what}: {trials} trials, {distinct} distinct"


def write(options: PaperWrite) -> None:
    """Write the experiment file of a table."""
    source, target = path_of(options.name), options.target
    writing(target, lambda: shutil.copyfile(source, target))
    out.print(escape(f"wrote {target}; run it with: fedgps-ray sweep {target}"), soft_wrap=True)


def path_of(name: str) -> Path:
    """Return the experiment file of a table."""
    known = paper_files()
    if name not in known:
        raise unknown("table of the paper", name, known)
    return known[name]
