"""NUCFL (Chu et al.): confidence calibrated locally, the more so the closer to the global model.

No public code exists; what the similarity compares, and when, is our reading and an option.
"""

import copy
from collections.abc import Callable
from typing import Annotated, ClassVar, Literal, NamedTuple

import torch
import torch.nn.functional as F
from pydantic.dataclasses import dataclass
from torch import Tensor

from fedgps_ray.data.batches import Batch
from fedgps_ray.identity import Neutral
from fedgps_ray.methods.base import STRICT, About, Cohort, Work
from fedgps_ray.methods.fedavg import FedAvgWith, Message, State
from fedgps_ray.tensors import Params, Piece, Update, moved
from fedgps_ray.training.gradients import backprop
from fedgps_ray.training.local import Gradient, Local, Sgd, train
from fedgps_ray.training.losses import confidence_gap, linear_cka

MIN_ROWS = 3  # the alignment of fewer rows is 0/0 or always 1


class Memory(NamedTuple):
    """The weights a client received when it last took part (only to compare updates)."""

    received: Tensor


# two matrices with the same rows; a third tensor says whether they count: to read it, the host
# would have to wait for the device
Pair = tuple[Tensor, Tensor] | tuple[Tensor, Tensor, Tensor]


class Similarities:
    """The similarities that the steps of a client used, added up on its device."""

    def __init__(self) -> None:
        self.total: Tensor | float = 0.0
        self.steps = 0

    def add(self, similarity: Tensor | float) -> None:
        """Take in that of one step."""
        self.total, self.steps = self.total + similarity, self.steps + 1

    def mean(self) -> dict[str, float]:
        """Return the mean over the steps, as a figure for the log."""
        return {"similarity": float(self.total) / self.steps} if self.steps else {}


@dataclass(frozen=True, config=STRICT)
class NUCFL(FedAvgWith[State, Memory]):
    """Cross-entropy plus similarity times |confidence - accuracy|."""

    name: ClassVar[str] = "nucfl"
    title: ClassVar[str] = "NUCFL"
    about: ClassVar[About] = FedAvgWith.about._replace(
        client="SGD on cross-entropy and a calibration term weighted by likeness to the global one",
        state="client: last received model (M)",
        source="Chu et al., ICLR 2025",
    )
    optimizer: ClassVar[Sgd] = Sgd(lr=0.001, weight_decay=1e-4)

    # Features are those of nearly the same model at this learning rate: their similarity is 0.996
    # or more in every round on the digits, and the weight that it should vary is constant.
    compare: Annotated[Literal["features", "head_updates"], Neutral("features")] = "head_updates"
    every: Literal["batch", "epoch"] = "batch"

    def init(self, params: Params, cohort: Cohort) -> State:
        """Start from the initial model."""
        return State(params)

    def work(self, local: Local, message: Message, memory: Memory | None) -> Work[Update, Memory]:
        """Train; report the mean similarity; remember the received weights to compare updates."""
        used = Similarities()
        done = train(local, message.params, self.weighted(local, message, memory, used))
        kept = Memory(message.params.weights) if self.compare == "head_updates" else None
        return Work(moved(message.params, done.params), kept, done.loss, used.mean())

    def gradient(self, local: Local, message: Message, memory: Memory | None) -> Gradient:
        """Return the gradient of cross-entropy and calibration; none flows through similarity."""
        return self.weighted(local, message, memory, Similarities())

    def weighted(
        self, local: Local, message: Message, memory: Memory | None, used: Similarities
    ) -> Gradient:
        """Return that gradient, and note the similarity that each step used."""
        pair = self.pair(local, message.params, memory)
        similarity: Tensor | float = 1.0  # before the first step both models are the same
        last_epoch = -1

        def loss(local: Local, batch: Batch) -> Tensor:
            nonlocal similarity, last_epoch
            if self.every == "batch" or batch.epoch != last_epoch:
                similarity, last_epoch = likeness(pair(local, batch), similarity), batch.epoch
            used.add(similarity)
            logits = local.network(batch.x)
            gap = confidence_gap(logits, batch.y)
            return F.cross_entropy(logits, batch.y) + similarity * gap

        return backprop(loss)

    def pair(
        self, local: Local, received: Params, memory: Memory | None
    ) -> Callable[[Local, Batch], Pair | None]:
        """Return the function that gives the two matrices to compare."""
        if self.compare == "features":
            return features_of(local, received)
        return head_updates(local, received.weights, memory)


def likeness(pair: Pair | None, last: Tensor | float) -> Tensor | float:
    """Return the alignment of two matrices, or the last one where there is nothing to compare."""
    if pair is None or len(pair[0]) < MIN_ROWS:
        return last
    now, start, *counts = pair
    alignment = linear_cka(now, start).clamp(max=1.0)
    return torch.where(counts[0], alignment, last) if counts else alignment


def features_of(local: Local, received: Params) -> Callable[[Local, Batch], Pair]:
    """Compare the features of the batch, both models in evaluation mode."""
    local.network.load(received)
    start = copy.deepcopy(local.network.model).eval()

    @torch.no_grad()
    def pair(local: Local, batch: Batch) -> Pair:
        local.network.model.eval()
        now = local.network.features(batch.x)
        local.network.model.train()
        return now, start.features(batch.x)

    return pair


def head_updates(
    local: Local, received: Tensor, memory: Memory | None
) -> Callable[[Local, Batch], Pair | None]:
    """Compare how the head's matrix moved: here so far, and globally since last time."""
    head = local.network.layout.head_weight
    start = matrix(received, head)
    went = None if memory is None else start - matrix(memory.received, head)

    def pair(local: Local, batch: Batch) -> Pair | None:
        now = matrix(local.network.weights, head) - start
        return None if went is None else (now, went, now.any())

    return pair


def matrix(weights: Tensor, piece: Piece) -> Tensor:
    """Return one tensor out of a vector of weights."""
    return weights[piece.start : piece.end].view(piece.shape)
