"""Delta-SGD (Kim et al., 2024): each client finds its step size from the smoothness it meets."""

import math
from typing import ClassVar, Literal

from pydantic.dataclasses import dataclass
from torch import Tensor

from fedgps_ray.data.batches import Batch
from fedgps_ray.methods.base import STRICT, About
from fedgps_ray.methods.fedavg import FedAvg, Message
from fedgps_ray.tensors import norm
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
        ratio = 1.0

        def measured(local: Local, batch: Batch) -> Tensor:
            nonlocal previous, ratio
            value = gradient(local, batch)
            lr = math.sqrt(1 + self.delta * ratio) * local.lr
            if previous is not None:
                lr = min(lr, self.gamma / 2 * inverse_smoothness(local, batch, gradient, previous))
            elif not self.amplify_first:
                lr = local.lr
            previous, ratio, local.lr = local.network.weights.clone(), lr / local.lr, lr
            return value

        return measured


def inverse_smoothness(local: Local, batch: Batch, gradient: Gradient, previous: Tensor) -> float:
    """Return |w - w'| / |g(w) - g(w')|, infinity where either is 0; the network stays as it was."""
    network = local.network
    now, grads = network.params(), network.grads.clone()
    network.weights.copy_(previous)
    network.grads.zero_()
    gradient(local, batch)
    went, turned = norm(now.weights - previous), norm(grads - network.grads)
    network.load(now)
    network.grads.copy_(grads)
    return went / turned if went and turned else math.inf
