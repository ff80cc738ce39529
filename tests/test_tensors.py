import hashlib
import itertools
import math
from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedgps_ray import tensors
from fedgps_ray.errors import UserError
from fedgps_ray.tensors import Params, Piece, Update

LAYOUT = tensors.pieces([("a", (2, 3)), ("b", ()), ("c", (4,))])
SHAPES = st.lists(st.lists(st.integers(0, 4), max_size=3), max_size=6)


def vector(*values, dtype=torch.float64):
    return torch.tensor(values, dtype=dtype)


# --- heads ----------------------------------------------------------------------------------------


def test_the_head_is_told_by_its_role():
    named = tensors.pieces([("body.weight", (2, 2)), ("fc.weight", (3, 2)), ("fc.bias", (3,))])
    layout = tensors.Layout(named, (), "fc")
    assert (layout.head_weight, layout.head_bias) == (named[1], named[2])


@pytest.mark.parametrize("head", ["head", "norm", None])
def test_a_layout_without_a_linear_head_says_so(head):
    layout = tensors.Layout(
        tensors.pieces([("norm.weight", (2,)), ("None.weights", (2, 2))]), (), head
    )
    assert layout.head_bias is None
    with pytest.raises(UserError, match="output comes from a linear layer"):
        _ = layout.head_weight


# --- layout ---------------------------------------------------------------------------------------


def test_pieces_lie_one_after_the_other():
    # 2 * 3 = 6 numbers, then one (a scalar has the empty shape), then 4
    assert (Piece("a", (2, 3), 0), Piece("b", (), 6), Piece("c", (4,), 7)) == LAYOUT
    assert [piece.end for piece in LAYOUT] == [6, 7, 11]


def test_no_shapes_give_no_pieces():
    assert tensors.pieces([]) == ()


@settings(deadline=None)
@given(SHAPES)
def test_pieces_leave_no_gap(shapes):
    laid = tensors.pieces([(str(i), shape) for i, shape in enumerate(shapes)])
    ends = [piece.end for piece in laid]
    assert [piece.start for piece in laid] == [0, *ends][: len(laid)]
    assert [end - piece.start for end, piece in zip(ends, laid, strict=True)] == [
        math.prod(shape) for shape in shapes
    ]


def test_views_have_the_names_shapes_and_values_of_their_pieces():
    named = tensors.views(torch.arange(11), LAYOUT)
    assert list(named) == ["a", "b", "c"]
    assert named["a"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert named["b"].shape == ()
    assert named["b"].item() == 6
    assert named["c"].tolist() == [7, 8, 9, 10]


def test_views_share_memory_both_ways():
    flat = torch.zeros(11)
    named = tensors.views(flat, LAYOUT)
    flat[4] = 5.0
    assert named["a"][1, 1] == 5.0
    named["c"][-1] = 9.0
    named["b"].fill_(2.0)
    assert flat.tolist() == [0, 0, 0, 0, 5, 0, 2, 0, 0, 0, 9]


# --- mean -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shares", "expected"),
    [
        ((1, 3), (4.0, 3.0)),  # (1*1 + 3*5)/4 , (1*0 + 3*4)/4
        ((1.0, 1.0), (3.0, 2.0)),  # (1+5)/2 , (0+4)/2
        ((0, 2), (5.0, 4.0)),  # a share of nothing leaves the other alone
    ],
)
def test_mean_by_shares(shares, expected):
    models = [vector(1.0, 0.0), vector(5.0, 4.0)]
    assert tensors.mean(models, shares).tolist() == list(expected)


def test_the_order_does_not_change_a_mean():
    # added up in float32, 1 is lost beside 1e8: ((1e8 + 1) - 1e8) / 4 = 0
    one, big, minus = (vector(v, dtype=torch.float32) for v in (1.0, 1e8, -1e8))
    nothing = torch.zeros(1)
    for vectors in itertools.permutations([big, minus, one, nothing]):
        assert tensors.mean(vectors, [1, 1, 1, 1]).item() == 0.25


@pytest.mark.parametrize("shares", [[1.0, -1.0], [0.0, 0.0], [math.nan, 1.0]])
def test_a_mean_needs_shares_that_count(shares):
    with pytest.raises(ValueError, match="shares"):
        tensors.mean([vector(1.0), vector(2.0)], shares)


def test_mean_of_one_is_that_one_bit_for_bit_and_a_new_tensor():
    only = torch.randn(100, generator=torch.Generator().manual_seed(0))
    result = tensors.mean([only], [37])
    assert torch.equal(result, only)
    result.zero_()
    assert only.abs().min() > 0


def test_mean_leaves_its_inputs_alone():
    models = [vector(1.0, 0.0), vector(5.0, 4.0)]
    tensors.mean(models, [1, 3])
    assert [m.tolist() for m in models] == [[1.0, 0.0], [5.0, 4.0]]


@pytest.mark.parametrize("shares", [[1.0], [1.0, 1.0, 1.0]])
def test_mean_refuses_shares_that_do_not_match(shares):
    with pytest.raises(ValueError, match="zip"):
        tensors.mean([vector(1.0), vector(2.0)], shares)


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.floats(-10, 10), st.integers(1, 100)), min_size=1, max_size=6),
    st.integers(1, 1000),
)
def test_mean_lies_between_and_does_not_change_with_the_scale_of_the_shares(pairs, factor):
    values = [vector(value) for value, _ in pairs]
    shares = [share for _, share in pairs]
    result = tensors.mean(values, shares).item()
    assert min(v.item() for v in values) - 1e-9 <= result <= max(v.item() for v in values) + 1e-9
    scaled = tensors.mean(values, [factor * share for share in shares]).item()
    assert scaled == pytest.approx(result, abs=1e-9)


# --- norms ----------------------------------------------------------------------------------------


def test_norm_by_hand():
    assert tensors.norm(vector(3.0, 4.0, 12.0)) == 13.0


def test_norm_is_accumulated_in_float64():
    # the squares, near 1e-59, are nothing in float32, whose smallest number is near 1e-45
    assert tensors.norm(vector(3e-30, 4e-30, dtype=torch.float32)) == pytest.approx(5e-30, rel=1e-6)


def test_sum_of_norms_by_hand():
    layout = tensors.pieces([("a", (2,)), ("b", (1, 1)), ("c", (2,))])
    # |(3, 4)| + |-2| + |(0, 0)| = 5 + 2 + 0, while the norm of all five is sqrt(29)
    assert tensors.sum_of_norms(vector(3.0, 4.0, -2.0, 0.0, 0.0), layout) == 7.0


def test_sum_of_norms_of_one_piece_is_the_norm():
    whole = tensors.pieces([("all", (3,))])
    assert tensors.sum_of_norms(vector(3.0, 4.0, 12.0), whole) == 13.0


# --- updates --------------------------------------------------------------------------------------


def test_moved_is_the_change_of_the_weights_and_the_last_buffers():
    start = Params(vector(1.0, 2.0), vector(10.0))
    end = Params(vector(4.0, 0.0), vector(11.0))
    update = tensors.moved(start, end)
    assert update.delta.tolist() == [3.0, -2.0]
    assert update.buffers.tolist() == [11.0]


def test_step_scales_the_move_and_takes_the_buffers_over():
    params = Params(vector(1.0, 2.0), vector(10.0))
    update = Update(vector(3.0, -2.0), vector(11.0))
    assert tensors.step(params, update).weights.tolist() == [4.0, 0.0]
    half = tensors.step(params, update, 0.5)
    assert half.weights.tolist() == [2.5, 1.0]
    assert half.buffers.tolist() == [11.0]  # not 10.5: statistics are never extrapolated
    assert params.weights.tolist() == [1.0, 2.0]


# --- payloads -------------------------------------------------------------------------------------


class Letter(NamedTuple):
    params: Params
    extra: object


def test_leaves_in_order_through_tuples_lists_dicts_and_named_tuples():
    nested = Letter(Params(1, 2), {"x": [3, (4, None)], "y": "five"})
    assert list(tensors.leaves(nested)) == [1, 2, 3, 4, None, "five"]
    assert list(tensors.leaves(6)) == [6]
    assert list(tensors.leaves(())) == []


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        (torch.zeros(3, dtype=torch.float32), 12),
        (torch.zeros(3, dtype=torch.float64), 24),
        (torch.zeros(3, dtype=torch.int32), 12),
        (torch.zeros(3, dtype=torch.bool), 3),
        (torch.zeros(1000, 1000, device="meta"), 4_000_000),
        (7, 8),
        (7.5, 8),
        (True, 8),  # a bool is a number to Python
        (None, 0),
        ("a long story", 0),
        ((), 0),
    ],
)
def test_num_bytes(payload, expected):
    assert tensors.num_bytes(payload) == expected


def test_num_bytes_adds_up_a_message():
    # 5 * 4 + 2 * 4 + 3 * 1 + 8 + 8
    params = Params(torch.zeros(5), torch.zeros(2))
    letter = Letter(params, {"known": torch.zeros(3, dtype=torch.bool), "n": [1, 0.5], "who": "x"})
    assert tensors.num_bytes(letter) == 47


def test_a_view_weighs_what_it_shows():
    assert tensors.num_bytes(torch.zeros(1000)[:10]) == 40


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_one_value_that_is_not_finite_is_found_anywhere(bad):
    payload = Letter(Params(torch.zeros(4), torch.zeros(2)), [torch.zeros(3)])
    assert tensors.all_finite(payload)
    for leaf in tensors.leaves(payload):
        leaf[-1] = bad
        assert not tensors.all_finite(payload)
        leaf[-1] = 0.0


def test_whole_numbers_none_and_text_are_finite():
    assert tensors.all_finite((torch.arange(3), torch.tensor([True]), None, "nan"))


def test_sha256_is_the_digest_of_the_bytes():
    values = np.array([1.0, -2.5], dtype="<f4")
    assert tensors.sha256(torch.from_numpy(values)) == hashlib.sha256(values.tobytes()).hexdigest()


def test_sha256_sees_every_bit_and_only_the_values():
    flat = torch.arange(6, dtype=torch.float32)
    assert tensors.sha256(flat[::2]) == tensors.sha256(torch.tensor([0.0, 2.0, 4.0]))
    assert tensors.sha256(torch.tensor([0.0])) != tensors.sha256(torch.tensor([-0.0]))
    near = torch.nextafter(flat, torch.tensor(9.0))
    assert tensors.sha256(near) != tensors.sha256(flat)


def test_sha256_takes_a_vector_that_needs_a_gradient():
    flat = torch.ones(3)
    assert tensors.sha256(flat.clone().requires_grad_()) == tensors.sha256(flat)
