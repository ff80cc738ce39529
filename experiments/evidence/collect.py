"""From the folders of finished sweeps to the small files that are published with the project.

    python -m fedgps_ray.experiments.evidence.collect runs/depth runs/breadth --out RESULTS

A trial keeps its settings and its curves, 6 to 7 KB, and each partition is kept once; models,
rows of single clients, test losses, times and all weights hashes but the last are left out.
`fedgps-ray report` reads the rest.
"""

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from fedgps_ray.errors import UserError
from fedgps_ray.results import files
from fedgps_ray.results.read import hashes
from fedgps_ray.results.schema import ENDED

NOT_KEPT = {
    "loss",
    "steps",
    "gradient_evaluations",
    "divergence",
    "train_seconds",
    "aggregate_seconds",
    "evaluate_seconds",
}
LEFT_OUT = ("machine", "computed_on", "updated", files.SEAL)
LIMIT_BYTES = 3_000_000


def finished(folders: Sequence[Path]) -> Iterator[Path]:
    """Yield the folders of trials that have ended with a result."""
    for folder in folders:
        for path in sorted(folder.glob("trials/*/trial.json")):
            if json.loads(path.read_text())["status"] in ENDED:
                yield path.parent


def collect(folders: Sequence[Path], out: Path) -> int:
    """Write the small files of all finished trials; return their size in bytes."""
    trials = list(finished(folders))
    if not trials:
        raise UserError(f"no finished trials in {', '.join(map(str, folders))}")
    partitions: set[str] = set()
    size = sum(_one(trial, out / "trials" / trial.name, partitions) for trial in trials)
    if size > LIMIT_BYTES:
        raise UserError(f"{size} bytes are more than the {LIMIT_BYTES} that may be published")
    return size


def _one(source: Path, target: Path, partitions: set[str]) -> int:
    """Write one trial; a partition is written with the first trial that has it."""
    target.mkdir(parents=True, exist_ok=True)
    info = json.loads((source / "trial.json").read_text())
    kept = {key: value for key, value in info.items() if key not in LEFT_OUT}
    kept["execution"] = {}  # where it ran is no part of the evidence, but every trial has the key
    rounds = pq.read_table(source / "rounds.parquet")
    unused = [name for name in rounds.column_names if name in NOT_KEPT]
    _write(with_last_hash(rounds.drop_columns(unused)), target / "rounds.parquet")
    if info["partition_sha256"] not in partitions:
        partitions.add(info["partition_sha256"])
        _write(pq.read_table(source / "partition.parquet"), target / "partition.parquet")
    kept["files"] = hashes(target)
    files.write_json(target / "trial.json", kept, durable=False)
    return sum(path.stat().st_size for path in target.iterdir())


def with_last_hash(rounds: pa.Table) -> pa.Table:
    """Return the rows with the last weights hash only: hashes take more space than all numbers."""
    place = rounds.schema.get_field_index("weights_sha256")
    hashes = rounds.column(place).to_pylist()
    last = [None] * (len(hashes) - 1) + hashes[-1:]
    return rounds.set_column(place, rounds.schema.field(place), pa.array(last, pa.string()))


def _write(table: pa.Table, path: Path) -> None:
    small = {"store_schema": False, "use_dictionary": False, "write_statistics": False}
    pq.write_table(table, path, compression="zstd", compression_level=19, **small)


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
