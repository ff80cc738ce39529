"""Values on their way between processes: arrays to be mapped, tensors lent, not copied."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from numpy.typing import NDArray
from torch import Tensor

from fedgps_ray.data.batches import as_tensor
from fedgps_ray.rounds.packing import Skeleton, pack, unpack

WORTH_LENDING = 100_000  # bytes; smaller tensors are copied
Key = tuple[int, torch.Size, torch.dtype]
Loan = tuple[int, int]  # which lender, which of its tensors


class Parcel(NamedTuple):
    """A value: its skeleton, its own arrays, and the tensors it borrows from other parcels."""

    skeleton: Skeleton
    arrays: list[NDArray[Any]]
    loans: list[Loan]


def key(tensor: Tensor) -> Key:
    """Return what tells a tensor apart from all others that are alive."""
    return (tensor.data_ptr(), tensor.shape, tensor.dtype)


def wrap(value: Any, lent: Mapping[Key, Loan] | None = None) -> Parcel:
    """Make a parcel; tensors that are lent are named, not copied."""
    arrays: list[NDArray[Any]] = []
    loans: list[Loan] = []
    lent = lent or {}

    def place(tensor: Tensor) -> list[Any]:
        if (loan := lent.get(key(tensor))) is not None:
            loans.append(loan)
            return ["lent", len(loans) - 1]
        arrays.append(tensor.detach().cpu().contiguous().numpy())
        return ["own", len(arrays) - 1]

    return Parcel(pack(value, place), arrays, loans)


class Opened(NamedTuple):
    """A parcel's value, and its own tensors in the order of its arrays."""

    value: Any
    tensors: list[Tensor]


def open_parcel(parcel: Parcel, lender: Callable[[int], Sequence[Tensor]] | None = None) -> Opened:
    """Return what is in a parcel, without copying; lender gives the tensors of another parcel."""
    tensors = [as_tensor(array) for array in parcel.arrays]

    def tensor(place: list[Any]) -> Tensor:
        own, number = place[0] == "own", int(place[1])
        if own:
            return tensors[number]
        assert lender is not None
        which, index = parcel.loans[number]
        return lender(which)[index]

    return Opened(unpack(parcel.skeleton, tensor), tensors)


def loans_of(tensors: Sequence[Tensor], lender: int) -> dict[Key, Loan]:
    """Return how the larger ones of some tensors can be borrowed."""
    worth = (t.numel() * t.element_size() >= WORTH_LENDING for t in tensors)
    return {
        key(t): (lender, index)
        for index, (t, large) in enumerate(zip(tensors, worth, strict=True))
        if large
    }
