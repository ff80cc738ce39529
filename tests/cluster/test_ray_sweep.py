"""Sweeps on a real cluster: the same numbers as one process, whatever dies or is run again."""

import os
import signal

import pytest

from fedgps_ray.cluster.reaper import processes_of
from fedgps_ray.cluster.session import session_folder
from fedgps_ray.errors import UserError
from fedgps_ray.results.read import check
from fedgps_ray.sweep import launch
from fedgps_ray.sweep.drive import SweepPlan, drive
from fedgps_ray.sweep.launch import Stopping
from fedgps_ray.sweep.ledger import Ledger
from fedgps_ray.sweep.observe import Observer, standing
from fedgps_ray.sweep.tracker import Tracker
from fedgps_ray.tools.targets import KINDS

pytestmark = pytest.mark.ray


@pytest.fixture(scope="module")
def two_cpus(own_cluster):
    """Start a cluster with room for two client actors."""
    with own_cluster(address="local", num_cpus=2, include_dashboard=False):
        yield


@pytest.fixture
def sweep(two_cpus, execution_for, new_screen, ends, tmp_path):
    """Run a sweep and return its state, the ends of its trials, and what was said."""

    def run(specs, folder="sweep", execution=None, **options):
        ledger, screen = Ledger(tmp_path / folder, specs), new_screen()
        plan = SweepPlan(
            "tiny", ledger, execution_for(out=ledger.folder, **(execution or {})), {}, **options
        )
        return drive(plan, screen), ends(ledger), screen

    return run


@pytest.mark.slow
def test_reused_crews_give_the_same_numbers_as_fresh_ones(sweep, grid, expected, tmp_path):
    specs = grid(["fedgps_cf", "scaffold", "ccvr"], [0, 1])
    state, reused, screen = sweep(specs, "reused")
    assert (state.finished, state.failed, state.left, screen.started) == (6, 0, 0, 6)
    assert reused == expected(specs)
    fresh = sweep(specs[3:], "fresh", {"actors": 2}, reuse_crews=False)[1]
    assert fresh == {spec.trial_id: reused[spec.trial_id] for spec in specs[3:]}
    assert standing(tmp_path / "reused", timing=True)["counts"] == {"finished": 6}


def test_only_what_is_missing_is_run(sweep, grid, tmp_path):
    specs = grid(["fedavg", "fedprox"], [0])
    _, before, first = sweep(specs)
    state, after, second = sweep(specs)
    assert (first.started, second.started, second.said) == (2, 0, ["0 of 2 trials to run"])
    assert (after, state.finished) == (before, 2)
    more = grid(["fedavg", "fedprox"], [0, 1])
    assert sweep(more)[2].started == 2
    borrowed = sweep(more, "other", borrow_from=(tmp_path / "sweep",))
    assert borrowed[2].started == 0
    assert borrowed[1] == sweep(more)[1]


@pytest.mark.slow
def test_failed_cell_ends_alone_and_is_run_again_when_asked(sweep, fault, grid):
    bad, _ = fault("raises", model="mlp")
    specs = [bad, *grid(["fedavg", "fedprox"], [0])]
    state, ended, screen = sweep(specs)
    assert (state.finished, state.failed, state.left) == (2, 1, 0)
    assert "the dog ate the gradient" in state.failures[bad.trial_id]
    assert ended[bad.trial_id][0] == "failed"
    assert any("failed: client 2 failed in round 2" in event for event in screen.events)
    assert sweep(specs)[2].started == 0
    assert sweep(specs, again=True)[2].events[-1].startswith("raises, scenario 1")


@pytest.mark.slow
def test_dead_trial_continues_from_its_checkpoint(sweep, fault, undisturbed, monkeypatch):
    spec, marker = fault("waits")
    go, look = marker.with_name("go"), Tracker.look

    def look_and_kill(self):
        look(self)
        if marker.exists() and not go.exists():
            for pid, command in processes_of(session_folder()).items():
                if command.startswith(KINDS["trial"]):
                    os.kill(pid, signal.SIGKILL)
            go.touch()

    monkeypatch.setattr(Tracker, "look", look_and_kill)
    state, ended, screen = sweep([spec], execution={"checkpoint_seconds": 0})
    assert (state.finished, state.failed) == (1, 0)
    assert ended[spec.trial_id] == ("finished", undisturbed()[-1][1])
    assert any("starts again from its checkpoint" in event for event in screen.events)


@pytest.mark.slow
def test_tune_that_gives_up_is_started_again(sweep, grid, monkeypatch, expected):
    specs = grid(["fedavg"], [0])
    fit, calls = launch._fit, []

    def give_up_first(*arguments):
        calls.append(arguments)
        if len(calls) == 1:
            raise RuntimeError("Caught unexpected exception")
        fit(*arguments)

    monkeypatch.setattr(launch, "_fit", give_up_first)
    _, ended, screen = sweep(specs)
    assert ended == expected(specs)
    assert any("Tune gave up" in event for event in screen.events)
    assert any("1 trials were lost" in event for event in screen.events)


@pytest.mark.parametrize(
    ("execution", "told"),
    [
        ({"client_gpus": 1.0}, "no node has room for an actor of 1 CPU and 1 GPU"),
        ({"client_cpus": 3.0}, "no node has room for an actor of 3 CPU and 0 GPU"),
        ({"actors": 3}, "3 actors of 1 CPU and 0 GPU do not fit: the cluster holds 2"),
    ],
)
def test_room_that_there_will_never_be(execution, told, sweep, grid):
    with pytest.raises(UserError, match=told):
        sweep(grid(["fedavg"], [0]), execution=execution)


def test_data_set_that_is_not_there_is_told_before_anything_runs(sweep, tiny_spec, tmp_path):
    with pytest.raises(UserError, match="no intact copy of CIFAR10"):
        sweep([tiny_spec("fedavg", dataset="cifar10")])
    assert not (tmp_path / "sweep" / "trials").exists()


@pytest.mark.slow
def test_search_stops_trials_without_promise_and_leaves_them_stopped(sweep, tiny_spec):
    rates = [0.1, 0.05, 1e-6, 1e-7]
    specs = [
        tiny_spec("fedavg", model="mlp", rounds=40, sampling_rate=1.0, optimizer={"lr": rate})
        for rate in rates
    ]
    state, ended, _ = sweep(specs, stopping=Stopping("asha", "accuracy"))
    statuses = [ended[spec.trial_id][0] for spec in specs]
    assert "finished" in statuses[:2], "which of the two depends on who is tested first"
    assert set(statuses) <= {"finished", "stopped"}
    assert (state.finished, state.left) == (4, 0)
    again = sweep(specs, stopping=Stopping("asha", "accuracy"))
    assert again[2].started == 0


@pytest.mark.slow
def test_folder_shows_the_sweep_from_outside(sweep, grid, tmp_path):
    sweep(grid(["fedavg"], [0]))
    seen = Observer(tmp_path / "sweep").look()
    assert not seen.is_driven
    assert (seen.state.finished, seen.state.left) == (1, 0)
    timing = standing(tmp_path / "sweep", timing=True)["timing"]
    assert timing["client_actors"] == 2, "one trial has all the room"
    assert 0 < timing["training_seconds"] < timing["wall_clock_seconds"]


@pytest.mark.slow
def test_a_storage_is_told_to_trials_and_not_to_tune(sweep, grid, tmp_path, monkeypatch):
    monkeypatch.setattr(launch, "redacted", lambda uri: "s3://hidden-from-tune")
    seen, fit = [], launch._fit
    monkeypatch.setattr(
        launch, "_fit", lambda cells, *rest: (seen.extend(cells), fit(cells, *rest))
    )
    (spec,) = grid(["fedavg"], [0])
    there = tmp_path / "bucket"
    state, _, _ = sweep([spec], execution={"storage": there.as_uri()})
    assert state.finished == 1
    assert check(there / "trials" / spec.trial_id, full=True) == []
    assert "bucket" not in repr(seen)
