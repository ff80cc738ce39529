"""A results folder as a sweep would leave it, with made-up numbers: for trying out the report.

python tests/analysis/fabricate.py FOLDER --trials 24 --rounds 50
"""

import argparse
import json
import math
from itertools import product
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fedgps_ray import seeds
from fedgps_ray.results import files, tables
from fedgps_ray.results.read import hashes
from fedgps_ray.results.store import TrialStore
from fedgps_ray.results.summary import summary
from fedgps_ray.spec import ExecutionSpec, columns, trial_spec

MEGABYTE = 1_000_000
CEILINGS = {
    "fedavg": 0.62,
    "fedgps": 0.74,
    "fedgps_cf": 0.735,
    "scaffold": 0.66,
    "fedprox": 0.63,
    "vhl": 0.71,
    "fedasam": 0.64,
    "fedlesam": 0.69,
}
NUM_CLASSES = 10


def _accuracy(rng, spec, ceiling, number):
    hard = 0.04 * (spec.scenario % 5)
    speed = 0.08 * spec.rounds * (0.5 + spec.sampling_rate)
    level = (ceiling - hard) * (1 - math.exp(-number / speed))
    return float(np.clip(level + rng.normal(0, 0.02), 0.01, 0.999))


def _row(rng, spec, ceiling, number):
    gps = columns(spec)["method"].startswith("fedgps")
    return {
        "round": number,
        "accuracy": _accuracy(rng, spec, ceiling, number),
        "loss": 2 / number,
        "train_loss": 2 / number,
        "weights_sha256": f"{number:064x}",
        "bytes_up": MEGABYTE,
        "bytes_down": MEGABYTE * (2 if gps else 1),
        "steps": 10,
        "gradient_evaluations": 10,
        "divergence": 5 / number / spec.sampling_rate if gps and number % 5 == 0 else None,
        "metrics": {},
        "train_seconds": 0.5,
        "aggregate_seconds": 0.01,
        "evaluate_seconds": 0.1,
    }


def _clients(rng, number):
    return [
        {
            "round": number,
            "client": client,
            "samples": 100,
            "steps": 2,
            "gradient_evaluations": 2,
            "loss": float(rng.gamma(4, 0.5 / number)),
            "bytes_up": MEGABYTE // 5,
            "bytes_down": MEGABYTE // 5,
            "worker": "made up",
            "work_seconds": 0.1,
        }
        for client in range(5)
    ]


def _counts(spec):
    rng = seeds.stream(spec.scenario, "made-up partition")
    alpha = getattr(spec.partition, "alpha", 10)
    shares = rng.dirichlet(np.full(spec.clients, alpha), size=NUM_CLASSES)
    return (500 * shares.T).astype(np.int64)


def make_trial(folder, ceiling=0.7, status="finished", facts=None, rounds_done=None, **values):
    """Leave one trial that ends (or stops) near an accuracy."""
    spec = trial_spec(**values)
    trial = TrialStore(folder, spec)
    trial.open(ExecutionSpec(out=folder))
    rng = seeds.stream(spec.seed, "made-up trial", spec.scenario, round(1e4 * ceiling))
    trial.write_partition(_counts(spec))
    trial._next_flush = math.inf
    for number in range(1, (spec.rounds if rounds_done is None else rounds_done) + 1):
        trial.add(_row(rng, spec, ceiling, number), _clients(rng, number))
    trial.flush()
    told = {"partition_sha256": f"{spec.scenario:064x}", **(facts or {})}
    trial.note(status=status, summary=summary(trial.rows), **told)
    return trial


def make_folder(folder, ceilings, scenarios=(1, 2), seeds=(0,), **values):
    """Leave a trial for every method, scenario and seed."""
    for scenario in scenarios:
        for seed in seeds:
            for method, ceiling in ceilings.items():
                make_trial(folder, ceiling, method=method, scenario=scenario, seed=seed, **values)
    return folder


def make_sweep(folder, trials=24, **values):
    """Leave so many trials of a sweep, with its list of cells: methods by scenarios and seeds."""
    methods = list(CEILINGS)[: 3 if trials < 12 else 4 if trials < 48 else 8]
    cases = list(product(range(1, 100), range(2)))[: -(-trials // len(methods))]
    planned = [(m, *case) for case in cases for m in methods][:trials]
    cells = []
    for method, scenario, seed in planned:
        trial = make_trial(
            folder, CEILINGS[method], method=method, scenario=scenario, seed=seed, **values
        )
        cells.append({**columns(trial.spec), "spec": trial.spec.model_dump(mode="json")})
    content = {"name": "made-up", "title": "Made up", "file": "made-up.toml", "cells": cells}
    (folder / "experiment.json").write_text(json.dumps(content))
    return folder


def later_columns(table, seed=0):
    """Return a table of rounds with the columns on updates, clients and classes."""
    rng, count = np.random.default_rng(seed), table.num_rows
    accuracy = np.array(table["accuracy"].to_pylist(), dtype=float)
    classes = np.clip(accuracy[:, None] + rng.normal(0, 0.1, (count, NUM_CLASSES)), 0, 1)
    made = {
        "update_diversity": 1 + 4 * accuracy + rng.normal(0, 0.1, count),
        "worst_client_accuracy": classes.min(axis=1),
        "p10_client_accuracy": np.quantile(classes, 0.1, axis=1),
        "median_client_accuracy": np.median(classes, axis=1),
    }
    for name, values in made.items():
        table = _with(table, name, pa.array(values))
    return _with(table, "class_accuracy", pa.array(list(classes), pa.list_(pa.float64())))


def _with(table, name, values):
    place = table.schema.get_field_index(name)
    return (
        table.set_column(place, name, values) if place >= 0 else table.append_column(name, values)
    )


def add_later_columns(folder):
    """Rewrite the rounds of all trials with those columns."""
    for number, path in enumerate(sorted(folder.glob("trials/*/rounds.parquet"))):
        tables.write(path, later_columns(pq.ParquetFile(path).read(), number))
        _seal(path.parent)


def _seal(trial):
    info = files.read_json(trial / "trial.json")
    files.write_json(trial / "trial.json", {**info, "files": hashes(trial)})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--trials", type=int, default=24)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--later", action="store_true", help="also columns on clients and classes")
    chosen = parser.parse_args()
    make_sweep(chosen.folder, chosen.trials, rounds=chosen.rounds)
    if chosen.later:
        add_later_columns(chosen.folder)
