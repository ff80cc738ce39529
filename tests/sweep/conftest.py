"""Tiny sweeps: specs of trials that take a second, and folders in which some have ended."""

import pytest

from fedgps_ray.rounds.trial import run_trial
from fedgps_ray.spec import ExecutionSpec, trial_spec
from fedgps_ray.sweep.ledger import Ledger

TINY = {
    "dataset": {"name": "synthetic", "image_size": 8, "train_size": 200, "test_size": 100},
    "partition": {"kind": "dirichlet", "alpha": 0.5},
    "model": "mlp",
    "clients": 4,
    "sampling_rate": 0.5,
    "batch_size": 32,
    "rounds": 3,
}


@pytest.fixture
def specs():
    """Make the specs of a grid: specs(["fedavg", "fedgps"], seeds=2)."""

    def make(methods, seeds=1, **changes):
        return [
            trial_spec(**{**TINY, "method": method, "seed": seed, **changes})
            for seed in range(seeds)
            for method in methods
        ]

    return make


@pytest.fixture
def run_here():
    """Run trials in this process and return the last hash of each."""

    def run(folder, specs):
        hashes = {}
        for spec in specs:
            rows = list(run_trial(spec, ExecutionSpec(out=folder, actors=0)))[1:]
            hashes[spec.trial_id] = rows[-1]["weights_sha256"]
        return hashes

    return run


@pytest.fixture
def ledger(tmp_path):
    """Make the ledger of a folder of its own."""
    return lambda specs: Ledger(tmp_path / "sweep", specs)
