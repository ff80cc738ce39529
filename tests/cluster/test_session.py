"""Ray that does not come up, and clusters that do not answer: an end and a message for each."""

import signal
import threading
from dataclasses import replace

import pytest
import ray

from fedgps_ray.cluster import session, starting
from fedgps_ray.errors import Lost, UserError

LATE = "The current node timed out during startup. This could happen because ..."


@pytest.fixture
def init(monkeypatch):
    """Replace ray.init by something that fails some times; return how often it was called."""
    calls = []

    def set_up(problem, times):
        def attempt(*_, **__):
            calls.append(1)
            if len(calls) <= times:
                raise problem

        monkeypatch.setattr(starting.ray, "init", attempt)
        return calls

    return set_up


def test_ray_that_comes_up_too_late_is_started_again(init):
    calls = init(Exception(LATE), 2)
    starting.start_patiently({}, print)
    assert len(calls) == 3


def test_ray_that_never_comes_up_is_a_loss(init):
    calls = init(Exception(LATE), 99)
    with pytest.raises(Lost, match="Ray could not be started: The current node timed out"):
        starting.start_patiently({}, print)
    assert len(calls) == starting.POLICY.max_slow_starts


def test_ray_whose_control_process_is_killed_in_the_start_is_started_again(init):
    calls = init(RuntimeError("Failed to start GCS.  Last 0 lines of error files:"), 1)
    starting.start_patiently({}, print)
    assert len(calls) == 2


@pytest.mark.parametrize("stopped", [False, True])
def test_a_loss_after_a_stop_is_told_as_such(stopped, monkeypatch):
    told = []
    monkeypatch.setattr(session, "_ENDING", threading.Event())
    monkeypatch.setattr(session, "_ANSWERS", [session.Answers(lambda: None, told.append)])
    if stopped:
        session.expect_deaths()
    session._lost(session.Loss("gone", is_own=False))
    assert told == [session.Loss("gone", is_own=False, is_ending=stopped)]


def test_what_is_wrong_with_the_machine_is_told_at_once(init):
    calls = init(OSError("AF_UNIX path length cannot exceed 107 bytes"), 99)
    with pytest.raises(UserError, match="Ray could not be started: AF_UNIX path"):
        starting.start_patiently({}, print)
    assert len(calls) == 1


def test_an_error_without_words_is_told_by_its_name(init, monkeypatch):
    init(AssertionError(), 99)  # Ray checks some things with a bare assert
    with pytest.raises(UserError, match=r"Ray could not be started: AssertionError\(\)"):
        starting.start_patiently({}, print)
    with pytest.raises(UserError, match=r"cannot join .* at auto: AssertionError\(\)"):
        session.start("auto")


def test_a_cluster_that_never_answers_is_told_and_nothing_waits_for_it(monkeypatch):
    asked = threading.Event()
    monkeypatch.setattr(session.ray, "init", lambda **_: asked.wait(30))
    monkeypatch.setattr(session, "POLICY", replace(session.POLICY, join_seconds=0.01))
    with pytest.raises(UserError, match=r"no Ray answered within .* Does it use TLS"):
        session._join("127.0.0.1:1", {})
    asked.set()


def test_what_joining_raises_is_raised_here(init):
    init(ConnectionError("no"), 1)
    with pytest.raises(ConnectionError, match="no"):
        session._join("127.0.0.1:1", {})


def test_ray_does_not_take_over_sigterm_while_it_starts():
    ours = signal.getsignal(signal.SIGTERM)
    theirs = ray._private.utils.set_sigterm_handler
    with session.own_answer_to_sigterm():
        ray._private.utils.set_sigterm_handler(lambda *_: None)  # as ray.init does
        assert signal.getsignal(signal.SIGTERM) == ours
    assert ray._private.utils.set_sigterm_handler is theirs
