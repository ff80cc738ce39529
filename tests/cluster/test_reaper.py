"""Processes of a Ray session: which they are, and that they end with their driver."""

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
        return process

    yield begin
    for process in started:
        process.kill()
        process.wait()


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
    assert [process.wait(5) for process in victims] == [-signal.SIGKILL] * 2
    assert other.poll() is None


DRIVER = """
import sys, time
from fedgps_ray.cluster.reaper import Reaper
Reaper(sys.argv[1], 0.0)
print("ready", flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_session_ends_with_its_driver(number, start, tmp_path):
    victim = start(tmp_path / "session")
    environment = {**os.environ, "PYTHONPATH": str(Path(reaper.__file__).parents[2])}
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(tmp_path / "session")],
        env=environment,
        stdout=subprocess.PIPE,
    )
    with driver:
        assert driver.stdout.readline() == b"ready\n"
        assert victim.poll() is None
        driver.send_signal(number)
    assert victim.wait(20) == -signal.SIGKILL


def test_a_dismissed_reaper_ends_and_leaves_no_zombie(tmp_path):
    known = reaper.Reaper(str(tmp_path), 0.0)
    known.dismiss()
    deadline = time.monotonic() + patient(30)
    while known.process.returncode is None:  # set by whoever waits for it
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert known.process.returncode == 0
