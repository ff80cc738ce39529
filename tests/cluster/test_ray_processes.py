"""The command in a process of its own: signals, deaths, what is left of them, and its token."""

import contextlib
import json
import os
import re
import shlex
import signal
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import pyarrow.parquet as pq
import pytest

from fedgps_ray.analysis.report.again import command as exact_command
from fedgps_ray.results.read import read_trial
from fedgps_ray.tools.targets import KINDS, processes_of_command
from tests.processes import patient

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(900)]

ROUNDS = 30
TRIAL = [
    *("--dataset", "digits", "--model", "mlp", "--clients", "4", "--sampling-rate", "0.5"),
    *("--rounds", str(ROUNDS), "--set", "threads=1", "--actors", "2"),
]
HELD = """
import time
from pathlib import Path
from fedgps_ray.methods.fedgps_cf import FedGPSCF

class Held(FedGPSCF):
    def work(self, local, message, memory):
        while local.round == 2 and not Path("{go}").exists():
            time.sleep(0.02)
        return super().work(local, message, memory)
"""
SLOW = """
import time
from fedgps_ray.methods.fedavg import FedAvg
from fedgps_ray.rounds import checkpoint

make = checkpoint._make

def slowly(folder):
    time.sleep(15)
    make(folder)

class Slow(FedAvg):
    def merge(self, state, replies):
        checkpoint._make = slowly
        return super().merge(state, replies)
"""
COMMAND = [sys.executable, "-m", "fedgps_ray"]


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """Return an environment with a home of its own and nothing of this process's Ray."""
    home = tmp_path_factory.mktemp("home")
    rest = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    return {**rest, "HOME": str(home), "COLUMNS": "200"}


class Run(NamedTuple):
    """A command that was started, and where its results go."""

    process: subprocess.Popen
    out: Path

    @property
    def folder(self):
        """The folder of its only trial, once there is one."""
        return next(self.out.glob("trials/*"), None)

    def rounds_done(self):
        """Return how many rounds are on disk."""
        path = self.folder / "rounds.parquet" if self.folder else None
        return pq.ParquetFile(path).metadata.num_rows if path and path.exists() else 0


@pytest.fixture
def start(environment):
    """Start a command in a session of its own; whatever is left of it in the end is killed."""
    started = []

    def begin(out, *arguments, program=COMMAND):
        process = subprocess.Popen(
            [*program, *arguments],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            umask=0o022,
            preexec_fn=hear_ctrl_c,
        )
        started.append(process)
        return Run(process, out)

    yield begin
    for process in started:
        process.kill()
        process.communicate()
        send(descendants(process.pid), signal.SIGKILL)


def send(pids, number):
    """Send a signal to processes, some of which may have ended; return those that were there."""
    there = set()
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
            there.add(pid)
    return there


def hear_ctrl_c():
    """Let SIGINT end the process: one started by a shell's background job would ignore it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def run_command(out, *more, method="fedgps_cf"):
    return ["run", *TRIAL, "--method", method, "--out", str(out), *more]


def held(folder):
    """Return a method whose clients wait in the third round until a file is there, and the file."""
    folder.mkdir(exist_ok=True)
    file, go = folder / "held.py", folder / "go"
    file.write_text(HELD.format(go=go))
    return f"{file}:Held", go


def stats():
    """Return (process, parent, session, state) of everything that runs."""
    processes = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            rest = path.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        processes.append((int(path.parent.name), int(rest[1]), int(rest[3]), rest[0]))
    return processes


def descendants(session):
    """Return the living processes of a session, whoever their parents are now."""
    return {pid for pid, _, of, state in stats() if of == session and state != "Z"}


def actors_of(session, kind="(Client|Server)"):
    """Return the processes of the session's actors."""
    return actors_named(session, f"{kind}Actor")


def actors_named(session, kind):
    """Return the session's processes that are actors of a kind."""
    return {pid for pid, title in titles(session).items() if re.match(f"ray::{kind}", title)}


def of_kind(session, kind):
    """Return the session's processes that chaos calls by a name."""
    return {pid for pid, title in titles(session).items() if KINDS[kind] in title}


def titles(session):
    """Return the processes of a session, and what each calls itself."""
    found = {}
    for pid in descendants(session):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            found[pid] = Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    return found


def until_gone(session):
    """Wait until nothing of a session is left; after a minute Ray's agents would end anyway."""
    deadline = time.monotonic() + min(patient(10), 40)
    while left := titles(session):
        assert time.monotonic() < deadline, left
        time.sleep(0.05)


def printed_hash(text):
    return re.search(r"weights +([0-9a-f]{64})", text).group(1)


@pytest.fixture(scope="module")
def final_hash(tmp_path_factory, environment):
    """Return the hash that the trial prints when it runs in one process."""
    out = tmp_path_factory.mktemp("alone")
    method, go = held(out / "method")
    go.touch()
    command = [*COMMAND, *run_command(out, "--actors", "0", method=method)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return printed_hash(done.stdout)


def test_actors_give_the_hash_of_one_process_even_if_one_dies(
    start, tmp_path, final_hash, environment, until
):
    method, go = held(tmp_path / "method")
    run = start(tmp_path, *run_command(tmp_path, "--json", method=method))
    until(lambda: run.rounds_done() > 0 or run.process.poll() is not None, 90)
    assert run.process.poll() is None, run.process.communicate()[1]
    assert len(descendants(run.process.pid)) > 5, "Ray's own processes are of this session"
    os.kill(min(actors_of(run.process.pid, "Client")), signal.SIGKILL)
    go.touch()
    output, errors = run.process.communicate(timeout=patient(90))
    assert run.process.returncode == 0, errors
    info = json.loads(output)  # nothing else is printed there, not even by Ray about the death
    assert (info["status"], info["summary"]["weights_sha256"]) == ("finished", final_hash)
    until_gone(run.process.pid)
    token = Path(environment["HOME"]) / ".ray" / "auth_token"
    assert stat.S_IMODE(token.stat().st_mode) == 0o600
    assert stat.S_IMODE(token.parent.stat().st_mode) == 0o700
    results = [run.folder / name for name in ("trial.json", "rounds.parquet", "clients.parquet")]
    assert {stat.S_IMODE(path.stat().st_mode) for path in results} == {0o644}, "as the mask says"


@pytest.mark.parametrize("way", ["ctrl-c", "terminate"])
def test_interrupted_run_leaves_a_checkpoint_and_no_process(way, start, tmp_path, until):
    run = start(tmp_path, *run_command(tmp_path, "--set", "rounds=3000"))
    until(lambda: run.rounds_done() > 1 or run.process.poll() is not None, 90)
    assert run.process.poll() is None, run.process.communicate()[1]
    if way == "ctrl-c":
        os.killpg(run.process.pid, signal.SIGINT)  # a terminal sends it to the whole group
    else:
        run.process.terminate()
    _, errors = run.process.communicate(timeout=patient(40))
    assert run.process.returncode == 130, errors
    assert f"fedgps-ray resume {run.folder}" in errors
    assert "Traceback" not in errors
    info = read_trial(run.folder)
    assert info["status"] == "interrupted"
    newest = max((run.folder / "checkpoint").glob("round-*.json"))
    assert int(newest.stem.split("-")[1]) == info["summary"]["rounds_done"] == run.rounds_done()
    until_gone(run.process.pid)


@pytest.mark.parametrize("command", ["run", "sweep"])
def test_termination_of_all_processes_is_a_stop(command, start, tmp_path, until, experiment):
    """A job scheduler ends all processes at once; that Ray ends too is no reason to start it."""
    words = {
        "run": run_command(tmp_path, "--set", "rounds=3000"),
        "sweep": [*sweep_command(experiment, tmp_path), "--set", "rounds=3000"],
    }[command]
    run = start(tmp_path, *words)
    until(lambda: run.rounds_done() > 1 or run.process.poll() is not None, 90)
    assert run.process.poll() is None, run.process.communicate()[1]
    assert len(send(descendants(run.process.pid), signal.SIGTERM)) > 5
    _, errors = run.process.communicate(timeout=patient(60))
    assert run.process.returncode == 130, errors
    assert "starting Ray again" not in errors
    hints = [f"fedgps-ray resume {tmp_path}", "the same command"]  # as Ray itself may have ended it
    assert any(f"interrupted; to continue: {hint}" in errors for hint in hints), errors
    assert "Traceback" not in errors
    until_gone(run.process.pid)


def test_killed_owner_takes_its_actors_along_and_resume_ends_the_trial(
    start, tmp_path, until, final_hash
):
    method, go = held(tmp_path / "method")
    run = start(tmp_path, *run_command(tmp_path, "--checkpoint-seconds", "0", method=method))
    checkpoints = tmp_path / "trials"
    until(lambda: any(checkpoints.glob("*/checkpoint/round-*.json")) or run.process.poll(), 90)
    assert run.process.poll() is None, run.process.communicate()[1]
    session = run.process.pid
    actors = actors_of(session)
    assert len(actors) == 3
    run.process.kill()
    run.process.wait()
    until_gone(session)
    info, done = read_trial(run.folder), run.rounds_done()
    assert info["status"] in ("running", "interrupted"), "its server may end by itself in time"
    assert 0 < done < 3, "the third round was held"
    go.touch()
    resumed = start(tmp_path, "resume", str(tmp_path))
    output, errors = resumed.process.communicate(timeout=patient(100))
    assert resumed.process.returncode == 0, errors
    assert "continuing after round" in errors
    assert printed_hash(output) == final_hash
    until_gone(resumed.process.pid)


# --- sweeps --------------------------------------------------------------------------------------

SWEEP = """
name = "tiny"
[base]
dataset = "digits"
model = "mlp"
clients = 4
sampling_rate = 0.5
rounds = 40
[grid]
method = ["fedavg", "fedgps_cf"]
seed = [0, 1]
"""


@pytest.fixture
def experiment(tmp_path):
    """Write an experiment file of four trials."""
    path = tmp_path / "tiny.toml"
    path.write_text(SWEEP)
    return path


@pytest.fixture(scope="module")
def undisturbed_sweep(tmp_path_factory, environment):
    """Return the hashes of the sweep when nothing disturbs it."""
    folder = tmp_path_factory.mktemp("undisturbed")
    (folder / "tiny.toml").write_text(SWEEP)
    command = ["sweep", str(folder / "tiny.toml"), "--out", str(folder / "runs")]
    subprocess.run([*COMMAND, *command], env=environment, capture_output=True, check=True)
    return sweep_hashes(folder / "runs")


def infos(out):
    return [read_trial(path.parent) for path in sorted(out.glob("trials/*/trial.json"))]


def sweep_hashes(out):
    assert {info["status"] for info in infos(out)} == {"finished"}
    return {info["trial_id"]: info["summary"]["weights_sha256"] for info in infos(out)}


def some_rounds_on_disk(out):
    return any(out.glob("trials/*/checkpoint/round-*.json"))


@pytest.mark.parametrize("victim", ["driver", "its child", "terminated driver", *sorted(KINDS)])
def test_sweep_ends_with_the_same_hashes_whatever_was_killed(
    victim, start, experiment, tmp_path, until, undisturbed_sweep
):
    out = tmp_path / "runs"
    command = ["sweep", str(experiment), "--out", str(out), "--checkpoint-seconds", "0"]
    run = start(out, *command)
    session = run.process.pid
    until(lambda: some_rounds_on_disk(out) or run.process.poll() is not None, 90)
    assert run.process.poll() is None, run.process.communicate()[1]
    if victim in KINDS:
        assert send(of_kind(session, victim), signal.SIGKILL)
        _, errors = run.process.communicate(timeout=patient(110))
        assert run.process.returncode == 0, errors
        assert ("starting Ray again and going on" in errors) == (victim in ("raylet", "GCS"))
        until_gone(session)
    else:
        number = signal.SIGTERM if victim == "terminated driver" else signal.SIGKILL
        processes = {process.pid for process in processes_of_command(session)}
        (child,) = processes - {session}
        os.kill(child if victim == "its child" else session, number)
        _, errors = run.process.communicate(timeout=patient(60))
        assert run.process.returncode == (130 if number == signal.SIGTERM else -number), errors
        assert "starts again" not in errors
        assert "raylet" not in errors
        until_gone(session)
        resumed = start(out, "resume", str(out))
        _, errors = resumed.process.communicate(timeout=patient(110))
        assert resumed.process.returncode == 0, errors
        until_gone(resumed.process.pid)
    assert sweep_hashes(out) == undisturbed_sweep


STRUCK_WHILE_CONNECTING = """
import os, subprocess
from ray._private import worker
from fedgps_ray.__main__ import main
from fedgps_ray.cluster.parent import STARTS
connect = worker.connect

def connect_and_strike(*given, **named):
    if STARTS not in os.environ:
        raylet = worker._global_node.all_processes["raylet"][0].process
        subprocess.Popen(["sh", "-c", f"BLOW {raylet.pid}"])
    return connect(*given, **named)

worker.connect = connect_and_strike
main()
"""


@pytest.mark.parametrize("blow", ["kill -KILL", "sleep 0.01; kill -STOP"])
def test_raylet_that_dies_or_hangs_while_the_driver_connects_to_it(
    blow, start, experiment, tmp_path, undisturbed_sweep
):
    """Ray's core ends the driver or stops all its threads; its parent starts it again."""
    script, out = STRUCK_WHILE_CONNECTING.replace("BLOW", blow), tmp_path / "runs"
    run = start(out, *sweep_command(experiment, out), program=[sys.executable, "-c", script])
    _, errors = run.process.communicate(timeout=patient(200))
    assert run.process.returncode == 0, errors
    assert errors.count("connecting to it; starting Ray again and going on") == 1
    assert sweep_hashes(out) == undisturbed_sweep
    until_gone(run.process.pid)


# --- two at once, and folders that go away --------------------------------------------------------


def sweep_command(experiment, out):
    return ["sweep", str(experiment), "--out", str(out), "--checkpoint-seconds", "0"]


@pytest.fixture
def sweeping(start, experiment, tmp_path, until):
    """Start a sweep, and wait until trials are under way."""

    def begin(out=tmp_path / "runs"):
        run = start(out, *sweep_command(experiment, out))
        until(lambda: some_rounds_on_disk(out) or run.process.poll() is not None, 90)
        assert run.process.poll() is None, run.process.communicate()[1]
        return run

    return begin


def test_a_sweep_that_is_stopped_waits_for_slow_checkpoints(start, tmp_path, until):
    (tmp_path / "slow.py").write_text(SLOW)
    settings = 'dataset = "digits"\nmodel = "mlp"\nrounds = 100000\nmethod = "slow.py:Slow"\n'
    file, out = tmp_path / "slow.toml", tmp_path / "out"
    file.write_text(f'name = "slow"\n[base]\n{settings}[execution]\ncheckpoint_seconds = 1000\n')
    run = start(out, *sweep_command(file, out))
    until(lambda: run.rounds_done() >= 2, 120)
    os.killpg(run.process.pid, signal.SIGINT)
    _, told = run.process.communicate(timeout=patient(120))
    assert run.process.returncode == 130, told
    last = max((run.folder / "checkpoint").glob("round-*.json"))
    assert json.loads(last.read_text())["rounds_done"] == run.rounds_done()
    assert read_trial(run.folder)["status"] == "interrupted"


@contextlib.contextmanager
def stopped_clients(run):
    """Stop the client actors of a sweep for a while, so that it cannot end meanwhile."""
    stopped = send(of_kind(run.process.pid, "client"), signal.SIGSTOP)
    assert stopped
    yield
    send(stopped, signal.SIGCONT)  # some may have been replaced


@pytest.fixture
def finish(start, until):
    """Resume a sweep and return what it says."""

    def resume(out, *more):
        resumed = start(out, "resume", str(out), *more)
        _, errors = resumed.process.communicate(timeout=patient(110))
        assert resumed.process.returncode == 0, errors
        until_gone(resumed.process.pid)
        return errors

    return resume


def test_second_sweep_on_a_folder_is_refused(sweeping, start, experiment, undisturbed_sweep):
    first = sweeping()
    with stopped_clients(first):
        second = start(first.out, *sweep_command(experiment, first.out))
        _, errors = second.process.communicate(timeout=patient(60))
    assert second.process.returncode == 2
    assert "is in use by another process" in errors
    _, errors = first.process.communicate(timeout=patient(110))
    assert first.process.returncode == 0, errors
    assert sweep_hashes(first.out) == undisturbed_sweep
    again = start(first.out, *sweep_command(experiment, first.out))
    output, errors = again.process.communicate(timeout=patient(60))
    assert "0 of 4 trials to run" in errors
    assert "4 of 4 finished" in output


def test_run_of_a_trial_that_a_sweep_works_on_is_refused(sweeping, start, undisturbed_sweep):
    sweep = sweeping()
    with stopped_clients(sweep):
        info = next(info for info in infos(sweep.out) if info["status"] == "running")
        words = shlex.split(exact_command(info["spec"], info["execution"]))[1:]
        words[words.index("--out") + 1] = str(sweep.out)
        run = start(sweep.out, *words, "--actors", "0")
        _, errors = run.process.communicate(timeout=patient(60))
    assert run.process.returncode == 2, errors
    assert "is in use by another process" in errors
    _, errors = sweep.process.communicate(timeout=patient(110))
    assert sweep.process.returncode == 0, errors
    assert sweep_hashes(sweep.out) == undisturbed_sweep


def test_folder_that_is_moved_away_can_be_resumed_where_it_is(
    sweeping, finish, tmp_path, undisturbed_sweep, until
):
    run = sweeping()
    moved = run.out.rename(tmp_path / "moved")
    _, errors = run.process.communicate(timeout=patient(200))
    assert run.process.returncode != 0
    assert "Traceback" not in errors
    until_gone(run.process.pid)
    assert not any(info["status"] == "failed" for info in infos(moved))
    finish(moved)
    assert sweep_hashes(moved) == undisturbed_sweep


@pytest.fixture
def small_disk(tmp_path):
    """Mount a disk of some size; it can be made larger."""
    folder = tmp_path / "disk"
    folder.mkdir()

    def mount(options):
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
        if subprocess.run(command, capture_output=True, check=False).returncode:
            pytest.skip("only root can mount a disk")
        return folder

    yield mount
    subprocess.run(["umount", "-l", str(folder)], check=False, capture_output=True)


def test_full_disk_is_told_and_the_sweep_goes_on_when_there_is_room(
    start, experiment, small_disk, until, finish, undisturbed_sweep
):
    out = small_disk("size=400k") / "runs"
    run = start(out, *sweep_command(experiment, out))
    _, errors = run.process.communicate(timeout=patient(200))
    assert run.process.returncode in (2, 3), errors
    assert "No space left on device" in errors
    assert not any(info["status"] == "failed" for info in infos(out))
    assert "Traceback" not in errors
    until_gone(run.process.pid)
    small_disk("remount,size=100m")
    finish(out)
    assert sweep_hashes(out) == undisturbed_sweep


# --- what hangs ----------------------------------------------------------------------------------


@pytest.mark.parametrize("victim", ["server", "trial"])
def test_stopped_processes_are_replaced(victim, start, tmp_path, until, undisturbed_sweep):
    file, out = tmp_path / "tiny.toml", tmp_path / "runs"
    file.write_text(f"{SWEEP}[execution]\nhang_seconds = 5\n")
    run = start(out, *sweep_command(file, out))
    until(lambda: some_rounds_on_disk(out) or run.process.poll() is not None, 90)
    assert run.process.poll() is None, run.process.communicate()[1]
    victims = send(of_kind(run.process.pid, victim), signal.SIGSTOP)
    assert victims
    until(lambda: not victims & descendants(run.process.pid), 200)
    assert run.process.poll() is None, "they were ended because they hung, not with all others"
    _, errors = run.process.communicate(timeout=patient(200))
    assert run.process.returncode == 0, errors
    assert victim != "trial" or "does not answer; its process is replaced" in errors
    assert sweep_hashes(out) == undisturbed_sweep


# --- a cluster with a token ----------------------------------------------------------------------


@pytest.fixture
def guarded_cluster(tmp_path, environment):
    """Start a head that wants a token, as the documentation says; return its address."""
    home = tmp_path / "home"
    (home / ".ray").mkdir(parents=True)
    (home / ".ray" / "auth_token").write_text("a" * 64)
    guarded = {**environment, "HOME": str(home), "RAY_AUTH_MODE": "token"}
    port = free_port()
    program = str(Path(sys.executable).with_name("ray"))
    options = ["--head", f"--port={port}", "--num-cpus=2", "--include-dashboard=false", "--block"]
    head = subprocess.Popen(
        [program, "start", *options],
        env=guarded,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    yield home, f"127.0.0.1:{port}"
    send(descendants(head.pid), signal.SIGKILL)
    head.wait()


def free_port():
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]


def answers(address):
    host, _, port = address.partition(":")
    with socket.socket() as knocking:
        return knocking.connect_ex((host, int(port))) == 0


def test_sweep_joins_a_cluster_with_the_right_token_only(
    guarded_cluster, experiment, environment, tmp_path, until, undisturbed_sweep
):
    home, address = guarded_cluster
    until(lambda: answers(address), 60)
    command = ["sweep", str(experiment), "--out", str(tmp_path / "runs"), "--address", address]
    right = {**environment, "HOME": str(home)}
    done = subprocess.run(
        [*COMMAND, *command], env=right, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert sweep_hashes(tmp_path / "runs") == undisturbed_sweep
    token = home / ".ray" / "auth_token"
    assert stat.S_IMODE(token.stat().st_mode) == 0o600
    token.write_text("b" * 64)
    command[3] = str(tmp_path / "others")
    done = subprocess.run(
        [*COMMAND, *command], env=right, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "Is its token in RAY_AUTH_TOKEN or ~/.ray/auth_token here" in done.stderr
    assert "Traceback" not in done.stderr
