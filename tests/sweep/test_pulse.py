"""When a trial's own process counts as hung, and when a launch is given up."""

from types import SimpleNamespace

import pytest

from fedgps_ray.cluster.policy import POLICY
from fedgps_ray.sweep.pulse import Pulse, identity


def trial(name, status="RUNNING"):
    return SimpleNamespace(trial_id=name, status=status)


@pytest.fixture
def pulse(tmp_path):
    return Pulse(60.0, tmp_path)


@pytest.mark.parametrize(
    ("now", "slowness", "silent"),
    [(60, 1, []), (61, 1, ["a"]), (100, 1, ["a", "b"]), (100, 2, []), (121, 2, ["a"])],
)
def test_running_trials_that_are_silent(now, slowness, silent, pulse):
    pulse.heard = {"a": 0.0, "b": 30.0, "c": 0.0}
    trials = [trial("a"), trial("b"), trial("c", "TERMINATED")]
    assert [one.trial_id for one in pulse.silent(trials, now, slowness)] == silent


@pytest.mark.parametrize(("steps", "silent"), [(range(0, 91, 5), ["a", "b"]), ([0, 90], [])])
def test_while_the_driver_is_stopped_no_trial_is_silent(steps, silent, pulse):
    """As by Ctrl-Z: what the trials have told meanwhile is heard one by one."""
    pulse.heard, pulse.last, pulse.looked = {"a": 0.0, "b": 0.0}, 0.0, 0.0
    for now in steps:
        pulse._look(now)
    assert [one.trial_id for one in pulse.silent([trial("a"), trial("b")], 90, 1)] == silent


def test_limit_is_never_so_short_that_a_trial_cannot_answer(tmp_path):
    assert Pulse(1.0, tmp_path).limit == POLICY.trial_silence_seconds


@pytest.mark.parametrize(
    ("status", "seconds", "slowness", "gives_up"),
    [
        ("PENDING", 119, 1, False),
        ("PENDING", 121, 1, True),
        ("PENDING", 121, 2, False),
        ("RUNNING", 500, 1, False),
        ("TERMINATED", 500, 1, False),
    ],
)
def test_launch_whose_trials_never_start(status, seconds, slowness, gives_up, pulse):
    pulse.last = 0.0
    if gives_up:
        with pytest.raises(RuntimeError, match="no trial could be started for 121 s"):
            pulse._give_up([trial("a", status)], seconds, slowness)
    else:
        pulse._give_up([trial("a", status)], seconds, slowness)


def test_folder_that_is_moved_is_not_there_any_more(tmp_path):
    (tmp_path / "runs").mkdir()
    before = identity(tmp_path / "runs")
    assert identity((tmp_path / "runs").rename(tmp_path / "moved")) == before
    assert identity(tmp_path / "runs") is None
    pulse = Pulse(60.0, tmp_path / "moved")
    (tmp_path / "moved").rename(tmp_path / "elsewhere")
    with pytest.raises(RuntimeError, match="moved or deleted"):
        pulse.on_step_end(0, [])
