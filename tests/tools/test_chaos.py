"""Sweeps whose processes are killed and stopped end as if nothing had happened."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from types import SimpleNamespace

import pyarrow as pa
import pytest

from fedgps_ray.cli.again import LOST
from fedgps_ray.cli.commands.chaos import _words
from fedgps_ray.cluster import signals
from fedgps_ray.cluster.policy import POLICY
from fedgps_ray.errors import UserError
from fedgps_ray.results import files, tables
from fedgps_ray.results.read import check, hashes
from fedgps_ray.tools import chaos as tool
from fedgps_ray.tools.targets import Joined, OwnRay, Process, processes_of_command

# so long that what hangs is told by the verdict
PATIENCE = 1800 + 2 * tool.END_SECONDS * POLICY.max_slowness


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.timeout(PATIENCE)
def test_twelve_kills_change_nothing():
    verdict = tool.chaos(12, 0, lambda text: None)
    assert len(verdict.blows) == 12
    assert (verdict.failed, verdict.different, verdict.missing) == ([], [], [])
    assert (verdict.hung, verdict.crashed, verdict.left_over) == ([], [], [])
    assert verdict.holds


ON_A_CLUSTER = """
import subprocess, sys
from ray.cluster_utils import Cluster
head = {"num_cpus": 0, "include_dashboard": False}
cluster = Cluster(initialize_head=True, head_node_args=head)
for _ in range(2):
    cluster.add_node(num_cpus=1, object_store_memory=200_000_000)
program = [sys.executable, "-m", "fedgps_ray"]
options = ["--kills", "4", "--seed", "1", "--address", cluster.address, "--out", sys.argv[1]]
code = subprocess.call([*program, "chaos", *options, "--json"])
cluster.shutdown()
sys.exit(code)
"""


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.timeout(PATIENCE)
def test_actors_on_the_nodes_of_a_cluster_are_killed_too(tmp_path):
    with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder:
        # a short path: the names of sockets have a limit
        environment = {**os.environ, "RAY_AUTH_MODE": "disabled", "RAY_TMPDIR": folder}
        done = subprocess.run(
            [sys.executable, "-c", ON_A_CLUSTER, str(tmp_path)],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    verdict = json.loads(done.stdout)
    assert verdict["holds"], verdict
    assert {blow["kind"] for blow in verdict["blows"]} - {"driver"}, "no actor was hit"
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


# --- progress and hangs ---------------------------------------------------------------------------


@pytest.fixture
def clock(monkeypatch):
    """Return a clock of a machine that is not busy, which the test sets."""
    clock = SimpleNamespace(now=0.0, slowness=1.0)
    monkeypatch.setattr(tool, "time", SimpleNamespace(monotonic=lambda: clock.now))
    monkeypatch.setattr(type(POLICY), "pace", lambda self: clock)
    return clock


def write_rounds(runs, rounds, status="running"):
    """Write a trial of some rounds as far as progress is looked for."""
    trial = runs / "trials" / "0123456789ab"
    trial.mkdir(parents=True, exist_ok=True)
    tables.write(trial / "rounds.parquet", pa.table({"round": range(rounds)}))
    (trial / "trial.json").write_text(json.dumps({"status": status}))


def after(clock, progress, seconds):
    """Look at a progress after some seconds; return whether it is slow, and whether it hangs."""
    clock.now += seconds
    progress.look()
    return progress.is_slow, progress.hangs


def test_a_sweep_without_progress_is_spared_and_then_hangs(tmp_path, clock):
    progress = tool.Progress(tmp_path, looked_at=0.0)
    assert after(clock, progress, tool.END_SECONDS - 1) == (False, False)
    assert after(clock, progress, 4) == (True, False)
    assert after(clock, progress, tool.END_SECONDS - 4) == (True, False)
    assert after(clock, progress, 4) == (True, True)


@pytest.mark.parametrize(("rounds", "status"), [(4, "running"), (3, "finished"), (3, "failed")])
def test_a_round_or_an_ended_trial_is_progress(rounds, status, tmp_path, clock):
    write_rounds(tmp_path, 3)
    progress = tool.Progress(tmp_path, looked_at=0.0)
    assert after(clock, progress, 2 * tool.END_SECONDS + 1) == (False, False)
    write_rounds(tmp_path, rounds, status)
    assert after(clock, progress, 2 * tool.END_SECONDS + 1) == (False, False)


@pytest.mark.parametrize("rounds", [1, 3])
def test_rounds_that_were_there_before_are_no_progress(rounds, tmp_path, clock):
    write_rounds(tmp_path, 3)
    progress = tool.Progress(tmp_path, looked_at=0.0)
    after(clock, progress, 10)
    write_rounds(tmp_path, rounds)
    assert after(clock, progress, 2 * tool.END_SECONDS + 1) == (True, True)


def test_seconds_of_a_busy_machine_count_less_also_when_it_is_idle_again(tmp_path, clock):
    progress = tool.Progress(tmp_path, looked_at=0.0)
    clock.slowness = 4.0
    assert after(clock, progress, 4 * tool.END_SECONDS - 1) == (False, False)
    clock.slowness = 1.0
    assert after(clock, progress, 4) == (True, False)


def test_a_blow_is_no_progress(tmp_path, monkeypatch):
    state = attack(tmp_path)
    state.progress = tool.Progress(tmp_path, waited=7.0)
    strike(state, monkeypatch, {"trial": {5}})
    assert (len(state.blows), state.progress.waited) == (1, 7.0)


def test_no_blow_without_progress_or_beyond_the_number_wanted(tmp_path):
    state = attack(tmp_path)
    state.progress = tool.Progress(tmp_path)
    assert state._may_strike()
    state.progress.waited = tool.END_SECONDS + 1
    assert not state._may_strike()
    state.progress.waited = 0.0
    state.blows.append(blow("client", "killed", 7, {7}))
    assert not state._may_strike()


def test_a_driver_that_hangs_is_ended_and_told_also_when_all_trials_have_ended(
    tmp_path, monkeypatch
):
    def hang(self, command):
        write_rounds(tmp_path / "runs-0", 60, "finished")
        self.progress.waited = 2 * tool.END_SECONDS + 1

    monkeypatch.setattr(tool, "undisturbed", lambda file, out: {"a": "1"})
    monkeypatch.setattr(tool.Chaos, "_sweep", hang)
    monkeypatch.setattr(tool, "ends", lambda out: {"a": "1"})
    state = attack(tmp_path)
    state.wave(0)
    assert state.hung == ["wave 1"]


# --- blows ----------------------------------------------------------------------------------------


def strike(state, monkeypatch, alive_now):
    """Let an attack strike one of some processes, which do not exist."""
    monkeypatch.setattr(state.targets, "send", lambda process, number: True)
    monkeypatch.setattr(state, "_alive", lambda driver: alive(driver={1}, **alive_now))
    state._strike(1)


def test_few_blows_come_before_a_trial_is_running(tmp_path, monkeypatch):
    state = attack(tmp_path)
    for _ in range(1000):
        strike(state, monkeypatch, {"raylet": {2}, "GCS": {3}})
    assert 50 < len(state.blows) < 150
    assert {blow.kind for blow in state.blows} == {"driver", "raylet", "GCS"}


def test_every_chance_is_taken_when_a_trial_is_running(tmp_path, monkeypatch):
    state = attack(tmp_path)
    for _ in range(100):
        strike(state, monkeypatch, {"trial": {2}})
    assert len(state.blows) == 100


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


# --- how drivers end ------------------------------------------------------------------------------


def test_the_exit_code_of_a_loss_is_the_one_of_the_command_line():
    assert tool.LOST == LOST


@pytest.mark.parametrize(
    ("code", "was_killed", "told"),
    [
        (0, False, []),
        (LOST, False, []),
        (-signal.SIGKILL, True, []),
        (-signal.SIGKILL, False, ["died of SIGKILL"]),
        (-signal.SIGSEGV, True, ["died of SIGSEGV"]),
        (1, False, ["exit code 1"]),
        (2, True, ["exit code 2"]),
        (130, False, ["exit code 130"]),
    ],
)
def test_how_a_driver_may_end(code, was_killed, told):
    assert tool._crash(code, was_killed) == told


@pytest.mark.parametrize(
    ("program", "told"),
    [
        ("pass", []),
        ("raise SystemExit(2)", ["exit code 2"]),
        ("import os; os.kill(os.getpid(), 9)", ["died of SIGKILL"]),
        ("1 / 0", ["exit code 1", "tracebacks printed: 1"]),
    ],
)
def test_crashes_of_drivers_are_noted(program, told, tmp_path, monkeypatch):
    monkeypatch.setattr(tool, "PROGRAM", [sys.executable, "-S", "-c", program])
    state = attack(tmp_path)
    state.progress = tool.Progress(tmp_path)
    state._sweep([])
    assert [*state.crashed, *tool._tracebacks(tmp_path / "log.txt")] == told


@pytest.mark.parametrize("way", ["killed", "stopped"])
def test_a_driver_may_die_of_a_blow_of_its_own_start_only(way, tmp_path, monkeypatch):
    def kill(self, driver):
        if self.starts == 1:
            self.blows.append(blow("driver", way, driver.pid, {driver.pid}))
        driver.kill()
        driver.wait()

    program = "import time; time.sleep(60)"
    monkeypatch.setattr(tool, "PROGRAM", [sys.executable, "-S", "-c", program])
    monkeypatch.setattr(tool.Chaos, "_attack", kill)
    state = attack(tmp_path)
    state._sweep([])
    assert state.crashed == ([] if way == "killed" else ["died of SIGKILL"])
    state.crashed.clear()
    state._sweep([])
    assert state.crashed == ["died of SIGKILL"]


def test_a_driver_that_is_ended_because_it_hangs_has_not_crashed(tmp_path, monkeypatch):
    program = "import time; time.sleep(60)"
    monkeypatch.setattr(tool, "PROGRAM", [sys.executable, "-S", "-c", program])
    state = attack(tmp_path)
    state.progress = tool.Progress(tmp_path, waited=2 * tool.END_SECONDS + 1)
    state._sweep([])
    assert state.crashed == []


# --- the verdict ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Return a results folder of one finished trial of three rounds, and its trial's id."""
    folder = tmp_path_factory.mktemp("finished")
    file = folder / "small.toml"
    text = tool.EXPERIMENT.format(rounds=3, first=0, second=1)
    file.write_text(text.replace('"fedavg", "fedgps_cf"', '"fedavg"').replace("[0, 1]", "[0]"))
    ((name, _),) = tool.undisturbed(file, folder / "runs").items()
    return folder / "runs", name


def copied(finished, out):
    shutil.copytree(finished[0], out)
    return out / "trials" / finished[1]


def seal(trial):
    """Make the files of a changed trial look as if it had been so from the beginning."""
    info = files.read_json(trial / "trial.json")
    files.write_json(trial / "trial.json", {**info, "files": hashes(trial)})


def test_the_hashes_of_all_rounds_are_compared(finished, tmp_path):
    copied(finished, tmp_path / "copy")
    assert tool.ends(tmp_path / "copy") == tool.ends(finished[0])
    (end,) = tool.ends(finished[0]).values()
    assert [line.split(":")[0] for line in end.splitlines()] == ["round 1", "round 2", "round 3"]


@pytest.mark.parametrize("order", [[0, 2], [1, 2], [0, 1, 1, 2], [1, 0, 2]])
def test_lost_and_doubled_rows_show(order, finished, tmp_path):
    trial = copied(finished, tmp_path / "copy")
    path = trial / "rounds.parquet"
    tables.write(path, tables.read(path).take(order))
    seal(trial)
    assert check(trial, full=True) == []
    assert different(finished, tmp_path / "copy") == [finished[1]]


@pytest.mark.parametrize("name", ["rounds.parquet", "clients.parquet", "model.safetensors"])
def test_a_damaged_file_makes_a_trial_different(name, finished, tmp_path):
    trial = copied(finished, tmp_path / "copy")
    assert different(finished, tmp_path / "copy") == []
    with (trial / name).open("ab") as file:
        file.write(b"more")
    assert different(finished, tmp_path / "copy") == [finished[1]]


def different(finished, out):
    """Return which trials of a folder the verdict calls different."""
    return tool._verdict(attack(out), tool.ends(finished[0]), tool.ends(out), 0.0).different


@pytest.mark.parametrize(
    ("ends", "holds", "failed", "different", "missing"),
    [
        ({"a": "1", "b": "2"}, True, [], [], []),
        ({"a": "1", "b": "failed"}, False, ["b"], [], []),
        ({"a": "1", "b": "3"}, False, [], ["b"], []),
        ({"a": "1"}, False, [], [], ["b"]),
        ({"a": "1", "b": "new"}, False, [], [], ["b"]),
    ],
)
def test_verdict_on_trials(ends, holds, failed, different, missing, tmp_path):
    state = attack(tmp_path, blow("client", "killed", 7, {7}))
    verdict = tool._verdict(state, {"a": "1", "b": "2"}, ends, 0.0)
    assert verdict.holds == holds
    assert (verdict.failed, verdict.different, verdict.missing) == (failed, different, missing)


@pytest.mark.parametrize("end", ["failed", "diverged", "interrupted"])
def test_two_trials_that_fail_alike_prove_nothing(end, tmp_path):
    state = attack(tmp_path, blow("client", "killed", 7, {7}))
    assert not tool._verdict(state, {"a": end}, {"a": end}, 0.0).holds


@pytest.mark.parametrize("what", ["hung", "crashed", "left_over"])
def test_what_hangs_crashes_or_is_left_over_is_held_against_it(what, tmp_path):
    state = attack(tmp_path, blow("client", "killed", 7, {7}))
    assert tool._verdict(state, {"a": "1"}, {"a": "1"}, 0.0).holds
    getattr(state, what).append("something")
    verdict = tool._verdict(state, {"a": "1"}, {"a": "1"}, 0.0)
    assert not verdict.holds
    assert f"{what.replace('_', ' ')}: something" in _words(verdict)


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


# --- actors on a cluster --------------------------------------------------------------------------


def job(number, command):
    return {"JobID": f"{number:08x}", "Entrypoint": command}


def actors(job_id, actor_state_name):
    """Return one actor of a job, whose process has the number of the job."""
    place = {"NodeID": "node"}
    number = int(job_id.hex(), 16)
    return {"x": {"ActorClassName": "some.Server", "Address": place, "Pid": number}}


def test_only_actors_of_its_own_drivers_are_found(monkeypatch):
    jobs = [job(1, "python sweep /tmp/chaos-abc/wave-0.toml"), job(2, "python other.py")]
    monkeypatch.setattr(signals, "state", SimpleNamespace(jobs=lambda: jobs, actors=actors))
    found = Joined("cluster:6379", "chaos-abc").find()
    assert found == {Process(1, "node", "Server"): "ray::Server"}


FORKS = """
import os, subprocess, sys, time
child = os.fork()
if child:
    other = subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE)
    print(child, flush=True)
time.sleep(60)
"""


def test_a_driver_is_attacked_itself_and_in_its_child_that_does_the_work():
    program = [sys.executable, "-S", "-c", FORKS]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as process:
        child = int(process.stdout.readline())
        try:
            found = processes_of_command(process.pid)
            assert found == {Process(process.pid), Process(child)}
        finally:
            os.kill(child, signal.SIGKILL)
            process.kill()
    assert processes_of_command(process.pid) == {Process(process.pid)}


@pytest.mark.parametrize(
    ("title", "is_hit"),
    [("ray::Server", True), ("ray::Server.run", True), ("ray::Client", False), ("Server", False)],
)
def test_a_signal_goes_to_an_actor_of_the_class_only(title, is_hit):
    program = [title, "-S", "-c", "import time; print(flush=True); time.sleep(30)"]
    process = subprocess.Popen(program, executable=sys.executable, stdout=subprocess.PIPE)
    process.stdout.readline()  # from now on it has its title
    try:
        assert signals._send._function(process.pid, "Server", signal.SIGKILL) == is_hit
        assert (process.poll() is None) or is_hit
        if is_hit:
            assert process.wait(10) == -signal.SIGKILL
    finally:
        process.kill()
        process.communicate()


def test_a_signal_names_the_class_of_its_actor(monkeypatch):
    sent = []
    monkeypatch.setattr(signals, "send", lambda *what: sent.append(what))
    Joined("cluster:6379", "chaos-abc").send(Process(7, "node", "Server"), 9)
    assert sent == [(7, "node", "Server", 9)]
