"""Parcels: large tensors are lent, small ones copied, and opening copies nothing."""

import numpy as np
import pytest
import torch

from fedgps_ray.cluster.parcels import WORTH_LENDING, Leaving, key, loans_of, open_parcel, wrap
from fedgps_ray.methods import fedavg, fedgps_cf
from fedgps_ray.tensors import Params

LARGE = WORTH_LENDING // 4  # numbers of four bytes
SMALL = LARGE - 1


def message(size=LARGE):
    return fedavg.Message(Params(torch.arange(float(size)), torch.ones(3)))


def opened_message(size=LARGE):
    """Return a message as an actor sees it: opened from a parcel."""
    return open_parcel(wrap(message(size)))


def memory_of(received, delta):
    return fedgps_cf.Memory(4, 0.25, delta, received)


def addresses(*tensors):
    return [tensor.data_ptr() for tensor in tensors]


def test_value_comes_back_equal():
    opened = opened_message().value
    assert type(opened) is fedavg.Message
    assert torch.equal(opened.params.weights, torch.arange(float(LARGE)))
    assert torch.equal(opened.params.buffers, torch.ones(3))


@pytest.mark.parametrize("value", [None, 3, ["a", (1.5, None)], {"loss": 0.5}])
def test_value_without_tensors_has_no_arrays(value):
    parcel = wrap(value)
    assert (parcel.arrays, parcel.loans) == ([], [])
    assert open_parcel(parcel) == (value, [])


def test_neither_wrapping_nor_opening_copies():
    weights = torch.arange(float(LARGE))
    parcel = wrap([weights])
    opened = open_parcel(parcel)
    assert parcel.arrays[0].ctypes.data == weights.data_ptr()
    assert addresses(*opened.value, *opened.tensors) == 2 * addresses(weights)


@pytest.mark.filterwarnings("error")
def test_read_only_array_opens_without_copy_or_warning():
    parcel = wrap(torch.ones(4))
    parcel.arrays[0].flags.writeable = False
    opened = open_parcel(parcel).value
    assert opened.data_ptr() == parcel.arrays[0].ctypes.data
    assert float(opened.sum()) == 4


def test_only_tensors_worth_it_are_offered():
    just, below = torch.zeros(LARGE), torch.zeros(SMALL)
    assert loans_of([below, just], lender=7) == {key(just): (7, 1)}


def test_size_counts_in_bytes_not_in_numbers():
    wide, flags = torch.zeros(LARGE // 2, dtype=torch.float64), torch.zeros(LARGE).bool()
    assert list(loans_of([wide, flags], lender=0)) == [key(wide)]


def test_memory_lends_the_received_model_and_owns_its_update():
    received = opened_message()
    delta = torch.ones(LARGE)
    kept = memory_of(received.value.params.weights, delta)
    parcel = wrap(kept, loans_of(received.tensors, 0))
    assert [array.nbytes for array in parcel.arrays] == [4 * LARGE]
    assert parcel.arrays[0].ctypes.data == delta.data_ptr()
    assert parcel.loans == [(0, 0)]
    back = open_parcel(parcel, lambda which: received.tensors).value
    assert (back.round, back.share) == (4, 0.25)
    assert addresses(back.received, back.delta) == addresses(kept.received, delta)


def test_small_received_model_is_copied_into_the_memory():
    received = opened_message(SMALL)
    parcel = wrap(memory_of(received.value.params.weights, None), loans_of(received.tensors, 0))
    assert parcel.loans == []
    assert [array.nbytes for array in parcel.arrays] == [4 * SMALL]


def test_changed_copy_of_a_lent_tensor_is_not_taken_for_it():
    received = opened_message()
    weights = received.value.params.weights
    parcel = wrap([weights + 1, weights[1:], weights.double()], loans_of(received.tensors, 0))
    assert parcel.loans == []
    shifted, rest, wide = open_parcel(parcel).value
    assert torch.equal(shifted, weights + 1)
    assert torch.equal(rest, weights[1:])
    assert torch.equal(wide, weights.double())


def test_same_address_in_another_shape_is_not_taken_for_it():
    received = opened_message()
    square = received.value.params.weights[: LARGE // 2 * 2].view(2, -1)
    assert wrap(square, loans_of(received.tensors, 0)).loans == []


def test_same_address_and_shape_with_other_strides_is_not_taken_for_it():
    lent, numbers = torch.arange(4.0).view(2, 2), torch.arange(10.0)
    assert wrap(lent.t(), {key(lent): (0, 0)}).loans == []
    bring = Leaving()
    first, second = (open_parcel(wrap(v, bring=bring)).value for v in (numbers[:5], numbers[::2]))
    assert (first.tolist(), second.tolist()) == ([0, 1, 2, 3, 4], [0, 2, 4, 6, 8])


def test_several_lenders_are_told_apart():
    one, two = torch.zeros(LARGE), torch.ones(LARGE)
    lent = {**loans_of([one], 0), **loans_of([torch.zeros(1), two], 1)}
    parcel = wrap([two, one, two], lent)
    assert (parcel.arrays, parcel.loans) == ([], [(1, 1), (0, 0), (1, 1)])
    lenders = [[one], [torch.zeros(1), two]]
    assert addresses(*open_parcel(parcel, lenders.__getitem__).value) == addresses(two, one, two)


def test_gradients_and_strides_do_not_travel():
    tracked = torch.ones(2, 3, requires_grad=True)
    turned = torch.arange(6.0).view(2, 3).T
    back = open_parcel(wrap([tracked, turned])).value
    assert not back[0].requires_grad
    assert torch.equal(back[1], turned)
    assert back[1].is_contiguous()


@pytest.mark.parametrize("dtype", [torch.float64, torch.int32, torch.bool, torch.uint8])
def test_types_of_numbers_stay(dtype):
    value = torch.tensor([0, 1, 1]).to(dtype)
    parcel = wrap(value)
    assert isinstance(parcel.arrays[0], np.ndarray)
    assert torch.equal(open_parcel(parcel).value, value)
    assert open_parcel(parcel).value.dtype == dtype


@pytest.mark.parametrize("value", [torch.zeros(0), torch.tensor(3.0), torch.zeros(2, 0, 3)])
def test_empty_tensors_and_single_numbers_keep_their_shape(value):
    back = open_parcel(wrap(value)).value
    assert back.shape == value.shape
    assert torch.equal(back, value)
