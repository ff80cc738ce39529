"""A Ray that hangs or dies while it starts is noticed."""

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from fedgps_ray.cluster import reaper, starting
from fedgps_ray.cluster.policy import POLICY
from tests.processes import patient

pytestmark = pytest.mark.skipif(not reaper.PROC.exists(), reason="Linux only")
SLEEP = [sys.executable, "-S", "-c", "import time; time.sleep(60)", "x/gcs/gcs_server", "--port"]
SOON = replace(POLICY, watch_seconds=0.05, start_seconds=60.0)


@pytest.fixture
def session(tmp_path, monkeypatch):
    """Make the folder of a session that this process seems to start, with its GCS."""
    monkeypatch.setattr(starting, "get_default_ray_temp_dir", lambda: str(tmp_path))
    folder = tmp_path / f"session_2_{os.getpid()}"
    processes = []

    def begin():
        (folder / "logs").mkdir(parents=True)
        with (folder / "logs" / "gcs_server.out").open("w") as log:
            processes.append(subprocess.Popen(SLEEP, stdout=log))
        return folder, processes[0]

    yield begin
    for process in processes:
        process.kill()
        process.wait()


def told_while(seconds, policy, end=lambda: None):
    """Return what is told while Ray starts, and whether anything was before something ended."""
    told, heard = [], starting.threading.Event()

    def on_loss(what):
        told.append(what)
        heard.set()

    with starting.watched(on_loss, policy):
        early = heard.wait(0.5)
        end()
        heard.wait(seconds)
    return told, early


def test_a_control_process_that_dies_is_told_once(session):
    started = []

    def die():
        started[0].kill()
        started[0].wait()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(starting, "sessions_of", lambda *_: [session_of(session, started)])
        told, early = told_while(patient(20), SOON, die)
    assert not early
    assert told == ["Ray's control process (GCS) has died while Ray was starting"]


def session_of(begin, started):
    """Return the session's folder; it is made when it is first looked for after the start."""
    if not started:
        started.append(None)
        return starting.Path("an older session")
    if started[0] is None:
        folder, started[0] = begin()
        started.append(folder)
    return started[1]


def test_a_session_is_closed_to_others_on_its_way(session):
    started = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(starting, "sessions_of", lambda *_: [session_of(session, started)])
        assert told_while(0.1, SOON) == ([], False)
    assert started[1].stat().st_mode & 0o777 == 0o700


def test_a_start_that_takes_too_long_is_told(session):
    told, _ = told_while(patient(20), replace(SOON, start_seconds=0.7))
    assert len(told) == 1
    assert told[0].startswith("Ray did not start in ")


def test_sessions_of_before_do_not_count(session):
    _, control = session()
    control.kill()
    control.wait()
    assert told_while(0.5, SOON) == ([], False)


def test_nothing_is_told_once_ray_is_up(session):
    told = []
    with starting.watched(told.append, replace(SOON, start_seconds=0.2)):
        pass
    starting.time.sleep(0.5)
    assert told == []
