"""Values on their way between processes: arrays to be mapped, tensors lent, not copied."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fedgps_ray.data.arrays import Array
from fedgps_ray.data.batches import as_tensor
from fedgps_ray.rounds.packing import Skeleton, pack, unpack
from fedgps_ray.rounds.worker import Asked, Job

CPU = torch.device("cpu")
WORTH_LENDING = 100_000  # bytes; smaller tensors are copied
Key = tuple[int, torch.Size, tuple[int, ...], torch.dtype]
Loan = tuple[int, int]  # which lender, which of its tensors


class Parcel(NamedTuple):
    """A value: its skeleton, its own arrays, and the tensors it borrows from other parcels."""

    skeleton: Skeleton
    arrays: list[Array]
    loans: list[Loan]


class Slot(NamedTuple):
    """Where a call finds a kept value: right here, or among its arguments like its lenders."""

    parcel: Parcel | int
    lenders: tuple[int, ...]


class EvaluationJob(NamedTuple):
    """Some batches of the test set; the model is a number among the arguments of the call."""

    numbers: tuple[int, ...]
    params: int


class AnswerJob(NamedTuple):
    """A question to one client; what is sent along is among the arguments."""

    client: int
    asked: Asked
    sent: int
    memory: Slot | None


# what an actor does; the message of a Job is a number among the arguments, what it kept are slots
AnyJob = Job | EvaluationJob | AnswerJob


def key(tensor: Tensor) -> Key:
    """Return what tells a tensor apart from all others that are alive."""
    return (tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype)


class Leaving:
    """Brings tensors to the host, each once however many parcels hold it."""

    def __init__(self) -> None:
        # the tensors are kept, so that no other one can come to lie at their addresses
        self._brought: dict[Key, tuple[Tensor, Array]] = {}

    def __call__(self, tensor: Tensor) -> Array:
        """Return the values of a tensor as an array."""
        if key(tensor) not in self._brought:
            self._brought[key(tensor)] = tensor, on_host(tensor)
        return self._brought[key(tensor)][1]


def on_host(tensor: Tensor) -> Array:
    """Return the values of a tensor as an array; one on the CPU is not copied."""
    array: Array = tensor.detach().cpu().contiguous().numpy()
    return array


def wrap(
    value: object,
    lent: Mapping[Key, Loan] | None = None,
    bring: Callable[[Tensor], Array] = on_host,
) -> Parcel:
    """Make a parcel; tensors that are lent are named, not copied."""
    arrays: list[Array] = []
    loans: list[Loan] = []
    lent = lent or {}

    def place(tensor: Tensor) -> list[Any]:
        if (loan := lent.get(key(tensor))) is not None:
            loans.append(loan)
            return ["lent", len(loans) - 1]
        arrays.append(bring(tensor))
        return ["own", len(arrays) - 1]

    return Parcel(pack(value, place), arrays, loans)


class Opened(NamedTuple):
    """A parcel's value, and its own tensors in the order of its arrays."""

    value: Any
    tensors: list[Tensor]


def open_parcel(
    parcel: Parcel,
    lender: Callable[[int], Sequence[Tensor]] | None = None,
    device: torch.device = CPU,
) -> Opened:
    """Return what is in a parcel; lender gives the tensors of another parcel.

    On the CPU nothing is copied. What is opened on a GPU is copied there once, and can be lent.
    """
    tensors = [as_tensor(array).to(device) for array in parcel.arrays]

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
