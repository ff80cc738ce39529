"""From the folders of finished sweeps to the small files that are published with the project.

    python -m fedgps_ray.experiments.evidence.collect runs/evidence/* --out RESULTS

A folder is named after its sweep (see sweeps.py), here and in the results, where depth has the
place above the others. Trials that were collected before stay. A trial keeps its settings and its
curves, 4 to 6 KB, and a sweep keeps each partition once. Left out are models, rows of single
clients (but for the mean norm of their updates), losses, times, paths, and all but the last weights
hash, which is in trial.json. Drift and the worst client have seven digits. `fedgps-ray report`
reads the rest.
"""

import argparse
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from fedgps_ray.errors import UserError, unknown
from fedgps_ray.experiments.evidence.sweeps import SWEEPS, place
from fedgps_ray.results import files
from fedgps_ray.results.read import hashes, read_rows
from fedgps_ray.results.schema import CLIENTS, ENDED, ROUNDS

KEPT = ["trial_id", "round", "accuracy", "bytes_up", "bytes_down"]
ROUNDED = ["worst_client_accuracy", "update_diversity"]
OF_LAST_ROUND = ["class_accuracy", "p10_client_accuracy", "median_client_accuracy"]
LEFT_OUT = ("machine", "computed_on", "updated", "moved_samples", files.SEAL)
COUNTS = ["trial_id", "client", "class", "count"]
LIMIT_BYTES = 3_000_000


def finished(folder: Path) -> Iterator[Path]:
    """Yield the folders of trials that have ended with a result."""
    for path in sorted(folder.glob("trials/*/trial.json")):
        if json.loads(path.read_text())["status"] in ENDED:
            yield path.parent


def published(out: Path) -> dict[str, str]:
    """Return the sweep of each trial that was collected before."""
    return {
        path.parent.name: name
        for name in SWEEPS
        for path in sorted(place(out, name).glob("trials/*/trial.json"))
    }


def collect(folders: Sequence[Path], out: Path) -> int:
    """Write the small files of all finished trials beside what is there; return their size.

    A trial that was collected before is written anew if it is in one of the folders, and is
    otherwise kept as it is.
    """
    for folder in folders:
        if folder.name not in SWEEPS:
            raise unknown("sweep", folder.name, SWEEPS)
    found = [(folder.name, trial) for folder in folders for trial in finished(folder)]
    if not found:
        raise UserError(f"no finished trials in {', '.join(map(str, folders))}")
    _check(found, published(out))
    for sweep, trial in found:
        _one(trial, place(out, sweep) / "trials" / trial.name)
    size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    if size > LIMIT_BYTES:
        raise UserError(f"{size} bytes are more than the {LIMIT_BYTES} that may be published")
    return size


def _check(found: Sequence[tuple[str, Path]], before: Mapping[str, str]) -> None:
    """Refuse trials that are of two sweeps."""
    pairs = {(trial.name, sweep) for sweep, trial in found} | set(before.items())
    if twice := len(pairs) - len(dict(pairs)):
        raise UserError(f"{twice} trials are of two sweeps: which one is right?")


def _one(source: Path, target: Path) -> None:
    """Write one trial; a partition is written with the first trial of a sweep that has it."""
    shutil.rmtree(target, ignore_errors=True)
    info = json.loads((source / "trial.json").read_text())
    kept = {key: value for key, value in info.items() if key not in LEFT_OUT}
    kept["execution"] = {}  # where it ran is no part of the evidence, but every trial has the key
    rounds = read_rows(source / "rounds.parquet", ROUNDS)
    clients = read_rows(source / "clients.parquet", CLIENTS)
    is_new = info["partition_sha256"] not in _partitions(target.parent)
    target.mkdir(parents=True)
    _write(small(rounds, clients), target / "rounds.parquet")
    if is_new:
        counts = pq.read_table(source / "partition.parquet")
        _write(_plain(counts).select(COUNTS), target / "partition.parquet")
    kept["files"] = hashes(target)
    files.write_json(target / "trial.json", kept, durable=False)


def _partitions(trials: Path) -> set[str]:
    """Return the hashes of the partitions that are kept with some trials."""
    kept = [path.with_name("trial.json") for path in trials.glob("*/partition.parquet")]
    return {json.loads(path.read_text())["partition_sha256"] for path in kept}


def small(rounds: pa.Table, clients: pa.Table) -> pa.Table:
    """Return the columns of the rounds that are published."""
    table = _plain(rounds).select(KEPT)
    for name in ROUNDED:
        table = table.append_column(name, rounds[name].cast(pa.float32()))
    for name in OF_LAST_ROUND:
        column = rounds[name].to_pylist()
        last = [None] * (len(column) - 1) + column[-1:]
        table = table.append_column(name, pa.array(last, rounds.schema.field(name).type))
    if any(rounds["metrics"].to_pylist()):
        metrics = rounds["metrics"].cast(pa.map_(pa.string(), pa.float32()))
        table = table.append_column("metrics", metrics)
    return table.append_column("update_norm", update_norms(rounds, clients))


def _plain(table: pa.Table) -> pa.Table:
    """Return a table whose ids are plain text: a dictionary of one word takes more room."""
    place = table.column_names.index("trial_id")
    return table.set_column(place, "trial_id", table["trial_id"].cast(pa.string()))


def update_norms(rounds: pa.Table, clients: pa.Table) -> pa.Array:
    """Return for each round the mean norm of its clients' updates."""
    means = clients.group_by("round").aggregate([("update_norm", "mean")])
    by_round = {row["round"]: row["update_norm_mean"] for row in means.to_pylist()}
    return pa.array([by_round.get(number) for number in rounds["round"].to_pylist()], pa.float32())


def _write(table: pa.Table, path: Path) -> None:
    pq.write_table(
        table,
        path,
        compression="zstd",
        compression_level=19,
        store_schema=False,
        use_dictionary=False,
        write_statistics=False,
    )


def main() -> None:
    """Collect what is named on the command line."""
    parser = argparse.ArgumentParser(description="Collect finished trials as small files.")
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    try:
        size = collect(asked.folders, asked.out)
    except UserError as problem:
        parser.exit(2, f"error: {problem}\n")
    parser.exit(0, f"{size} bytes in {asked.out}\n")


if __name__ == "__main__":
    main()
