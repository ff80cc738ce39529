"""The script that writes a method of its own runs as it stands."""

import runpy
from pathlib import Path

import pandas as pd

import fedgps_ray

SCRIPT = Path(__file__).parents[2] / "analysis" / "own_method.py"


def test_it_compares_a_method_of_its_own_with_three_others(tmp_path, monkeypatch):
    monkeypatch.setenv("OUT", str(tmp_path / "own"))
    monkeypatch.setenv("ROUNDS", "2")
    monkeypatch.chdir(tmp_path)
    found = runpy.run_path(str(SCRIPT))
    out = tmp_path / "own"
    assert {path.name for path in out.glob("*.p*")} >= {"own_method.png", "own_method.pdf"}
    trials = fedgps_ray.load(out).trials
    assert set(trials["status"]) == {"finished"}
    assert trials.groupby("method", observed=True).size().to_dict() == {
        "stride.py:Stride": 2,
        "fedavg": 2,
        "fedprox": 2,
        "scaffold": 2,
    }
    assert len(pd.read_csv(out / "best.csv")) == 4
    hashes = trials.set_index(["method", "scenario"])["weights_sha256"]
    assert hashes["stride.py:Stride", 1] != hashes["fedavg", 1]
    lines = [line for line in found["METHOD"].splitlines() if line]
    assert len(lines) <= 12


def test_it_is_made_of_cells():
    cells = SCRIPT.read_text().split("# %%")
    assert len(cells) > 6
    assert all(len(cell.strip().splitlines()) <= 20 for cell in cells)
