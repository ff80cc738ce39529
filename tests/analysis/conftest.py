"""Results folders as runs would leave them, with made-up but plausible numbers."""

import math

import numpy as np
import pytest

from fedgps_ray import seeds
from fedgps_ray.results.store import TrialStore
from fedgps_ray.results.summary import summary
from fedgps_ray.spec import ExecutionSpec, columns, trial_spec

MEGABYTE = 1_000_000


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


def _counts(spec, num_classes=10):
    rng = seeds.stream(spec.scenario, "made-up partition")
    alpha = getattr(spec.partition, "alpha", 10)
    shares = rng.dirichlet(np.full(spec.clients, alpha), size=num_classes)
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


@pytest.fixture(scope="session")
def trial_maker():
    return make_trial


@pytest.fixture(scope="session")
def folder_maker():
    return make_folder
