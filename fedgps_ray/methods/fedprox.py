"""FedProx (Li et al., 2020): local training is held near the received model."""

from collections.abc import Callable
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic.dataclasses import dataclass
from torch import Tensor

from fedgps_ray.methods.base import STRICT, About
from fedgps_ray.methods.fedavg import FedAvg, Message
from fedgps_ray.tensors import Piece
from fedgps_ray.training.gradients import plus
from fedgps_ray.training.local import Gradient, Local, NotNegative


@dataclass(frozen=True, config=STRICT)
class FedProx(FedAvg):
    """FedAvg whose local loss has a penalty, mu/2 times the squared distance to the start.

    The penalty "norm" is mu times the sum of each tensor's distance, not squared, as an unused
    function of the FedGPS code has it.
    """

    name: ClassVar[str] = "fedprox"
    title: ClassVar[str] = "FedProx"
    about: ClassVar[About] = FedAvg.about._replace(
        client="SGD on cross-entropy and distance to the received model",
        source="Li et al., MLSys 2020",
    )

    mu: NotNegative = 0.125
    penalty: Literal["squared", "norm"] = "squared"

    def gradient(self, local: Local, message: Message, memory: None) -> Gradient:
        """Add the gradient of the penalty."""
        return plus(super().gradient(local, message, memory), self.pull(message.params.weights))

    def pull(self, start: Tensor) -> Callable[[Local], Tensor]:
        """Return the gradient of the penalty as a function of a client's weights."""

        def away(local: Local) -> Tensor:
            distance = local.network.weights - start
            if self.penalty == "norm":
                distance = directions(distance, local.network.layout.weights)
            return distance.mul_(self.mu)

        return away


def directions(vector: Tensor, layout: tuple[Piece, ...]) -> Tensor:
    """Return each piece divided by its length; zero stays zero."""
    return torch.cat([F.normalize(vector[p.start : p.end], dim=0) for p in layout])
