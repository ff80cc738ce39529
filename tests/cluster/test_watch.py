"""When a driver counts its Ray as lost, with a Ray that is only pretended."""

import re
import threading
import time
from types import SimpleNamespace

import pytest

from fedgps_ray.cluster.policy import RetryPolicy
from fedgps_ray.cluster.watch import Watch
from tests.processes import patient

SOON = RetryPolicy(watch_seconds=0.02)


class FakeLink:
    """Ray as a driver sees it: it answers, or hangs, and has processes."""

    def __init__(self, is_alive=True, answers=True, exit_codes=(None, None)):
        self.is_alive, self.answers = is_alive, answers
        codes = dict(zip(("gcs_server", "raylet"), exit_codes, strict=True))
        self.processes = {
            name: SimpleNamespace(poll=lambda code=code: code) for name, code in codes.items()
        }

    def ask(self, seconds):
        if not self.answers:
            raise TimeoutError
        return self.is_alive


class PunctualLink(FakeLink):
    """Remembers when it was asked, and knows how long ago it must have been heard at most."""

    def __init__(self, enough):
        super().__init__()
        self.enough, self.is_enough = enough, threading.Event()
        self.asked = [time.monotonic()] * 2

    def ask(self, seconds):
        self.asked.append(time.monotonic())
        if len(self.asked) >= self.enough:
            self.is_enough.set()
        return super().ask(seconds)

    def silence(self):
        """Return the time since the question whose answer was there before the newest question."""
        return time.monotonic() - self.asked[-2]


def first_loss(link, silence):
    """Return what is told first."""
    told, heard = [], threading.Event()

    def hear(what):
        told.append(what)
        heard.set()

    watch = Watch(link, lambda: silence, hear, SOON)
    assert heard.wait(patient(30))
    watch.close()
    return told[0]


@pytest.mark.parametrize(
    ("link", "told"),
    [
        (
            FakeLink(exit_codes=(None, -9)),
            "Ray's node process (raylet) has died (killed by signal 9)",
        ),
        (FakeLink(exit_codes=(1, None)), "Ray's control process (GCS) has died (exit code 1)"),
        (FakeLink(is_alive=False), "Ray counts this machine as dead"),
    ],
)
def test_losses(link, told):
    assert first_loss(link, silence=600) == told


def test_ray_that_does_not_answer_is_lost():
    told = first_loss(FakeLink(answers=False), silence=0.3)
    assert re.fullmatch(r"Ray has not answered for \d+ s", told)


def test_ray_that_answers_is_not_lost():
    """However late this process's threads get their turn: each answer counts from its question."""
    link, told = PunctualLink(enough=50), []
    watch = Watch(link, link.silence, lambda what: [told.append(what), link.is_enough.set()], SOON)
    assert link.is_enough.wait(patient(60))
    watch.close()
    assert told == []


def test_what_ends_after_the_watch_is_meant_to():
    link, told, before = FakeLink(), [], set(threading.enumerate())
    watch = Watch(link, lambda: 600.0, told.append, SOON)
    threads = set(threading.enumerate()) - before
    watch.close()
    link.processes["raylet"].poll = lambda: -15
    for thread in threads:
        thread.join(patient(30))
    assert [thread.is_alive() for thread in threads] == [False, False]
    assert told == []


@pytest.mark.parametrize(
    ("is_own", "slowness", "seconds"), [(True, 1, 20), (True, 2, 40), (True, 8, 45), (False, 1, 45)]
)
def test_allowed_silence_ends_before_ray_aborts_the_driver(is_own, slowness, seconds):
    assert RetryPolicy().allowed_ray_silence(is_own, slowness) == seconds < 60
