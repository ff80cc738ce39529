from math import exp, log, log2

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedgps_ray.data.skew import skew


def test_like_clients_have_no_skew():  # 8 samples of each of 4 classes everywhere
    result = skew(np.full((3, 4), 8))
    assert result == pytest.approx((0, 0, 4, 4, 0, 32, 32))


def test_two_clients_with_a_class_each():
    # overall q = (1/2, 1/2), client p = (1, 0), middle (3/4, 1/4):
    # H(middle) - H(q) / 2 - H(p) / 2 = (2 - 3/4 log2 3) - 1/2 - 0
    result = skew(np.array([[5, 0], [0, 5]]))
    divergence = 1.5 - 0.75 * log2(3)
    assert result == pytest.approx((divergence, divergence, 1, 1, 0, 5, 5))


def test_mean_max_and_min_over_unlike_clients():
    # overall q = (3/4, 1/4); client 0 is q itself, client 1 and 2 are
    # p = (1, 0): middle (7/8, 1/8) and p = (1/2, 1/2): middle (5/8, 3/8)
    result = skew(np.array([[6, 2], [2, 0], [1, 1]]))
    h_q = 2 - 0.75 * log2(3)
    pure = (3 - 7 / 8 * log2(7)) - h_q / 2
    even = (3 - 5 / 8 * log2(5) - 3 / 8 * log2(3)) - (h_q + 1) / 2
    assert result.mean_divergence == pytest.approx((0 + pure + even) / 3)
    assert result.max_divergence == pytest.approx(pure)
    assert result.mean_effective_classes == pytest.approx((exp(h_q * log(2)) + 1 + 2) / 3)
    assert result.min_effective_classes == pytest.approx(1)


def test_size_gini():  # sizes 1 2 5 in order, ranks -2 0 2: (-2 + 10) / (3 * 8)
    result = skew(np.array([[2], [5], [1]]))
    assert result.size_gini == pytest.approx(1 / 3)
    assert (result.smallest_size, result.largest_size) == (1, 5)


def test_client_without_samples_counts_for_sizes_only():  # sizes 0 4, ranks -1 1: 4 / (2 * 4)
    result = skew(np.array([[2, 2], [0, 0]]))
    assert result == pytest.approx((0, 0, 2, 2, 0.5, 0, 4))


def test_no_samples_at_all():
    with pytest.raises(ValueError, match="skew needs at least one sample"):
        skew(np.zeros((2, 3), dtype=np.int64))


tables = st.integers(1, 5).flatmap(
    lambda classes: st.lists(
        st.lists(st.integers(0, 50), min_size=classes, max_size=classes), min_size=1, max_size=6
    ).filter(lambda rows: any(map(any, rows)))
)


@given(tables)
def test_numbers_stay_in_their_ranges(rows):
    result = skew(np.array(rows))
    assert 0 <= result.mean_divergence <= result.max_divergence * (1 + 1e-12) <= 1 + 1e-12
    assert result.min_effective_classes >= 1 - 1e-12
    assert result.mean_effective_classes <= len(rows[0]) * (1 + 1e-12)
    assert 0 <= result.size_gini < 1
