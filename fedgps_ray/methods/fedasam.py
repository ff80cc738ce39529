"""FedASAM (Caldarola et al., 2022): local steps follow the gradient of a nearby, worse point."""

from typing import ClassVar

import torch
from pydantic.dataclasses import dataclass
from torch import Tensor

from fedgps_ray.data.batches import Batch
from fedgps_ray.methods.base import STRICT, About
from fedgps_ray.methods.fedavg import FedAvg, Message
from fedgps_ray.tensors import Piece
from fedgps_ray.training.gradients import backprop, cross_entropy, shifted
from fedgps_ray.training.local import Gradient, Local, NotNegative


@dataclass(frozen=True, config=STRICT)
class FedASAM(FedAvg):
    """FedAvg with adaptive sharpness-aware minimisation; two passes per step."""

    name: ClassVar[str] = "fedasam"
    title: ClassVar[str] = "FedASAM"
    about: ClassVar[About] = FedAvg.about._replace(
        client="gradient taken uphill, by a step scaled with the size of each weight",
        state="client: the step uphill (M), within a step",
        source="Caldarola et al., ECCV 2022",
    )

    rho: NotNegative = 0.1
    eta: NotNegative = 0.0
    adaptive: bool = True  # False: FedSAM, the same step for every weight

    def gradient(self, local: Local, message: Message, memory: None) -> Gradient:
        """Return the gradient at weights + ascent; BatchNorm statistics follow both passes."""
        plain = backprop(cross_entropy)
        network = local.network
        adaptive = adaptive_places(network.weights, network.layout.weights)

        def uphill(local: Local, batch: Batch) -> Tensor:
            value = plain(local, batch)
            shift = self.ascent(network.weights, network.grads, adaptive)
            network.grads.zero_()
            shifted(plain, shift)(local, batch)
            return value

        return uphill

    def ascent(self, weights: Tensor, grads: Tensor, adaptive: Tensor) -> Tensor:
        """Return rho T^2 g / |T g|, with T = |w| + eta at the adaptive places and 1 elsewhere."""
        scale = torch.ones_like(weights)
        if self.adaptive:
            scale = torch.where(adaptive, weights.abs() + self.eta, scale)
        scaled = scale * grads
        size: Tensor = torch.linalg.vector_norm(scaled)
        return scale * scaled * (self.rho / (size + 1e-16))


def adaptive_places(like: Tensor, layout: tuple[Piece, ...]) -> Tensor:
    """Say which entries belong to a tensor named weight, BatchNorm's scales being among them."""
    places = torch.zeros_like(like, dtype=torch.bool)
    for piece in layout:
        places[piece.start : piece.end] = piece.name.endswith("weight")
    return places
