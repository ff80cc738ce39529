"""Rounds of the command itself, `fedgps-ray run`, against a pool of plain PyTorch processes."""

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import pyarrow.parquet as pq

from fedgps_ray.tools.bench.bare import Pool, Workload, make_data

WARM_UP = 1  # rounds at the start that are not counted


class Turn(NamedTuple):
    """Seconds a round of the command, and of the bare pool before and after it."""

    ours: float
    bare: float

    @property
    def ratio(self) -> float:
        """How many times as long the command takes."""
        return self.ours / self.bare


def turns(load: Workload, rounds: int, repeats: int, cores: int) -> list[Turn]:
    """Run the command between two runs of the bare pool, several times."""
    pool = Pool(load, make_data(load), cores)
    done: list[Turn] = []
    try:
        bare_rounds(pool, WARM_UP)
        for _ in range(repeats):
            before = bare_rounds(pool, rounds)
            ours = command_rounds(load, rounds, cores)
            done.append(Turn(ours, (before + bare_rounds(pool, rounds)) / 2))
    finally:
        pool.close()
    return done


def bare_rounds(pool: Pool, rounds: int) -> float:
    """Return the median seconds of a round of the bare pool."""
    seconds = []
    for _ in range(rounds):
        began = time.perf_counter()
        pool.round()
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds)


def command_rounds(load: Workload, rounds: int, cores: int) -> float:
    """Return the median seconds of a round of the command, from the rows of its trial."""
    with tempfile.TemporaryDirectory() as folder:
        arguments = [*arguments_of(load, rounds + WARM_UP + 1), "--actors", str(cores)]
        command = [sys.executable, "-m", "fedgps_ray", "run", *arguments, "--out", folder]
        subprocess.run(command, check=True, capture_output=True)
        return row_seconds(Path(folder))


def row_seconds(folder: Path) -> float:
    """Return the median of training and aggregation, without the first rounds and the last."""
    (path,) = folder.glob("trials/*/rounds.parquet")
    rows = pq.read_table(path, columns=["train_seconds", "aggregate_seconds"]).to_pylist()
    counted = rows[WARM_UP:-1]  # the last round is also tested
    seconds = [float(row["train_seconds"] + row["aggregate_seconds"]) for row in counted]
    return statistics.median(seconds)


def arguments_of(load: Workload, rounds: int) -> list[str]:
    """Return the command's arguments for a workload."""
    settings = {
        "dataset.image_size": load.image_size,
        "dataset.train_size": load.clients * load.samples,
        "dataset.test_size": 256,
        "clients": load.clients,
        "sampling_rate": load.per_round / load.clients,
        "batch_size": load.batch_size,
        "rounds": rounds,
        "evaluate_every": rounds,
        "partition.kind": "iid",
        "augment": "none",
        "optimizer.client_momentum": "reset",
    }
    named = ["--method", "fedgps" if load.fedgps else "fedavg", "--model", load.model]
    given = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
    return [*named, "--dataset", "synthetic", *given]
