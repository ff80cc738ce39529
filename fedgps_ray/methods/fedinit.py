"""FedInit (Sun et al., 2023): clients start a little away from where they last ended."""

from collections.abc import Sequence
from typing import ClassVar, Literal, NamedTuple

from pydantic.dataclasses import dataclass
from torch import Tensor

from fedgps_ray.methods.averages import averages, by_shares
from fedgps_ray.methods.base import STRICT, About, Cohort, Reply, Turn, Work
from fedgps_ray.methods.fedavg import FedAvgWith, Message
from fedgps_ray.tensors import Params, Update, moved, step
from fedgps_ray.training.local import Local, NotNegative, Sgd, train


class State(NamedTuple):
    """The server's state: the model, its first weights, and the clients that have taken part."""

    params: Params
    first: Tensor
    seen: tuple[int, ...]


class Memory(NamedTuple):
    """The weights with which a client's last participation ended."""

    last: Tensor


@dataclass(frozen=True, config=STRICT)
class FedInit(FedAvgWith[State, Memory]):
    """FedAvg from relaxed starts, theta + beta (theta - last), last the client's own last weights.

    A newcomer's last weights are those the server began with. It knows them and the newcomers, and
    sends these their start in place of the model, so that one model goes each way. The mean is that
    of the final models, or, as in the authors' code, that of the displacements from the starts.
    """

    name: ClassVar[str] = "fedinit"
    title: ClassVar[str] = "FedInit"
    about: ClassVar[About] = FedAvgWith.about._replace(
        client="SGD from a start moved away from its own last model",
        state="client: own last model (M); server: first model (M)",
        source="Sun et al., NeurIPS 2023",
    )
    optimizer: ClassVar[Sgd] = Sgd(lr=0.1, momentum=0.0, weight_decay=1e-3)

    beta: NotNegative = 0.1
    mean_of: Literal["models", "displacements"] = "models"

    def init(self, params: Params, cohort: Cohort) -> State:
        """Start before any client has taken part."""
        return State(params, params.weights, ())

    def send(self, state: State, turn: Turn) -> Sequence[Message]:
        """Send the model, and to newcomers their start."""
        known, new = Message(state.params), Message(self.relaxed(state.params, state.first))
        return [known if client.id in state.seen else new for client in turn.clients]

    def relaxed(self, params: Params, last: Tensor) -> Params:
        """Return the params with weights moved away from the last ones."""
        return params._replace(weights=params.weights.add(params.weights - last, alpha=self.beta))

    def work(self, local: Local, message: Message, memory: Memory | None) -> Work[Update, Memory]:
        """Train from the relaxed start."""
        start = message.params if memory is None else self.relaxed(message.params, memory.last)
        done = train(local, start, self.gradient(local, message, memory))
        origin = start if self.mean_of == "displacements" else message.params
        return Work(moved(origin, done.params), Memory(done.params.weights), done.loss)

    @averages(by_shares)
    def merge(self, state: State, replies: Sequence[Reply[Update]]) -> State:
        """Move the model by the mean update, newcomers' counted from the model as well."""
        update = self.average(replies)
        clients = [reply.client for reply in replies]
        if self.mean_of == "models":
            shares = self.shares(clients)
            new = sum(s for c, s in zip(clients, shares, strict=True) if c.id not in state.seen)
            ahead = state.params.weights - state.first
            update.delta.add_(ahead, alpha=self.beta * new / sum(shares))
        seen = tuple(sorted({*state.seen, *(client.id for client in clients)}))
        return State(step(state.params, update), state.first, seen)
