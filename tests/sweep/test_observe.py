"""A folder seen from outside: only what changed is read, and nothing runs that nobody drives."""

import json
import os

import pytest

from fedgps_ray.errors import UserError
from fedgps_ray.results import files, index
from fedgps_ray.sweep import observe
from fedgps_ray.sweep.observe import Observer, standing
from fedgps_ray.tools.fabricate import Size, fabricate

SMALL = Size(trials=24, running=2, failed=1, rounds=10)


@pytest.fixture
def folder(tmp_path):
    fabricate(tmp_path / "made", SMALL)
    return tmp_path / "made"


@pytest.fixture
def singles(folder):
    """Return a folder of single runs: the same trials without an experiment."""
    (folder / "experiment.json").unlink()
    (folder / "live.json").unlink()
    return folder


def reads(monkeypatch):
    """Note each trial.json that is read."""
    seen, read = [], index.read_trial

    def noting(trial):
        seen.append(trial.name)
        return read(trial)

    monkeypatch.setattr(index, "read_trial", noting)
    monkeypatch.setattr(index, "SETTLED", -1.0)  # the files of a test are new
    return seen


def test_a_sweep_that_is_driven_is_shown_as_its_driver_left_it(folder):
    with files.lock(folder):
        seen = Observer(folder).look()
    assert seen.is_driven
    assert len(seen.state.running) == 2
    assert seen.state.interrupted == 0


def test_nothing_runs_in_a_sweep_whose_driver_has_gone(folder):
    observer = Observer(folder)
    for _ in range(2):  # also when nothing was read again
        seen = observer.look()
        assert not seen.is_driven
        assert (len(seen.state.running), seen.state.interrupted) == (0, 2)
        assert seen.state.rounds_done == 15 * 10 + 2 * 5


def test_live_json_is_read_again_only_if_it_changed(folder, monkeypatch):
    observer = Observer(folder)
    calls, load = [], observe.states.load
    monkeypatch.setattr(observe.states, "load", lambda f: calls.append(f) or load(f))
    for _ in range(3):
        observer.look()
    assert len(calls) == 1
    os.utime(folder / "live.json", (1, 1))
    observer.look()
    assert len(calls) == 2


def test_only_trials_that_changed_are_read_again(singles, monkeypatch):
    seen = reads(monkeypatch)
    observer = Observer(singles)
    state = observer.look().state
    assert len(seen) == 17  # 70 % of 24
    assert (state.finished, state.failed, state.interrupted) == (14, 1, 2)
    name = next(key for key, record in state.records.items() if record.status == "running")
    path = singles / "trials" / name / "trial.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "status": "finished"}))
    seen.clear()
    assert observer.look().state.finished == 15
    assert seen == [name]


def test_a_single_run_that_runs_shows_its_curve(singles):
    observer = Observer(singles)
    records = observer.look().state.records
    name = next(key for key, record in records.items() if record.status == "running")
    with files.lock(singles / "trials" / name):
        seen = observer.look()
    assert seen.is_driven
    trial = seen.state.running[name]
    assert (trial.rounds_done, len(trial.curve), trial.best) == (5, 5, max(trial.curve))
    assert seen.state.interrupted == 1


def test_rounds_of_single_runs_count_whether_they_run_or_not(singles):
    done = 14 * 10 + 1 * 2 + 2 * 5  # finished, failed, interrupted
    observer = Observer(singles)
    state = observer.look().state
    assert state.rounds_done == done
    name = next(key for key, record in state.records.items() if record.status == "running")
    with files.lock(singles / "trials" / name):
        assert observer.look().state.rounds_done == done


def test_single_runs_are_told_apart_by_what_differs(singles):
    settings = {record.setting for record in Observer(singles).look().state.records.values()}
    assert settings == {"alpha 0.1", "alpha 0.3", "alpha 1.0"}


@pytest.mark.parametrize("kind", ["folder", "singles"])
def test_status_tells_accuracies(kind, request):
    folder = request.getfixturevalue(kind)
    found = standing(folder, timing=False)
    finished = [key for key, status in found["trials"].items() if status == "finished"]
    assert all(0.5 < found["accuracies"][key]["best"] < 0.9 for key in finished)
    leader = found["leaderboard"][0]
    assert leader["setting"] == "alpha 0.1"
    assert leader["mean"] == pytest.approx(sum(leader["accuracies"]) / leader["finished"])
    assert found["counts"]["interrupted"] == 2


def test_a_launch_that_took_no_time_has_no_share(folder):
    path = folder / "live.json"
    known = json.loads(path.read_text())
    files.write_json(path, {**known, "slots": 2, "ended": known["began"]})
    assert standing(folder, timing=True)["timing"]["training_share"] == "-"


@pytest.mark.parametrize("sealed", [True, False])
def test_status_tells_of_a_plan_without_a_seal(folder, sealed):
    path = folder / "experiment.json"
    content = json.loads(path.read_text())
    content["cells"] = content["cells"][:-1]
    content.pop(files.SEAL, None)
    files.write_json(path, content) if sealed else path.write_text(json.dumps(content))
    told = standing(folder, timing=False)
    assert ("is not sealed" in told.get("note", "")) == (not sealed)


def test_a_plan_without_trials_is_damaged(folder):
    path = folder / "experiment.json"
    files.write_json(path, json.loads(path.read_text()) | {"cells": []})
    with pytest.raises(UserError, match="names no trials"):
        standing(folder, timing=False)
