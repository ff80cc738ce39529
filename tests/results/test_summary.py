"""The figures that sum up a trial, by hand."""

import pytest

from fedgps_ray.results.summary import summary

COSTS = {"bytes_up": 10, "bytes_down": 20, "gradient_evaluations": 3}


def row(number, accuracy, **others):
    return {
        "round": number,
        "accuracy": accuracy,
        "weights_sha256": f"hash {number}",
        "train_seconds": 1.5,
        "evaluate_seconds": 0.25,
        **COSTS,
        **others,
    }


def test_three_rounds():
    result = summary([row(1, 0.2), row(2, 0.8), row(3, 0.5)])
    assert result == {
        "rounds_done": 3,
        "best_accuracy": 0.8,
        "best_round": 2,
        "last_accuracy": 0.5,
        "last_ten_accuracy": pytest.approx(0.5),  # (.2 + .8 + .5) / 3
        "bytes_up": 30,
        "bytes_down": 60,
        "gradient_evaluations": 9,
        "train_seconds": 4.5,
        "evaluate_seconds": 0.75,
        "weights_sha256": "hash 3",
    }


def test_the_late_mean_is_over_the_last_ten():
    # two rounds of 1 that do not count, then 0, .1, ..., .9 with the mean .45
    rows = [row(1, 1.0), row(2, 1.0)] + [row(3 + k, k / 10) for k in range(10)]
    assert summary(rows)["last_ten_accuracy"] == pytest.approx(0.45)


def test_the_first_of_equal_rounds_is_the_best():
    assert summary([row(1, 0.2), row(2, 0.7), row(3, 0.7)])["best_round"] == 2


def test_rounds_that_were_not_tested_cost_but_do_not_score():
    result = summary([row(1, None), row(2, 0.4), row(3, None)])
    assert (result["rounds_done"], result["best_round"], result["last_accuracy"]) == (3, 2, 0.4)
    assert (result["last_ten_accuracy"], result["bytes_up"]) == (0.4, 30)
    assert result["weights_sha256"] == "hash 3"


def test_a_round_that_diverged_counts_for_nothing():
    result = summary([row(1, 0.2), {"round": 2}])
    assert result == summary([row(1, 0.2)])


@pytest.mark.parametrize("rows", [[], [{"round": 1}]])
def test_nothing_done(rows):
    assert summary(rows) == {
        "rounds_done": 0,
        "best_accuracy": None,
        "best_round": None,
        "last_accuracy": None,
        "last_ten_accuracy": None,
        "bytes_up": 0,
        "bytes_down": 0,
        "gradient_evaluations": 0,
        "train_seconds": 0,
        "evaluate_seconds": 0,
        "weights_sha256": None,
    }
