"""The study's arithmetic, on numbers that fit on paper."""

import itertools

import numpy as np
import pandas as pd
import pytest

from fedgps_ray.errors import UserError
from fedgps_ray.experiments.evidence.effects import (
    Difference,
    Question,
    answer,
    answers,
    difference,
    levels,
    main_effects,
    paired,
)


def scores(**by_variant):
    rows = [
        {"variant": variant, "scenario": draw, "seed": 0, "score": score}
        for variant, given in by_variant.items()
        for draw, score in enumerate(given)
    ]
    return pd.DataFrame(rows)


def test_a_paired_difference_by_hand():
    # differences 1, 2, 3: mean 2, error 1/sqrt(3), t(0.975, 2) = 4.30265: 2 -+ 2.48414
    found = paired(scores(a=[11, 22, 33], b=[10, 20, 30]), "a", "b")
    assert found.mean == pytest.approx(2.0)
    assert (found.low, found.high) == pytest.approx((-0.48414, 4.48414), abs=1e-5)
    assert found.p == pytest.approx(0.07418, abs=1e-5)  # t = 3.4641 with 2 degrees of freedom
    assert found.draws == 3


def test_only_draws_that_both_have_are_compared():
    assert paired(scores(a=[11, 22, 33, 99], b=[10, 20, 30]), "a", "b").draws == 3


def test_a_missing_variant_and_a_single_draw_are_refused():
    with pytest.raises(UserError, match="no results of c"):
        paired(scores(a=[1, 2]), "a", "c")
    with pytest.raises(UserError, match="two draws or more, got 1"):
        difference(np.array([1.0]))


def test_two_trials_of_the_same_draw_are_not_averaged():
    both = pd.concat([scores(a=[1, 2], b=[3, 4]), scores(a=[50])])
    with pytest.raises(UserError, match="1 draws of a or b have more than one trial"):
        paired(both, "a", "b")


@pytest.mark.parametrize(
    ("mean", "high", "p", "expected"),
    [
        (2.0, 3.0, 0.01, "supported"),
        (0.5, 0.8, 0.01, "refuted"),  # real, but too small to be of interest
        (0.5, 1.5, 0.01, "open"),
        (2.0, 5.0, 0.2, "open"),
        (-2.0, -1.0, 0.01, "refuted"),
    ],
)
def test_the_rule_of_the_answer(mean, high, p, expected):
    assert answer(Difference(mean, 0.0, high, p, 6), p) == expected


def test_p_values_are_corrected_for_the_number_of_questions():
    table = scores(a=[11, 22, 33], b=[10, 20, 30], c=[9, 17, 28])
    found = answers(table, [Question("x", "a", "b"), Question("y", "b", "c")])
    smallest = found["p"].min()
    assert found["holm_p"].min() == pytest.approx(2 * smallest)
    assert list(found["claim"]) == ["x", "y"]


def test_main_effects_of_a_full_factorial_by_hand():
    # y = 10 + 3 a - 1 b, and 5 more in block 2: from first to second value 6 and -2
    rows = list(itertools.product((-1, 1), (-1, 1), (1, 2)))
    frame = pd.DataFrame(rows, columns=["a", "b", "block"])
    wiggle = np.array([0.1, -0.1, -0.1, 0.1, -0.1, 0.1, 0.1, -0.1])  # seen by no effect
    y = 10 + 3 * frame["a"] - frame["b"] + 5 * (frame["block"] == 2) + wiggle
    found = main_effects(frame[["a", "b"]], y, frame["block"]).set_index("switch")
    assert found["effect"].to_dict() == pytest.approx({"a": 6.0, "b": -2.0})
    # 8 * 0.01 left over 4 degrees of freedom; 2 * t(0.975, 4) * sqrt(0.02 / 8)
    assert found.loc["a", "high"] == pytest.approx(6 + 2 * 2.776445 * 0.05, abs=1e-5)


def test_effects_that_cannot_be_told_apart_are_refused():
    frame = pd.DataFrame({"a": [1, 1, -1, -1], "b": [1, 1, -1, -1]})
    with pytest.raises(UserError, match="cannot be told apart"):
        main_effects(frame, pd.Series([1.0, 2, 3, 4]), pd.Series([1, 1, 1, 1]))


def test_levels_are_signs_and_unknown_values_are_refused():
    frame = pd.DataFrame({"w": [1.0, 0.1]})
    assert list(levels(frame, {"w": (1.0, 0.1)})["w"]) == [-1, 1]
    with pytest.raises(UserError, match="w has values"):
        levels(frame, {"w": (1.0, 0.5)})
