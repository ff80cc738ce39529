"""When a driver counts its Ray as lost, with a Ray that is only pretended."""

import threading
import time
from types import SimpleNamespace

import pytest

from fedgps_ray.cluster.policy import RetryPolicy
from fedgps_ray.cluster.watch import Watch

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


def first_loss(link, seconds, silence=0.3):
    """Return what is told within some seconds, or None."""
    told, heard = [], threading.Event()

    def hear(what):
        told.append(what)
        heard.set()

    watch = Watch(link, lambda: silence, hear, SOON)
    heard.wait(seconds)
    watch.close()
    return told[0] if told else None


@pytest.mark.parametrize(
    ("link", "told"),
    [
        (
            FakeLink(exit_codes=(None, -9)),
            "Ray's node process (raylet) has died (killed by signal 9)",
        ),
        (FakeLink(exit_codes=(1, None)), "Ray's control process (GCS) has died (exit code 1)"),
        (FakeLink(answers=False), "Ray has not answered for 0 s"),
        (FakeLink(is_alive=False), "Ray counts this machine as dead"),
    ],
)
def test_losses(link, told):
    assert first_loss(link, 10) == told


def test_ray_that_answers_is_not_lost():
    assert first_loss(FakeLink(), 1.0) is None


def test_what_ends_after_the_watch_is_meant_to():
    link, told = FakeLink(), []
    watch = Watch(link, lambda: 10.0, told.append, SOON)
    watch.close()
    link.processes["raylet"].poll = lambda: -15
    time.sleep(0.2)
    assert told == []


@pytest.mark.parametrize(
    ("is_own", "slowness", "seconds"), [(True, 1, 20), (True, 2, 40), (True, 8, 45), (False, 1, 45)]
)
def test_allowed_silence_ends_before_ray_aborts_the_driver(is_own, slowness, seconds):
    assert RetryPolicy().allowed_ray_silence(is_own, slowness) == seconds < 60
