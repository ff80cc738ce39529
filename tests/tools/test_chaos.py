"""Sweeps whose processes are killed and stopped end as if nothing had happened."""

import random
import subprocess
import sys

import pytest

from fedgps_ray.tools import chaos as tool


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_twelve_kills_change_nothing():
    verdict = tool.chaos(12, 0, lambda text: None)
    assert len(verdict.blows) == 12
    assert (verdict.failed, verdict.different, verdict.missing) == ([], [], [])
    assert (verdict.hung, verdict.left_over) == ([], [])
    assert verdict.holds


def blow(kind, way, pid, others):
    return tool.Blow(kind, way, pid, 0.0, frozenset(others))


@pytest.mark.parametrize(
    ("alive", "noticed"),
    [
        ({"client": {7, 8}}, False),  # it is still there
        ({"client": {8}}, False),  # gone, but not replaced
        ({"client": {8, 9}}, True),
        ({"server": {1}}, False),
        ({}, False),  # the driver has ended without it
    ],
)
def test_when_a_blow_counts_as_noticed(alive, noticed, tmp_path):
    state = tool.Chaos(tmp_path, 1, random.Random(0), print, [blow("client", "killed", 7, {7, 8})])
    state._look(alive)
    assert (state.blows[0].seconds is not None) == noticed
    assert state.blows[0].is_open == (bool(alive) and not noticed)


def test_a_dead_driver_counts_as_noticed_when_all_its_processes_are_gone(tmp_path):
    state = tool.Chaos(tmp_path, 1, random.Random(0), print, [blow("driver", "killed", 7, {7})])
    state._look({"driver": {7}})
    assert state.blows[0].is_open
    state._look({})
    assert state.blows[0].seconds is not None


def test_a_sweep_that_has_more_than_enough_time_hangs(tmp_path, monkeypatch):
    state = tool.Chaos(tmp_path, 1, random.Random(0), print)
    state.quiet_since = tool.time.monotonic()
    assert not state._hangs()
    monkeypatch.setattr(tool, "END_SECONDS", -1.0)
    assert state._hangs()


def test_only_processes_of_its_own_sessions_are_attacked(tmp_path):
    state = tool.Chaos(tmp_path, 1, random.Random(0), print)
    state.sessions.mkdir()
    sleep = [sys.executable, "-S", "-c", "import time; time.sleep(30)", "ray::ClientActor"]
    with (state.sessions / "out").open("w") as mine, (tmp_path / "other").open("w") as others:
        started = [subprocess.Popen(sleep, stdout=file) for file in (mine, others)]
    try:
        assert state._alive(1) == {"driver": {1}, "client": {started[0].pid}}
    finally:
        for process in started:
            process.kill()
            process.wait()


@pytest.mark.parametrize(
    ("ends", "holds", "failed", "different", "missing"),
    [
        ({"a": "1", "b": "2"}, True, [], [], []),
        ({"a": "1", "b": "failed"}, False, ["b"], [], []),
        ({"a": "1", "b": "3"}, False, [], ["b"], []),
        ({"a": "1"}, False, [], [], ["b"]),
    ],
)
def test_verdict_on_trials(ends, holds, failed, different, missing, tmp_path):
    state = tool.Chaos(tmp_path, 1, random.Random(0), print)
    verdict = tool._verdict(state, {"a": "1", "b": "2"}, ends, 0.0)
    assert verdict.holds == holds
    assert (verdict.failed, verdict.different, verdict.missing) == (failed, different, missing)


@pytest.mark.parametrize("what", ["hung", "left_over"])
def test_what_hangs_or_is_left_over_is_held_against_it(what, tmp_path):
    state = tool.Chaos(tmp_path, 1, random.Random(0), print)
    assert tool._verdict(state, {"a": "1"}, {"a": "1"}, 0.0).holds
    getattr(state, what).append("something")
    assert not tool._verdict(state, {"a": "1"}, {"a": "1"}, 0.0).holds
