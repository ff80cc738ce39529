"""Clients small enough to compute by hand: a model of a few numbers and any loss of them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fedgps_ray.data.batches import Batch
from fedgps_ray.methods.base import Cohort, Method, Reply, Turn
from fedgps_ray.methods.fedavg import Message
from fedgps_ray.models.base import Model
from fedgps_ray.tensors import Params, Update
from fedgps_ray.training.local import Client, Local, Sgd
from fedgps_ray.training.network import Network

CPU = torch.device("cpu")
Start = Mapping[str, Sequence[float]]  # the model's tensors by name
Loss = Callable[..., Tensor]  # of the model's tensors, in their order


def vector(*values: float) -> Tensor:
    """Return numbers in float64."""
    return torch.tensor(values, dtype=torch.float64)


def params(*weights: float, buffers: Sequence[float] = ()) -> Params:
    """Return a model of these numbers."""
    return Params(vector(*weights), vector(*buffers))


def numbers(tensor: Tensor) -> tuple[float, ...]:
    """Return the numbers of a tensor."""
    return tuple(float(n) for n in tensor.detach().flatten())


def slope(*gradient: float) -> Loss:
    """Return a loss with a constant gradient."""
    return lambda *tensors: torch.cat(tensors) @ vector(*gradient)


def bowl(curvature: float) -> Loss:
    """Return the loss a |w|^2 / 2."""
    return lambda *tensors: torch.cat(tensors).square().sum() * (curvature / 2)


class Numbers(nn.Module):
    """A model of a few numbers that records them whenever its logits are computed.

    The logits (0, f) have the cross-entropy f under the weights (1, -1) in place of a label, so
    that methods which train on cross-entropy train on the loss f.
    """

    def __init__(self, start: Start, loss: Loss) -> None:
        super().__init__()
        self.loss, self.points = loss, list[tuple[float, ...]]()
        for name, values in start.items():
            self.register_parameter(name, nn.Parameter(torch.empty(len(values))))

    def features(self, x: Tensor) -> Tensor:
        """Return the input, which is ignored."""
        return x

    def head(self, z: Tensor) -> Tensor:
        """Return the logits (0, f)."""
        tensors: list[Tensor] = list(self.parameters())
        self.points.append(numbers(torch.cat(tensors)))
        value = self.loss(*tensors)
        return torch.stack([torch.zeros_like(value), value])[None]

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        return self.head(self.features(x))


class Fixed:
    """Fixed batches, the same in every epoch; as a noise set, always the first one."""

    def __init__(self, *batches: Batch) -> None:
        self.batches = batches

    def shuffled(self, epochs: int) -> Iterator[Batch]:
        """Yield all batches, epoch after epoch."""
        return (batch._replace(epoch=epoch) for epoch in range(epochs) for batch in self.batches)

    def plain(self) -> Iterator[Batch]:
        """Yield all batches once."""
        return iter(self.batches)

    def draw(self) -> Batch:
        """Return the first batch."""
        return self.batches[0]


def batch(x: Sequence[Sequence[float]], y: Sequence[int]) -> Batch:
    """Return examples with their labels."""
    return Batch(torch.tensor(x, dtype=torch.float64), torch.tensor(y))


def client(start: Start, loss: Loss, steps: int = 1, **sgd: object) -> Local:
    """Return client 0 in round 0; by default lr 0.1, no momentum and no weight decay."""
    model: Any = Numbers(start, loss)
    nothing = Batch(torch.zeros(1), torch.tensor([[1.0, -1.0]], dtype=torch.float64))
    return _local(model, numbers_of(start), Fixed(*[nothing] * steps), **sgd)


def featured(
    real: Batch, noise: Batch | None = None, outputs: int = 2, weights: Sequence[float] = ()
) -> Local:
    """Return a client of two classes whose features are its inputs; its head is zero, or given."""
    dim = real.x.shape[1]
    size = outputs * (dim + 1)
    local = _local(Model(nn.Identity(), dim, outputs), weights or [0.0] * size, Fixed(real))
    given: Any = None if noise is None else Fixed(noise)
    local.surrogate = given
    return local


def _local(model: Model, weights: Sequence[float], data: Any, **sgd: Any) -> Local:
    network = Network(model, CPU, torch.float64)
    network.load(params(*weights))
    settings = Sgd(**{"lr": 0.1, "momentum": 0.0, "weight_decay": 0.0, **sgd})
    return Local(
        network=network,
        client=Client(0, (1,)),
        round=0,
        num_classes=2,
        epochs=1,
        optimizer=settings,
        lr=settings.lr,
        data=data,
    )


def numbers_of(start: Start) -> list[float]:
    """Return all numbers in the order of the tensors."""
    return [value for values in start.values() for value in values]


def points(local: Local) -> list[tuple[float, ...]]:
    """Return where the gradients of a client were taken."""
    model: Any = local.network.model
    seen: list[tuple[float, ...]] = model.points
    return seen


def ended(method: Method, local: Local) -> tuple[float, ...]:
    """Train a client from what its network holds, and return the final weights."""
    start = local.network.params()
    return numbers(start.weights + method.work(local, Message(start), None).upload.delta)


def loss_of(method: Method, local: Local, message: object = None) -> float:
    """Return the loss of the first step."""
    message = message or Message(local.network.params())
    return float(method.work(local, message, None).loss)


def reply(
    delta: Sequence[float], label_counts: tuple[int, ...] = (1,), buffers: Sequence[float] = ()
) -> Reply:
    """Return the reply of a client that moved by delta."""
    return Reply(Client(0, label_counts), Update(vector(*delta), vector(*buffers)))


def turn(round_index: int, clients: int, rng: Any = None) -> Turn:
    """Return a round in which the clients 0, 1, ... take part."""
    members = tuple(Client(k, (1,)) for k in range(clients))
    return Turn(round_index, members, rng or np.random.default_rng(0))


def cohort(clients: int, start: Start) -> Cohort:
    """Return clients that all take part in every round."""
    network = client(start, slope()).network
    return Cohort(turn(0, clients).clients, clients, network.layout)


class Federation:
    """Clients with different losses of one model, and rounds with any choice of clients."""

    def __init__(self, method: Method, start: Start, *losses: Loss) -> None:
        self.method, self.start, self.losses = method, start, losses
        self.state = method.init(params(*numbers_of(start)), cohort(len(losses), start))
        self.memories: dict[int, Any] = {}
        self.points: dict[int, tuple[float, ...]] = {}  # where each client first took its gradient
        self.rounds = 0

    def round(self, *present: int) -> "Federation":
        """Play a round with these clients."""
        everyone = turn(self.rounds, len(self.losses)).clients
        now = Turn(self.rounds, tuple(everyone[k] for k in present), np.random.default_rng(0))
        messages = self.method.send(self.state, now)
        replies = [self._work(*pair) for pair in zip(now.clients, messages, strict=True)]
        for absent in set(self.memories) - set(present):
            self.memories[absent] = self.method.fade(self.memories[absent])
        self.state = self.method.merge(self.state, replies)
        self.rounds += 1
        return self

    def _work(self, who: Client, message: object) -> Reply:
        local = client(self.start, self.losses[who.id])
        local.client, local.round = who, self.rounds
        work = self.method.work(local, message, self.memories.get(who.id))
        self.memories[who.id] = work.memory
        self.points[who.id] = points(local)[0]
        return Reply(who, work.upload)

    @property
    def weights(self) -> tuple[float, ...]:
        """The global model."""
        return numbers(self.method.global_params(self.state).weights)
