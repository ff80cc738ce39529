"""How a server's events travel to the owner of its trial."""

from contextlib import nullcontext
from types import SimpleNamespace

import pytest
from ray.exceptions import ActorUnavailableError, GetTimeoutError, RaySystemError

from fedgps_ray.cluster import crew
from fedgps_ray.cluster.policy import POLICY, RetryPolicy
from fedgps_ray.errors import Lost, UserError
from fedgps_ray.events import Started

FIRST = Started(0, [])


def rows(*numbers):
    return [{"round": number} for number in numbers]


def timed(monkeypatch, events):
    """Yield events, each at a time of a clock that stands still in between."""
    now = [100.0]
    monkeypatch.setattr(crew.time, "monotonic", lambda: now[0])
    for seconds, event in events:
        now[0] += seconds
        if isinstance(event, Exception):
            raise event
        yield event


def test_rows_of_short_rounds_travel_together(monkeypatch):
    one, two, three, four = rows(1, 2, 3, 4)
    events = [(0, FIRST), (0.1, one), (0.1, two), (0.05, three), (0.1, four)]
    lists = list(crew.bunched(timed(monkeypatch, events), 0.2))
    assert lists == [[FIRST], [one], [two, three, four]]


def test_rows_of_long_rounds_travel_at_once(monkeypatch):
    one, two = rows(1, 2)
    lists = list(crew.bunched(timed(monkeypatch, [(0, FIRST), (0.3, one), (0.3, two)]), 0.2))
    assert lists == [[FIRST], [one], [two]]


def test_rows_that_are_held_come_before_an_error(monkeypatch):
    one, two = rows(1, 2)
    events = [(0, one), (0.1, two), (0.01, ValueError("lost"))]
    lists = crew.bunched(timed(monkeypatch, events), 0.2)
    assert [next(lists), next(lists)] == [[one], [two]]
    with pytest.raises(ValueError, match="lost"):
        next(lists)


# --- actors that are asked ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("failures", "kills", "ends"), [(0, 0, "data"), (2, 2, "data"), (3, 3, None)]
)
def test_an_actor_that_cannot_be_reached_is_replaced_and_asked_again(
    failures, kills, ends, monkeypatch
):
    killed, answers = [], iter([ActorUnavailableError("stopped", None)] * failures + ["data"])

    def get(_):
        if isinstance(said := next(answers), Exception):
            raise said
        return said

    monkeypatch.setattr(crew.ray, "wait", lambda asked, timeout: (asked, []))
    monkeypatch.setattr(crew.ray, "get", get)
    monkeypatch.setattr(crew.ray, "kill", lambda actor, no_restart: killed.append(actor))
    with nullcontext() if ends else pytest.raises(ActorUnavailableError):
        assert crew.answer("actor", object, RetryPolicy(max_deaths=3)) == ends
    assert killed == ["actor"] * kills


# --- servers that are lost ------------------------------------------------------------------------

SETTINGS = crew.TrialSettings({}, {}, start_over=True, policy=RetryPolicy(max_server_losses=2))
DEATH = RaySystemError("the server died")


def test_rounds_that_are_done_again_are_no_progress():
    """A server that dies in the same round each time comes to an end, whatever it did before."""
    attempts = crew.Attempts(SETTINGS)
    for _ in range(2):
        for row in rows(1, 2):
            attempts.note(row)
        attempts.pause_after(DEATH)
    for row in rows(1, 2):
        attempts.note(row)
    with pytest.raises(Lost, match="lost 3 times in a row"):
        attempts.pause_after(DEATH)


def test_a_new_round_is_progress():
    attempts = crew.Attempts(SETTINGS)
    for number in range(1, 10):
        attempts.note({"round": number})
        attempts.pause_after(DEATH)
    assert attempts.losses == 1


def test_old_results_are_discarded_once_and_not_less():
    attempts = crew.Attempts(SETTINGS)
    attempts.pause_after(DEATH)
    assert attempts.settings.start_over, "the server died before it discarded anything"
    attempts.note(FIRST)
    assert not attempts.settings.start_over


@pytest.mark.parametrize("problem", [UserError("wrong"), Lost("gone"), ValueError("broken")])
def test_what_another_server_cannot_mend_is_raised(problem):
    with pytest.raises(type(problem)):
        crew.Attempts(SETTINGS).pause_after(problem)


def test_a_server_that_tells_rows_is_not_silent(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(crew.time, "monotonic", lambda: now[0])
    silence = crew.Silence(RetryPolicy(hang_seconds=10))
    now[0] += 600
    silence.hear()
    assert silence.note(None).what == "waiting for the server"
    now[0] += 10 * silence.policy.max_slowness + 1
    with pytest.raises(RaySystemError, match="has not answered"):
        silence.note(None)


class Call:
    """A method of a server that answers as it is told: an exception is raised."""

    def __init__(self, *answers):
        self.answers, self.asked = list(answers), []

    def remote(self, name):
        self.asked.append(name)
        return self

    def get(self, *_, **__):
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.mark.parametrize(
    ("answers", "questions"),
    [
        ([GetTimeoutError("busy"), False, True], 3),  # it may be writing its checkpoint
        ([DEATH], 1),  # there is nothing to wait for
    ],
)
def test_a_busy_server_is_given_the_time_to_stop(answers, questions, monkeypatch):
    call = Call(*answers)
    monkeypatch.setattr(crew.ray, "get", call.get)
    crew._stop(SimpleNamespace(control=call), POLICY)
    assert call.asked == ["stop", *["is_idle"] * questions]
