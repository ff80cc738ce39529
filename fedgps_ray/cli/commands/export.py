"""export: results as CSV or Parquet."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from rich.markup import escape

from fedgps_ray.analysis import load
from fedgps_ray.cli.app import out, say, show_json, writing
from fedgps_ray.cli.declared import TABLES, Export
from fedgps_ray.errors import UserError
from fedgps_ray.results import files
from fedgps_ray.results.export import write_table
from fedgps_ray.results.folders import has_results, no_results

FILES = (".csv", ".parquet")
READ = {
    "rounds": load.rounds,
    "clients": load.clients,
    "trials": load.trials,
    "partitions": load.partitions,
}


def export(options: Export) -> None:
    """Write all four tables into a folder, or one of them to a file."""
    if not has_results(options.folder):
        raise no_results(options.folder)
    written = {}
    for table, path in _targets(options).items():
        frame = READ[table](options.folder)
        for problem in _notes(frame.attrs):
            say(f"note: {problem}")
        writing(path, partial(write_table, frame, path))
        written[str(path)] = len(frame)
    if options.as_json:
        show_json(written)
        return
    for name, rows in written.items():
        out.print(escape(f"{name}: {rows} rows"), soft_wrap=True, highlight=False)


def _notes(told: dict[Any, Any]) -> Iterator[str]:
    """Yield what to say about a frame, which is then written without it."""
    yield from told.pop("problems", [])
    if trials := told.pop("not_sealed", []):
        yield f"{len(trials)} not sealed: without hashes, changes to its files cannot be noticed"


def _targets(options: Export) -> dict[str, Path]:
    target = options.target
    if target is None:
        target = options.folder / "export"
        files.refuse_link(target)  # the folder may be a stranger's
    if target.suffix not in FILES:
        ending = ".parquet" if options.parquet else ".csv"
        return {table: target / f"{table}{ending}" for table in TABLES}
    wanted = {".csv": options.csv, ".parquet": options.parquet}
    if any(wanted.values()) and not wanted[target.suffix]:
        raise UserError(f"--out {target}: its ending is for the other format")
    return {options.table: target}
