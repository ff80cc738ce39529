"""Local, everything a client may use in a round, and train(), the only SGD loop."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Annotated, Literal, NamedTuple

import torch
from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass as checked_dataclass
from torch import Tensor

from fedgps_ray.data.batches import Batch, Batches, Surrogate
from fedgps_ray.tensors import Params
from fedgps_ray.training.network import Network

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]


@checked_dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class Sgd:
    """The local optimizer: SGD with coupled weight decay and heavy-ball momentum."""

    lr: Positive = 0.01
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    weight_decay: NotNegative = 1e-5
    nesterov: bool = False
    max_norm: Positive | None = None
    lr_decay: Annotated[float, Field(gt=0, le=1)] = 1.0
    client_momentum: Literal["persist", "reset"] = "persist"


class Client(NamedTuple):
    """Everything the server may know about a client."""

    id: int
    label_counts: tuple[int, ...]

    @property
    def num_examples(self) -> int:
        """How many training examples the client holds."""
        return sum(self.label_counts)


class Trained(NamedTuple):
    """The result of local training."""

    params: Params
    steps: int
    loss: float


@dataclass
class Local:
    """One client in one round: the live network, its data, the surrogate set, the optimizer."""

    network: Network
    client: Client
    round: int
    num_classes: int
    epochs: int
    optimizer: Sgd
    lr: float
    data: Batches
    surrogate: Surrogate | None = None
    velocity: Tensor | None = None
    rate: Tensor | None = field(default=None, init=False)  # in place of lr, once one was found
    steps: int = field(default=0, init=False)
    backward_passes: int = field(default=0, init=False)

    def take_rate(self, found: Tensor) -> None:
        """Use a learning rate that was computed; on a GPU it stays: to read it, we would wait."""
        if found.device.type == "cpu":
            self.lr = float(found)
        else:
            self.rate = found

    def batches(self) -> Iterator[Batch]:
        """Yield shuffled, augmented batches, epoch after epoch."""
        return self.data.shuffled(self.epochs)

    def examples(self) -> Iterator[Batch]:
        """Yield all examples once, in order, without augmentation."""
        return self.data.plain()

    def noise(self) -> Batch:
        """Return a fresh batch of surrogate images, labels 0..C-1."""
        return self.noise_set().draw()

    def noise_set(self) -> Surrogate:
        """Return the surrogate set."""
        if self.surrogate is None:
            raise RuntimeError("this trial was set up without a surrogate set")
        return self.surrogate


Gradient = Callable[[Local, Batch], Tensor]
After = Callable[[Local], None]


def train(local: Local, start: Params, gradient: Gradient, after: After | None = None) -> Trained:
    """Run all local epochs from start; gradient fills the gradient vector and returns the loss."""
    network = local.network
    network.load(start)
    if not network.model.training:
        network.model.train()
    steps_before = local.steps
    total = torch.zeros((), device=network.weights.device, dtype=network.weights.dtype)
    for batch in local.batches():
        network.grads.zero_()
        total += gradient(local, batch)
        descend(local)
        if after is not None:
            after(local)
        local.steps += 1
    steps = local.steps - steps_before
    return Trained(network.params(), steps, float(total) / max(steps, 1))


@torch.no_grad()
def descend(local: Local) -> None:
    """Take one step along the gradient vector: clip, weight decay, momentum."""
    weights, grads, sgd = local.network.weights, local.network.grads, local.optimizer
    if sgd.max_norm is not None:
        clip(grads, sgd.max_norm)
    if sgd.weight_decay:
        grads.add_(weights, alpha=sgd.weight_decay)
    if not sgd.momentum:
        _go(local, grads)
        return
    if local.velocity is None:
        local.velocity = grads.clone()
    else:
        local.velocity.mul_(sgd.momentum).add_(grads)
    if sgd.nesterov:
        _go(local, grads)
        _go(local, local.velocity, sgd.momentum)
    else:
        _go(local, local.velocity)


def _go(local: Local, way: Tensor, share: float = 1.0) -> None:
    """Move the weights against a vector."""
    if local.rate is None:
        local.network.weights.add_(way, alpha=-local.lr * share)
    else:
        local.network.weights.sub_(way * (local.rate * share))


def clip(grads: Tensor, max_norm: float) -> None:
    """Shorten the gradient vector to max_norm where it is longer, without reading it back."""
    size = torch.linalg.vector_norm(grads)
    grads.mul_((max_norm / (size + 1e-6)).clamp(max=1.0))
