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
    assert verdict.left_over == []
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
        ({}, True),  # the driver has ended
    ],
)
def test_when_a_blow_counts_as_noticed(alive, noticed, tmp_path):
    state = tool.Chaos(tmp_path, 1, random.Random(0), print, [blow("client", "killed", 7, {7, 8})])
    state._look(alive)
    assert (state.blows[0].seconds is not None) == noticed


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
def test_verdict(ends, holds, failed, different, missing, tmp_path):
    state = tool.Chaos(tmp_path, 1, random.Random(0), print)
    verdict = tool._verdict(state, {"a": "1", "b": "2"}, ends, 0.0)
    assert verdict.holds == holds
    assert (verdict.failed, verdict.different, verdict.missing) == (failed, different, missing)
