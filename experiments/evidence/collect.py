"""From the folders of finished sweeps to the small files that are published with the project.

    python -m fedgps_ray.experiments.evidence.collect runs/depth runs/breadth --out RESULTS

A trial keeps its settings, its curves and its partition, about 6 KB; models, rows of single
clients, times and all weights hashes but the last are left out. `fedgps-ray report` reads the rest.
"""

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from fedgps_ray.errors import UserError
from fedgps_ray.results.schema import ENDED

ROUNDS = (
    "trial_id",
    "round",
    "accuracy",
    "loss",
    "train_loss",
    "weights_sha256",
    "bytes_up",
    "bytes_down",
    "metrics",
)
PARTITION = ("trial_id", "client", "class", "count")
LEFT_OUT = ("machine", "updated")
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
    size = sum(_one(trial, out / "trials" / trial.name) for trial in trials)
    if size > LIMIT_BYTES:
        raise UserError(f"{size} bytes are more than the {LIMIT_BYTES} that may be published")
    return size


def _one(source: Path, target: Path) -> int:
    target.mkdir(parents=True, exist_ok=True)
    info = json.loads((source / "trial.json").read_text())
    kept = {key: value for key, value in info.items() if key not in LEFT_OUT}
    kept["execution"] = {}  # where it ran is no part of the evidence, but every trial has the key
    (target / "trial.json").write_text(json.dumps(kept, separators=(",", ":")) + "\n")
    _write(with_last_hash(pq.read_table(source / "rounds.parquet", columns=[*ROUNDS])), target)
    partition = pq.read_table(source / "partition.parquet", columns=[*PARTITION])
    _write(partition, target, "partition.parquet")
    return sum(path.stat().st_size for path in target.iterdir())


def with_last_hash(rounds: pa.Table) -> pa.Table:
    """Return the rows with the last weights hash only: hashes take more space than all numbers."""
    place = rounds.schema.get_field_index("weights_sha256")
    hashes = rounds.column(place).to_pylist()
    last = [None] * (len(hashes) - 1) + hashes[-1:]
    return rounds.set_column(place, rounds.schema.field(place), pa.array(last, pa.string()))


def _write(table: pa.Table, target: Path, name: str = "rounds.parquet") -> None:
    pq.write_table(
        table, target / name, compression="zstd", compression_level=19, write_statistics=False
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
