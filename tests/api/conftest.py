"""Trials that take a moment."""

import pytest

TINY = {
    "dataset": {
        "name": "synthetic",
        "num_classes": 3,
        "image_size": 8,
        "channels": 1,
        "train_size": 60,
        "test_size": 15,
    },
    "partition": {"kind": "dirichlet", "alpha": 0.5, "min_size": 5},
    "model": "mlp",
    "clients": 4,
    "batch_size": 8,
    "rounds": 3,
}


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """Work in a fresh folder and return the settings of a small trial."""
    monkeypatch.chdir(tmp_path)
    return {**TINY, "method": "fedavg"}
