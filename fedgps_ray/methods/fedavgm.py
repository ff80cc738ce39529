"""FedAvgM (Hsu et al., 2019): the server follows the mean update with momentum."""

from collections.abc import Sequence
from typing import ClassVar, NamedTuple

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from fedgps_ray.methods.averages import averages, by_shares
from fedgps_ray.methods.base import STRICT, About, Cohort, Reply
from fedgps_ray.methods.fedavg import FedAvgWith
from fedgps_ray.tensors import Params, Update, step
from fedgps_ray.training.local import Positive


class State(NamedTuple):
    """The server's state: the global model, and the velocity of its weights."""

    params: Params
    velocity: Tensor


@dataclass(frozen=True, config=STRICT)
class FedAvgM(FedAvgWith[State, None]):
    """FedAvg with momentum on the server: v = mu v + d, then a step along v, or along d + mu v."""

    name: ClassVar[str] = "fedavgm"
    title: ClassVar[str] = "FedAvgM"
    about: ClassVar[About] = FedAvgWith.about._replace(
        server="mean update with momentum",
        state="server: velocity (M)",
        source="Hsu et al., 2019",
    )

    server_lr: Positive = 1.0
    server_momentum: float = Field(default=0.9, ge=0, lt=1)
    nesterov: bool = True  # the paper's "Nesterov True", read as the server's

    def init(self, params: Params, cohort: Cohort) -> State:
        """Start at rest."""
        return State(params, torch.zeros_like(params.weights))

    @averages(by_shares)
    def merge(self, state: State, replies: Sequence[Reply[Update]]) -> State:
        """Move the weights along the velocity; buffers are averaged."""
        update = self.average(replies)
        velocity = state.velocity.mul(self.server_momentum).add_(update.delta)
        way = velocity
        if self.nesterov:
            way = update.delta.add(velocity, alpha=self.server_momentum)
        return State(step(state.params, Update(way, update.buffers), self.server_lr), velocity)
