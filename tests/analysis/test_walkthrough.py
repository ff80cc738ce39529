"""The walkthrough runs as it stands, on trials that were really run."""

import runpy
from pathlib import Path

import pytest

from fedgps_ray.rounds.trial import run_trial
from fedgps_ray.spec import ExecutionSpec, trial_spec

SCRIPT = Path(__file__).parents[2] / "analysis" / "walkthrough.py"
DATA = {"num_classes": 3, "image_size": 8, "channels": 1, "train_size": 60, "test_size": 30}
TINY = {
    "dataset": {"name": "synthetic", **DATA},
    "partition": {"alpha": 0.5, "min_size": 6},
    "model": "mlp",
    "clients": 4,
    "rounds": 3,
    "batch_size": 8,
    "surrogate": {"per_class": 4, "batch_size": 6},
}


@pytest.fixture
def results(tmp_path):
    for method in ("fedavg", "fedprox", "fedgps"):
        for scenario in (1, 2):
            spec = trial_spec(**TINY, method=method, scenario=scenario)
            for _ in run_trial(spec, ExecutionSpec(out=tmp_path, actors=0)):
                pass
    return tmp_path


def test_it_makes_a_table_and_three_figures(results, monkeypatch):
    monkeypatch.setenv("RESULTS", str(results))
    found = runpy.run_path(str(SCRIPT))
    out = results / "walkthrough"
    pictures = {path.name for path in out.glob("*.p*")}
    names = ("convergence", "bytes", "ranks")
    assert pictures == {f"{name}.{ending}" for name in names for ending in ("png", "pdf")}
    text = (out / "comparison.md").read_text()
    best = found["rounds"].groupby(["label", "scenario"], observed=True)["accuracy"].max()
    for score in best:
        assert f"{100 * score:.2f}" in text
    assert found["ranking"].num_blocks == 2
    assert "cannot separate any pair" in (out / "caveats.txt").read_text()


def test_it_is_made_of_cells():
    cells = SCRIPT.read_text().split("# %%")
    assert len(cells) > 8
    assert all(len(cell.strip().splitlines()) <= 10 for cell in cells)
