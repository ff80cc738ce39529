"""Losses against values that fit on paper."""

import math

import pytest
import torch

from fedgps_ray.training.losses import (
    confidence_gap,
    decorrelation,
    linear_cka,
    supervised_contrast,
)


def table(*rows):
    return torch.tensor(rows, dtype=torch.float64)


def column(*values):
    return torch.tensor(values, dtype=torch.float64)[:, None]


def random(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


# --- contrast ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("labels", "expected"), [([0, 1, 0, 1], 0.5514447), ([0, 1, 2, 3], 0.0)])
def test_contrast_needs_matched_labels(labels, expected):
    z = table((1.0, 0.0), (0.0, 1.0), (1.0, 0.0), (0.0, 1.0))
    loss = supervised_contrast(z, torch.tensor(labels), 1.0)
    assert float(loss) == pytest.approx(expected, abs=1e-7)


# --- decorrelation ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "code", "paper"),
    [
        # standardised +-1/sqrt(2) * ... : off-diagonal of A is n - 1 = 1; 1^2 / n = 0.5
        ([(1.0, 1.0), (-1.0, -1.0)], 0.5, 1.0),
        ([(1.0, 1.0), (1.0, -1.0), (-1.0, 1.0), (-1.0, -1.0)], 0.0, 0.5),
        # correlation 0.8660254: A = 2 * 0.8660254 = 1.7320508; 3 / 3 = 1; (2 + 2 * 0.75) / 4
        ([(0.0, 0.0), (1.0, 1.0), (2.0, 1.0)], 1.0, 0.875),
    ],
)
def test_decorrelation_in_both_scalings(rows, code, paper):
    assert float(decorrelation(table(*rows))) == pytest.approx(code, abs=1e-7)
    assert float(decorrelation(table(*rows), "paper")) == pytest.approx(paper, abs=1e-7)


def test_perfect_correlation_grows_with_the_batch():
    one = random(64, 1)
    assert float(decorrelation(torch.cat([one, 2 * one], dim=1))) == pytest.approx(63**2 / 64)


def test_decorrelation_of_one_example_or_one_feature_is_zero():
    assert float(decorrelation(table((1.0, 2.0)))) == 0.0
    assert float(decorrelation(column(1.0, 2.0))) == 0.0


def test_constant_features_give_no_correlation_and_a_finite_gradient():
    z = torch.full((4, 3), 2.0, requires_grad=True)
    value = decorrelation(z)
    value.backward()
    assert float(value.detach()) == 0.0
    assert z.grad.isfinite().all()


def test_decorrelation_gradient_flows_through_mean_and_variance():
    z = random(5, 3).requires_grad_()
    assert torch.autograd.gradcheck(decorrelation, (z,))


# --- calibration ------------------------------------------------------------------------------


def test_gap_below_accuracy_counts_as_well():
    logits = table((0.9, 0.1), (0.6, 0.4)).log()
    assert float(confidence_gap(logits, torch.tensor([0, 0]))) == pytest.approx(0.25)


def test_only_confidence_carries_the_gradient():
    # one example, wrong: the gap is its top probability p = 0.6, d p / d logits = p (1 - p) (1, -1)
    logits = table((0.6, 0.4)).log().requires_grad_()
    confidence_gap(logits, torch.tensor([1])).backward()
    torch.testing.assert_close(logits.grad, table((0.24, -0.24)))


def test_no_gradient_where_confidence_equals_accuracy():
    logits = torch.zeros(2, 2, requires_grad=True)  # confidence 0.5 exactly, one of two right
    confidence_gap(logits, torch.tensor([0, 1])).backward()
    assert torch.equal(logits.grad, torch.zeros(2, 2))


# --- alignment of features --------------------------------------------------------------------


def test_alignment_is_the_ratio_of_feature_products():
    x, y = random(7, 4), random(7, 3, seed=1)
    cx, cy = x - x.mean(dim=0), y - y.mean(dim=0)
    expected = (cy.T @ cx).norm() ** 2 / ((cx.T @ cx).norm() * (cy.T @ cy).norm())
    torch.testing.assert_close(linear_cka(x, y), expected)
    assert 0.01 < float(expected) < 0.99


def test_alignment_does_not_see_rotation_scale_and_shift():
    x = random(6, 2)
    turn = table((math.cos(1), -math.sin(1)), (math.sin(1), math.cos(1)))
    assert float(linear_cka(x, 3 * x @ turn + 5)) == pytest.approx(1.0)


def test_alignment_of_two_rows_is_always_one():
    assert float(linear_cka(random(2, 4), random(2, 4, seed=1))) == pytest.approx(1.0)


@pytest.mark.parametrize("rows", [1, 4])
def test_alignment_without_variation_is_zero_not_undefined(rows):
    same = torch.ones(rows, 3, dtype=torch.float64)
    assert float(linear_cka(same, random(rows, 3))) == 0.0
