"""Sums that do not depend on the order of what is added, nor on who adds it."""

import math
import pickle
from fractions import Fraction

import pytest
import torch

from fedgps_ray.sums import FINER, ExactSum, grids, largest, normalised

SCALES = {
    "alike": [0.01] * 12,
    "tiny": [1e-12] * 12,
    "far apart": [1e-30, 1e-8, 1e-3, 1.0, 50.0, 300.0, 1e4, 1e9, 1e20, 1e30, 0.0, 1e-3],
}


def vectors(dtype, scales, size=200):
    draw = torch.Generator().manual_seed(0)
    return [(torch.randn(size, generator=draw, dtype=torch.float64) * s).to(dtype) for s in scales]


def summed(pairs):
    total = ExactSum()
    for vector, share in pairs:
        total.add(vector, share)
    return total


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scales", SCALES.values(), ids=SCALES)
def test_any_order_and_any_split_give_the_same_bits(dtype, scales):
    shares = normalised([float(n) for n in range(1, 13)])
    pairs = list(zip(vectors(dtype, scales), shares, strict=True))
    whole = summed(pairs).total()
    draw = torch.Generator().manual_seed(1)
    for actors in (1, 2, 3, 5):
        shuffled = [pairs[i] for i in torch.randperm(12, generator=draw).tolist()]
        joined = ExactSum()
        for actor in reversed(range(actors)):
            joined.join(pickle.loads(pickle.dumps(summed(shuffled[actor::actors]))))
        assert torch.equal(joined.total(), whole)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scales", SCALES.values(), ids=SCALES)
def test_a_sum_is_as_good_as_exact_arithmetic_rounded_once(dtype, scales):
    shares = normalised([float(n) for n in range(1, 13)])
    given = vectors(dtype, scales, size=20)
    result = summed(zip(given, shares, strict=True)).total()
    assert result.dtype == dtype
    peak = max(largest(vector) for vector in given)
    allowed = peak * (2.0**-30 if dtype == torch.float32 else 2.0**-52)
    for place, value in enumerate(result.tolist()):
        exact = sum(
            Fraction(p) * Fraction(v[place].item()) for p, v in zip(shares, given, strict=True)
        )
        rounding = abs(value) * torch.finfo(dtype).eps
        assert abs(Fraction(value) - exact) <= Fraction(allowed) + Fraction(rounding)


def test_halves_are_rounded_alike_whatever_was_added_before():
    # 2^-45 lies between two points of its grid, so that the even one is taken: 0, and not 2^-44
    half = torch.tensor([1.0, 2.0**-44])
    odd = torch.tensor([1.0, 2.0**-43])
    both = [(half, 0.5), (odd, 0.5)]
    assert torch.equal(summed(both).total(), summed(both[::-1]).total())
    assert summed(both).total()[1].item() == 2.0**-44


def test_a_large_vector_is_added_block_by_block():
    draw = torch.Generator().manual_seed(0)
    long = torch.randn(200_000, generator=draw)
    total = summed([(long, 0.25), (-long, 0.75)]).total()
    torch.testing.assert_close(total, -0.5 * long, rtol=0, atol=1e-7)


@pytest.mark.parametrize(
    ("peak", "exponent"),
    [(0.0, -44), (127.9, -44), (128.0, -24), (2.0**-13, -44), (2.0**-14, -64), (1e-300, -844)],
)
def test_the_grid_follows_from_the_largest_value(peak, exponent):
    assert grids(peak, torch.float32) == [exponent]
    assert grids(peak, torch.float64) == [exponent, exponent - FINER]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_comes_through(bad):
    spoiled = torch.tensor([1.0, bad])
    assert not math.isfinite(largest(spoiled))
    assert not summed([(spoiled, 0.5), (torch.ones(2), 0.5)]).total().isfinite().all()


def test_numbers_too_large_for_any_grid_count_as_infinite():
    huge = torch.tensor([1e306], dtype=torch.float64)
    assert not summed([(huge, 0.5), (huge, 0.5)]).total().isfinite().any()


def test_the_only_vector_that_counts_is_not_rounded():
    small = torch.tensor([1.0, 2.0**-60])
    total = summed([(small, 1.0), (torch.ones(2), 0.0)]).total()
    assert torch.equal(total, small)
    total.zero_()
    assert small[0] == 1


def test_shapes_survive_also_without_any_number():
    for shape in [(), (2, 3), (0,)]:
        vector = torch.ones(shape)
        total = pickle.loads(pickle.dumps(summed([(vector, 0.5), (vector, 0.5)]))).total()
        assert torch.equal(total, vector)
