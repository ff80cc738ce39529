"""Processes of a Ray session: which they are, and that they end with their driver."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fedgps_ray.cluster import reaper
from tests.processes import patient

pytestmark = pytest.mark.skipif(not reaper.PROC.exists(), reason="Linux only")
SLEEP = [sys.executable, "-S", "-c", "import time; time.sleep(60)"]


@pytest.fixture
def start(tmp_path):
    """Start a process that writes into a file."""
    started = []

    def begin(folder, *arguments):
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "out.txt").open("w") as output:
            process = subprocess.Popen([*SLEEP, *arguments], stdout=output)
        started.append(process)
        wait_for_name(process)
        return process

    yield begin
    for process in started:
        process.kill()
        process.wait()


def wait_for_name(process):
    """Wait until the system knows how a process was called: Popen may return a moment before."""
    deadline = time.monotonic() + patient(5)
    while not Path(f"/proc/{process.pid}/cmdline").read_bytes():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_processes_are_known_by_their_output_and_by_what_ray_was_told(start, tmp_path):
    session = tmp_path / "session"
    mine = start(session / "logs")
    told = start(tmp_path, "/lib/ray/agent.py", f"--session-dir={session}")
    start(tmp_path / "session-2")  # the names begin alike
    start(tmp_path, "other/program", str(session))
    assert set(reaper.processes_of(session)) == {mine.pid, told.pid}


def test_agents_are_known_by_any_file_they_have_there(tmp_path):
    """They write to pipes, and nothing on their command line says to which session they belong."""
    session = tmp_path / "session"
    session.mkdir()
    with (session / "agent.log").open("w") as log:
        kept, common = {"pass_fds": [log.fileno()]}, {"executable": sys.executable}
        agent, other = (
            subprocess.Popen([name, *SLEEP[1:]], stdout=subprocess.DEVNULL, **kept, **common)
            for name in ("ray::DashboardAgent", "editor")
        )
    try:
        for process in (agent, other):
            wait_for_name(process)
        assert set(reaper.processes_of(session)) == {agent.pid}
    finally:
        for process in (agent, other):
            process.kill()
            process.wait()


def test_who_looks_at_the_logs_is_no_process_of_ray(start, tmp_path):
    session = tmp_path / "ray" / "session"
    start(tmp_path, "tail", "-f", str(session / "logs" / "raylet.out"))
    assert reaper.processes_of(session) == {}


def test_all_are_killed_also_those_that_are_stopped(start, tmp_path):
    victims = [start(tmp_path / "session") for _ in range(2)]
    other = start(tmp_path / "other")
    victims[0].send_signal(signal.SIGSTOP)
    reaper.kill_all(tmp_path / "session")
    assert [process.wait(patient(5)) for process in victims] == [-signal.SIGKILL] * 2
    assert other.poll() is None


DRIVER = """
import os, subprocess, sys, time
from pathlib import Path
from fedgps_ray.cluster.reaper import Reaper
base, told, *sleep = sys.argv[1:]
reaper = Reaper(base, 0.0)
for name in (f"session_1_{os.getpid()}", "session_1_other"):
    folder = Path(base) / name
    folder.mkdir()
    with (folder / "out.txt").open("w") as output:
        print(subprocess.Popen(sleep, stdout=output, start_new_session=True).pid, end=" ")
if told:
    reaper.tell(str(Path(base) / told))
print(flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.parametrize(("told", "ended"), [("", 0), ("session_1_other", 1)])
def test_session_ends_with_its_driver(number, told, ended, tmp_path):
    """Before a reaper knows the session, all of its driver's are meant, and then only that one."""
    environment = {**os.environ, "PYTHONPATH": str(Path(reaper.__file__).parents[2])}
    command = [sys.executable, "-c", DRIVER, str(tmp_path), told, *SLEEP]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as driver:
        pids = [int(word) for word in driver.stdout.readline().split()]
        assert all(map(is_alive, pids))
        driver.send_signal(number)
    deadline = time.monotonic() + patient(20)
    while is_alive(pids[ended]) and time.monotonic() < deadline:
        time.sleep(0.05)
    left = [is_alive(pid) for pid in pids]
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    assert left == [ended == 1, ended == 0]


def is_alive(pid):
    """Say whether a process is there and not only waiting to be buried."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_reaper_that_is_called_off_ends_nothing(start, tmp_path):
    victim = start(tmp_path / f"session_1_{os.getpid()}")
    known = reaper.Reaper(tmp_path, 0.0)
    known.call_off()
    known.process.wait(patient(20))
    assert victim.poll() is None


def test_a_dismissed_reaper_ends_and_leaves_no_zombie(tmp_path):
    known = reaper.Reaper(str(tmp_path), 0.0)
    known.dismiss()
    deadline = time.monotonic() + patient(30)
    while known.process.returncode is None:  # set by whoever waits for it
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert known.process.returncode == 0
