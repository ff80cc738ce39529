"""The study goes on from the published results: only what they lack is run."""

import tomllib

import pytest

from fedgps_ray.errors import UserError
from fedgps_ray.experiment import cells
from fedgps_ray.experiments.evidence import collect, run, study
from fedgps_ray.experiments.evidence.sweeps import SWEEPS, Sweep
from fedgps_ray.results import files
from fedgps_ray.results.read import read_trial

FILE = """
[base]
dataset = "digits"
model = "mlp"
rounds = 1
clients = 3
sampling_rate = 1.0
partition = { kind = "iid" }

[grid]
seed = [0, 1]
method = ["fedprox", "fedavg"]
"""


@pytest.fixture
def little(tmp_path, monkeypatch):
    """A study of one sweep with four short trials, of which none is published."""
    (tmp_path / "little.toml").write_text(FILE)
    monkeypatch.setattr(run, "HERE", tmp_path)
    monkeypatch.setattr(run, "RESULTS", tmp_path / "results")
    monkeypatch.setitem(SWEEPS, "depth", Sweep("little", "little.toml", 4))
    return tmp_path


def go(folder, core_hours=1.0):
    said = []
    return run.run(["depth"], folder / "runs", core_hours, said.append), said


def statuses(folder):
    return [read_trial(trial)["status"] for trial in (folder / "runs/depth/trials").iterdir()]


def test_what_is_published_is_not_run_again(little):
    done, said = go(little)
    assert (done, statuses(little)) == (4, ["finished"] * 4)
    collect.collect([little / "runs" / "depth"], little / "results")
    (little / "runs").rename(little / "lost")
    assert go(little) == (0, [])
    gone = sorted((little / "results").glob("trials/*"))[0]
    for path in gone.iterdir():
        path.unlink()
    done, said = go(little)
    assert done == 1
    assert gone.name in said[0]
    collect.collect([little / "runs" / "depth"], little / "results")
    assert len(study.read(little / "results").of("depth")) == 4


def test_deciding_methods_come_first(little):
    experiment = cells.load(little / "little.toml")
    methods = [cell.label.method for cell in run.missing(experiment, (), ["fedavg"])]
    assert methods == ["fedavg", "fedavg", "fedprox", "fedprox"]
    known = [cell.trial_id for cell in experiment.cells[:3]]
    assert run.missing(experiment, known) == [experiment.cells[3]]


def test_a_trial_that_another_process_runs_is_left_to_it(little):
    cell = run.missing(cells.load(little / "little.toml"), ())[0]
    with files.lock(little / "runs" / "depth" / "trials" / cell.trial_id):
        done, said = go(little)
    assert done == 3
    assert not any(cell.trial_id in line for line in said)


def test_no_trial_starts_once_the_time_is_spent(little):
    assert go(little, core_hours=0.0)[0] == 1


def test_an_unknown_sweep_is_told_before_anything_runs(little):
    with pytest.raises(UserError, match=r"unknown sweep 'dept'.*depth"):
        run.run(["depth", "dept"], little / "runs", 1.0, print)
    assert not (little / "runs").exists()


def test_the_deciding_methods_are_in_the_file():
    written = tomllib.loads((run.HERE / SWEEPS["depth"].file).read_text())["grid"]["method"]
    tables = [{"name": each} if isinstance(each, str) else dict(each) for each in written]
    labels = [" ".join([t.pop("name"), *(f"{k}={v}" for k, v in t.items())]) for t in tables]
    assert set(run.DECIDING) < set(labels)
