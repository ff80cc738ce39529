import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedgps_ray.training.losses import supervised_contrast

SIZES = st.integers(2, 12)
SEEDS = st.integers(0, 1000)


def drawn(size, seed, num_labels=3, dim=5):
    generator = torch.Generator().manual_seed(seed)
    z = torch.randn(size, dim, generator=generator, dtype=torch.float64)
    return z, torch.randint(num_labels, (size,), generator=generator)


def rows(*values):
    return torch.tensor(values, dtype=torch.float64)


def by_loops(z, labels, temperature):
    z = [row / row.norm() for row in z]
    size, total = len(z), 0.0
    for i in range(size):
        s = [float(z[i] @ z[j]) / temperature for j in range(size)]
        log_all = math.log(sum(math.exp(s[a]) for a in range(size) if a != i))
        positives = [j for j in range(size) if j != i and labels[j] == labels[i]]
        if positives:
            total -= sum(s[j] - log_all for j in positives) / len(positives)
    return total / size


# --- vectors --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("temperature", "expected", "tolerance"),
    [
        # anchors 0 and 1: log(e^1 + e^0) - 1 = .3132617, anchor 2: nothing; two thirds of it
        (1.0, 0.2088411, 1e-7),
        # log(1 + e^(-1/.07)) = 6.24875e-7, two thirds of it
        (0.07, 4.16583e-7, 1e-12),
    ],
)
def test_two_equal_rows_and_another(temperature, expected, tolerance):
    z, labels = rows((1, 0), (1, 0), (0, 1)), torch.tensor([0, 0, 1])
    got = supervised_contrast(z, labels, temperature)
    assert got.item() == pytest.approx(expected, abs=tolerance)


def test_matched_labels_of_real_and_virtual_rows():
    # each anchor: similarities 0, 1, 0 with its positive at 1: log(e + 2) - 1
    z = rows((1, 0), (0, 1), (1, 0), (0, 1))
    got = supervised_contrast(z, torch.tensor([0, 1, 0, 1]), 1.0)
    assert got.item() == pytest.approx(0.5514447, abs=1e-7)
    assert supervised_contrast(z, torch.tensor([0, 1, 2, 3]), 1.0).item() == 0.0


def test_several_positives_are_averaged_inside_the_row():
    # three equal labels, rows at right angles: s = 0, log 2 for each of the two positives
    got = supervised_contrast(torch.eye(3, dtype=torch.float64), torch.tensor([5, 5, 5]), 1.0)
    assert got.item() == pytest.approx(math.log(2))


def test_the_default_temperature_is_that_of_the_paper():
    z, labels = drawn(8, 0)
    assert supervised_contrast(z, labels) == supervised_contrast(z, labels, 0.07)
    assert supervised_contrast(z, labels) != supervised_contrast(z, labels, 0.1)


# --- laws -----------------------------------------------------------------------------------------


@settings(deadline=None)
@given(SIZES, SEEDS, st.sampled_from([0.07, 0.5, 1.0]))
def test_it_is_the_formula_written_as_loops(size, seed, temperature):
    z, labels = drawn(size, seed)
    got = supervised_contrast(z, labels, temperature)
    assert got.item() == pytest.approx(by_loops(z, labels, temperature), rel=1e-10, abs=1e-12)


@settings(deadline=None)
@given(SIZES, SEEDS)
def test_the_order_of_the_rows_does_not_matter(size, seed):
    z, labels = drawn(size, seed)
    order = torch.randperm(size, generator=torch.Generator().manual_seed(seed))
    got = supervised_contrast(z[order], labels[order])
    assert got.item() == pytest.approx(supervised_contrast(z, labels).item(), rel=1e-10, abs=1e-12)


@settings(deadline=None)
@given(SIZES, SEEDS)
def test_all_labels_different_give_nothing(size, seed):
    z, _ = drawn(size, seed)
    assert supervised_contrast(z, torch.arange(size)).item() == 0.0


@settings(deadline=None)
@given(SEEDS)
def test_two_rows_of_one_label_give_nothing(seed):
    # the positive is the only contrast: s - log exp(s)
    z, _ = drawn(2, seed)
    assert supervised_contrast(z, torch.tensor([4, 4])).item() == pytest.approx(0.0, abs=1e-12)


@settings(deadline=None)
@given(SIZES, SEEDS, st.floats(1e-3, 1e3))
def test_the_length_of_a_row_does_not_matter(size, seed, factor):
    z, labels = drawn(size, seed)
    before = supervised_contrast(z, labels).item()
    z[seed % size] *= factor
    assert supervised_contrast(z, labels).item() == pytest.approx(before, rel=1e-8, abs=1e-12)


@settings(deadline=None)
@given(SEEDS)
def test_the_names_of_the_labels_do_not_matter(seed):
    z, labels = drawn(8, seed)
    assert supervised_contrast(z, 7 - 2 * labels) == supervised_contrast(z, labels)


# --- gradients ------------------------------------------------------------------------------------


@pytest.mark.parametrize("labels", [[0, 0, 1, 1, 2], [0, 0, 0, 0, 0], [0, 1, 2, 3, 0]])
def test_the_gradient_is_that_of_finite_differences(labels):
    z, _ = drawn(5, 3)
    z.requires_grad_()
    y = torch.tensor(labels)
    assert torch.autograd.gradcheck(lambda values: supervised_contrast(values, y, 0.5), z)


def test_one_row_alone_gives_nothing_and_no_undefined_gradient():
    z = rows((3.0, 4.0)).requires_grad_()
    loss = supervised_contrast(z, torch.tensor([0]))
    torch.autograd.backward(loss)
    assert loss.item() == 0.0
    assert z.grad.tolist() == [[0.0, 0.0]]


def test_rows_without_a_positive_still_repel_the_others():
    z = rows((1, 0), (1, 0.1), (1, 1)).requires_grad_()
    torch.autograd.backward(supervised_contrast(z, torch.tensor([0, 0, 1]), 1.0))
    assert z.grad[2].norm() > 0.01


def test_large_similarities_do_not_overflow():
    # 1 / 1e-3 = 1000, and exp(1000) is infinite even in float64
    z, labels = rows((1, 0), (1, 0), (0, 1)).float(), torch.tensor([0, 0, 1])
    assert supervised_contrast(z, labels, 1e-3).item() == 0.0
    far = supervised_contrast(z, torch.tensor([0, 1, 0]), 1e-3)
    # anchor 0: positive at 0, negative at 1000: 1000; anchor 2: both at 0: log 2; mean of three
    assert far.item() == pytest.approx((1000 + math.log(2)) / 3)
