"""What a trial tells Tune, second by second."""

import pytest

from fedgps_ray.errors import CannotWrite, ClientFailed, Lost, UserError
from fedgps_ray.events import Started, Status
from fedgps_ray.sweep import trainable
from fedgps_ray.sweep.trainable import SweepTrial


def row(number, accuracy):
    return {"round": number, "accuracy": accuracy, "loss": 1.0, "weights_sha256": "ab"}


@pytest.fixture
def trial(monkeypatch):
    """Make a trial of given events, which are told one at a time."""
    monkeypatch.setattr(trainable, "TELL_SECONDS", 0.0)

    def make(*events, end=None):
        def happen():
            yield from events
            if end is not None:
                raise end

        made = SweepTrial.__new__(SweepTrial)
        made.told, made.events, made.began, made.first = {}, happen(), 0.0, 0
        return made

    return make


def told(trial, times):
    """Take one event at a time, and return what is told after each."""
    results = []
    for _ in range(times):
        event = next(trial.events)
        trial._take(event)
        results.append(trial.step())
    return results


def test_what_was_wrong_on_disk_is_told_once(trial):
    made = trial(Started(2, ["a file was damaged"]), row(3, 0.5), Status("training"))
    first, second, third = told(made, 3)
    assert first["problems"] == ["a file was damaged"]
    assert "problems" not in second | third
    assert (first["rounds_done"], third["rounds_done"]) == (2, 3)


def test_best_accuracy_stays_and_untested_rounds_count(trial):
    made = trial(row(1, 0.5), row(2, 0.25), row(3, None))
    *_, last = told(made, 3)
    assert (last["best"], last["accuracy"], last["rounds_done"]) == (0.5, 0.25, 3)


@pytest.mark.parametrize(
    ("end", "key"),
    [
        (ClientFailed("client 2"), "failed"),
        (UserError("a wrong setting"), "failed"),
        (Lost("no memory"), "lost"),
        (CannotWrite("No space left on device"), "stuck"),
    ],
)
def test_end_by_failure_or_loss_is_told_apart(end, key, trial, monkeypatch):
    monkeypatch.setattr(trainable, "TELL_SECONDS", 5.0)
    result = trial(row(1, 0.5), end=end).step()
    assert result["done"]
    assert {"failed", "lost", "stuck"} & set(result) == {key}
    assert result[key] == str(end)


def test_trial_that_comes_to_its_end_is_done(trial, monkeypatch):
    monkeypatch.setattr(trainable, "TELL_SECONDS", 5.0)
    assert trial(row(1, 0.5)).step()["done"]
