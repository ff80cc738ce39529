"""NUCFL (Chu et al.): confidence calibrated locally, the more so the closer to the global model.

No public code exists; what the similarity compares, and when, is our reading and an option.
"""

import copy
from collections.abc import Callable
from typing import ClassVar, Literal, NamedTuple

import torch
import torch.nn.functional as F
from pydantic.dataclasses import dataclass
from torch import Tensor

from fedgps_ray.data.batches import Batch
from fedgps_ray.methods.base import STRICT, About, Cohort, Work
from fedgps_ray.methods.fedavg import FedAvgWith, Message, State
from fedgps_ray.tensors import Params, Update, views
from fedgps_ray.training.gradients import backprop
from fedgps_ray.training.local import Gradient, Local, Sgd
from fedgps_ray.training.losses import confidence_gap, linear_cka

MIN_ROWS = 3  # the alignment of fewer rows is 0/0 or always 1


class Memory(NamedTuple):
    """The weights a client received when it last took part (only to compare updates)."""

    received: Tensor


# two matrices with the same rows; a third tensor says whether they count: to read it, the host
# would have to wait for the device
Pair = tuple[Tensor, Tensor] | tuple[Tensor, Tensor, Tensor]


@dataclass(frozen=True, config=STRICT)
class NUCFL(FedAvgWith[State, Memory]):
    """Cross-entropy plus similarity times |confidence - accuracy|."""

    name: ClassVar[str] = "nucfl"
    title: ClassVar[str] = "NUCFL"
    about: ClassVar[About] = FedAvgWith.about._replace(
        client="SGD on cross-entropy and a calibration term weighted by likeness to the global one",
        state="client: received model (M), within a round",
        source="Chu et al., ICLR 2025",
    )
    optimizer: ClassVar[Sgd] = Sgd(lr=0.001, weight_decay=1e-4)

    compare: Literal["features", "head_updates"] = "features"
    every: Literal["batch", "epoch"] = "batch"

    def init(self, params: Params, cohort: Cohort) -> State:
        """Start from the initial model."""
        return State(params)

    def work(self, local: Local, message: Message, memory: Memory | None) -> Work[Update, Memory]:
        """Train; remember the received weights where updates are compared."""
        work = super().work(local, message, memory)
        keeps = self.compare == "head_updates"
        return work._replace(memory=Memory(message.params.weights) if keeps else None)

    def gradient(self, local: Local, message: Message, memory: Memory | None) -> Gradient:
        """Return the gradient of cross-entropy and calibration; none flows through similarity."""
        pair = self.pair(local, message.params, memory)
        similarity: Tensor | float = 1.0  # before the first step both models are the same
        last_epoch = -1

        def loss(local: Local, batch: Batch) -> Tensor:
            nonlocal similarity, last_epoch
            if self.every == "batch" or batch.epoch != last_epoch:
                similarity, last_epoch = likeness(pair(local, batch), similarity), batch.epoch
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
    found = linear_cka(now, start).clamp(max=1.0)
    return torch.where(counts[0], found, last) if counts else found


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
    layout = local.network.layout.weights
    start = views(received, layout)["head.weight"]
    went = None if memory is None else start - views(memory.received, layout)["head.weight"]

    def pair(local: Local, batch: Batch) -> Pair | None:
        now = views(local.network.weights, layout)["head.weight"] - start
        return None if went is None else (now, went, now.any())

    return pair
