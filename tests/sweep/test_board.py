"""Who leads, by hand."""

import pytest

from fedgps_ray.identity import Label
from fedgps_ray.sweep.board import (
    Record,
    as_json,
    from_json,
    leaderboard,
    planned,
    titled,
    told,
)


def record(method, best, status="finished", setting=""):
    return Record(method, setting, 1, 0, 20, status, best=best)


RECORDS = [
    record("FedAvg", 0.6),
    record("FedAvg", 0.8),
    record("FedAvg", None, "missing"),
    record("FedGPS", 0.75),
    record("FedGPS", 0.9, "running"),
    record("FedGPS", None, "failed"),
    record("SCAFFOLD", None, "running"),
]


def test_mean_over_finished_trials_best_over_all():
    first, second, third = leaderboard(RECORDS)
    assert (first.method, first.mean, first.best, first.planned) == ("FedGPS", 0.75, 0.9, 3)
    assert first.deviation is None, "one finished trial has no spread"
    assert (second.method, second.best, len(second.scores)) == ("FedAvg", 0.8, 2)
    assert second.mean == pytest.approx(0.7)
    assert second.deviation == pytest.approx(0.02**0.5)  # (0.1^2 + 0.1^2) / (2 - 1)
    assert (third.method, third.mean, third.best) == ("SCAFFOLD", None, None)


@pytest.mark.parametrize(
    ("order", "methods"),
    [
        ("mean", ["b", "a", "c"]),
        ("best", ["c", "b", "a"]),
        ("method", ["a", "b", "c"]),
        ("setting", ["c", "a", "b"]),  # as they come
    ],
)
def test_orders(order, methods):
    records = [record("c", 0.9, "running"), record("a", 0.5), record("b", 0.7)]
    assert [standing.method for standing in leaderboard(records, order)] == methods


def test_each_setting_has_its_own_leader():
    records = [
        record("a", 0.5, setting="x"),
        record("b", 0.6, setting="x"),
        record("a", 0.9, setting="y"),
    ]
    found = [(s.setting, s.method) for s in leaderboard(records)]
    assert found == [("x", "b"), ("x", "a"), ("y", "a")]


def test_standings_for_scripts_are_read_as_they_were_written():
    standings = leaderboard(RECORDS)
    assert [from_json(as_json(standing)) for standing in standings] == standings


def test_methods_have_their_published_names():
    assert titled("fedgps_cf rho=0.3") == "FedGPS-CF rho=0.3"
    assert titled("mine.py:Mine") == "mine.py:Mine"


def test_a_trial_from_its_files():
    settings = {"scenario": 2, "seed": 3, "rounds": 20}
    label = Label("fedgps", {"scenario": "2", "alpha": "0.1", "seed": "3"})
    begun = planned(settings, label)
    assert begun.words == "FedGPS, alpha 0.1, scenario 2, seed 3"
    assert begun.is_waiting
    summary = {"rounds_done": 7, "best_accuracy": 0.5, "last_accuracy": 0.4}
    ended = told(begun, {"status": "failed", "summary": summary, "error": "why\nmore"})
    assert (ended.rounds_done, ended.best, ended.last, ended.error) == (7, 0.5, 0.4, "why")
    assert not ended.is_waiting
