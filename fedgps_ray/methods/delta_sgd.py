"""Delta-SGD (Kim et al., 2024): each client finds its step size from the smoothness it meets."""

from typing import ClassVar, Literal

import torch
from pydantic.dataclasses import dataclass
from torch import Tensor

from fedgps_ray.data.batches import Batch
from fedgps_ray.methods.base import STRICT, About
from fedgps_ray.methods.fedavg import FedAvg, Message
from fedgps_ray.training.local import Gradient, Local, NotNegative, Positive, Sgd


@dataclass(frozen=True, config=STRICT)
class DeltaSGD(FedAvg):
    """FedAvg whose learning rate is found at each local step; the optimizer's is the first.

    lr = min(gamma |w - w'| / (2 |g(w) - g(w')|), sqrt(1 + delta * ratio) * last lr), where w' are
    the weights before the last step, g gradients on the same batch, ratio the last two rates'. With
    amplify_first the second branch already applies to the first step, as in the authors' code.
    """

    name: ClassVar[str] = "delta_sgd"
    title: ClassVar[str] = "Delta-SGD"
    about: ClassVar[About] = FedAvg.about._replace(
        client="SGD with a step size from local smoothness, two gradients per step",
        state="client: previous weights, within a round (M)",
        source="Kim et al., ICLR 2024",
    )
    optimizer: ClassVar[Sgd] = Sgd(lr=0.2, momentum=0.0, weight_decay=0.0)

    weighting: Literal["samples", "uniform"] = "uniform"
    gamma: Positive = 2.0
    delta: NotNegative = 0.1
    amplify_first: bool = False

    def gradient(self, local: Local, message: Message, memory: None) -> Gradient:
        """Set the learning rate before each step."""
        return self.adaptive(super().gradient(local, message, memory))

    def adaptive(self, gradient: Gradient) -> Gradient:
        """Return a gradient that also sets the client's learning rate."""
        previous: Tensor | None = None
        last, ratio = torch.zeros(()), torch.ones(())

        def measured(local: Local, batch: Batch) -> Tensor:
            nonlocal previous, last, ratio
            value = gradient(local, batch)
            if previous is None:
                last, ratio = _first(local)
            lr = (1 + self.delta * ratio).sqrt() * last
            if previous is not None:
                limit = self.gamma / 2 * inverse_smoothness(local, batch, gradient, previous)
                lr = torch.where(limit < lr, limit, lr)
            elif not self.amplify_first:
                lr = last
            previous, ratio, last = local.network.weights.clone(), lr / last, lr
            local.take_rate(lr)
            return value

        return measured


def _first(local: Local) -> tuple[Tensor, Tensor]:
    """Return the client's learning rate and a ratio of 1 where its weights are."""
    one = torch.ones((), dtype=torch.float64, device=local.network.weights.device)
    return one * local.lr, one


def inverse_smoothness(local: Local, batch: Batch, gradient: Gradient, previous: Tensor) -> Tensor:
    """Return |w - w'| / |g(w) - g(w')|, infinity where either is 0; the network stays as it was."""
    network = local.network
    now, grads = network.params(), network.grads.clone()
    network.weights.copy_(previous)
    network.grads.zero_()
    gradient(local, batch)
    went, turned = _size(now.weights - previous), _size(grads - network.grads)
    network.load(now)
    network.grads.copy_(grads)
    return torch.where((went != 0) & (turned != 0), went / turned, torch.inf)


def _size(vector: Tensor) -> Tensor:
    size: Tensor = torch.linalg.vector_norm(vector, dtype=torch.float64)
    return size
