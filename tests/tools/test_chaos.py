"""Sweeps whose processes are killed and stopped end as if nothing had happened."""

import random
import subprocess
import sys
import tempfile

import pytest
from ray.cluster_utils import Cluster

from fedgps_ray.errors import UserError
from fedgps_ray.tools import chaos as tool
from fedgps_ray.tools.targets import OwnRay, Process


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_twelve_kills_change_nothing():
    verdict = tool.chaos(12, 0, lambda text: None)
    assert len(verdict.blows) == 12
    assert (verdict.failed, verdict.different, verdict.missing) == ([], [], [])
    assert (verdict.hung, verdict.left_over) == ([], [])
    assert verdict.holds


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_actors_on_the_nodes_of_a_cluster_are_killed_too(tmp_path, monkeypatch):
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder:
        monkeypatch.setenv("RAY_TMPDIR", folder)  # a short path: the names of sockets have a limit
        head = {"num_cpus": 0, "include_dashboard": False}
        cluster = Cluster(initialize_head=True, head_node_args=head)
        for _ in range(2):
            cluster.add_node(num_cpus=1, object_store_memory=200_000_000)
        try:
            verdict = tool.chaos_on_cluster(cluster.address, tmp_path, 4, 1, lambda text: None)
        finally:
            cluster.shutdown()
    assert verdict.holds, verdict
    nodes = {blow.process.node for blow in verdict.blows}
    assert nodes - {""}, "no actor was hit"
    assert not list(tmp_path.iterdir())


def attack(folder, *blows):
    """Return an attack of one blow that has not begun, or that has struck already."""
    return tool.Chaos(folder, OwnRay(folder / "s"), 1, random.Random(0), print, list(blows))


def blow(kind, way, pid, others):
    return tool.Blow(kind, way, Process(pid), 0.0, processes(others))


def processes(pids):
    return frozenset(map(Process, pids))


def alive(**kinds):
    return {kind: processes(pids) for kind, pids in kinds.items()}


@pytest.mark.parametrize(
    ("now", "noticed"),
    [
        (alive(client={7, 8}), False),  # it is still there
        (alive(client={8}), False),  # gone, but not replaced
        (alive(client={8, 9}), True),
        (alive(server={1}), False),
        ({}, False),  # the driver has ended without it
    ],
)
def test_when_a_blow_counts_as_noticed(now, noticed, tmp_path):
    state = attack(tmp_path, blow("client", "killed", 7, {7, 8}))
    state._look(now)
    assert (state.blows[0].seconds is not None) == noticed
    assert state.blows[0].is_open == (bool(now) and not noticed)


def test_a_process_of_the_same_number_on_another_node_is_another_one(tmp_path):
    state = attack(tmp_path, blow("client", "killed", 7, {7}))
    state._look({"client": {Process(7, "another")}})
    assert state.blows[0].seconds is not None


def test_a_dead_driver_counts_as_noticed_when_all_its_processes_are_gone(tmp_path):
    state = attack(tmp_path, blow("driver", "killed", 7, {7}))
    state._look(alive(driver={7}))
    assert state.blows[0].is_open
    state._look({})
    assert state.blows[0].seconds is not None


def test_a_sweep_that_has_more_than_enough_time_hangs(tmp_path, monkeypatch):
    state = attack(tmp_path)
    state.quiet_since = tool.time.monotonic()
    assert not state._hangs()
    monkeypatch.setattr(tool, "END_SECONDS", -1.0)
    assert state._hangs()


def test_only_processes_of_its_own_sessions_are_attacked(tmp_path):
    state = attack(tmp_path)
    (tmp_path / "s").mkdir()
    sleep = [sys.executable, "-S", "-c", "import time; time.sleep(30)", "ray::ClientActor"]
    with (tmp_path / "s" / "out").open("w") as mine, (tmp_path / "other").open("w") as others:
        started = [subprocess.Popen(sleep, stdout=file) for file in (mine, others)]
    try:
        assert state._alive(1) == alive(driver={1}, client={started[0].pid})
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
    state = attack(tmp_path, blow("client", "killed", 7, {7}))
    verdict = tool._verdict(state, {"a": "1", "b": "2"}, ends, 0.0)
    assert verdict.holds == holds
    assert (verdict.failed, verdict.different, verdict.missing) == (failed, different, missing)


@pytest.mark.parametrize("what", ["hung", "left_over"])
def test_what_hangs_or_is_left_over_is_held_against_it(what, tmp_path):
    state = attack(tmp_path, blow("client", "killed", 7, {7}))
    assert tool._verdict(state, {"a": "1"}, {"a": "1"}, 0.0).holds
    getattr(state, what).append("something")
    assert not tool._verdict(state, {"a": "1"}, {"a": "1"}, 0.0).holds


def test_fewer_blows_than_there_were_to_be_prove_nothing(tmp_path):
    assert not tool._verdict(attack(tmp_path), {"a": "1"}, {"a": "1"}, 0.0).holds


def test_sweeps_in_which_nothing_can_be_killed_come_to_an_end(tmp_path, monkeypatch):
    waves = []
    monkeypatch.setattr(
        tool.Chaos, "wave", lambda self, number: (waves.append(number), ({}, {}))[1]
    )
    with pytest.raises(UserError, match="nothing was killed"):
        tool._waves(attack(tmp_path))
    assert waves == [0, 1, 2]


def test_a_local_attack_joins_no_cluster_that_the_environment_names(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDGPS_RAY_ADDRESS", "somewhere:6379")
    assert "FEDGPS_RAY_ADDRESS" not in OwnRay(tmp_path).environment
