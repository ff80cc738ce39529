"""FedAvg (McMahan et al., 2017), and the parts of it that other methods build on."""

from collections.abc import Sequence
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, Self

from pydantic.dataclasses import dataclass
from torch import Tensor
from typing_extensions import TypeVar

from fedgps_ray.methods.averages import averages, by_shares, mean_of
from fedgps_ray.methods.base import (
    STRICT,
    About,
    BaseMethod,
    Cohort,
    HasParams,
    MemoryT,
    MessageT,
    ModelStateT,
    Reply,
    Turn,
    UploadT,
    Work,
)
from fedgps_ray.tensors import Params, Update, moved, step
from fedgps_ray.training.gradients import backprop, cross_entropy
from fedgps_ray.training.local import Client, Gradient, Local, train


class State(NamedTuple):
    """The server's state: the global model."""

    params: Params


class Message(NamedTuple):
    """Sent to a client: the global model."""

    params: Params


class HasUpdate(Protocol):
    """An upload that holds an update, as `Update` itself does."""

    @property
    def delta(self) -> Tensor:
        """The change of the weights."""
        ...

    @property
    def buffers(self) -> Tensor:
        """The new buffers."""
        ...


class Replaceable(HasParams, Protocol):
    """A NamedTuple that holds the global model."""

    def _replace(self, *, params: Params) -> Self: ...


TupleT = TypeVar("TupleT", bound=Replaceable, default=Any)


@dataclass(frozen=True, config=STRICT)
class Averaging(BaseMethod[ModelStateT, MessageT, UploadT, MemoryT]):
    """The server averages what clients return; what is sent and returned is left open."""

    weighting: Literal["samples", "uniform"] = "samples"

    def gradient(self, local: Local, message: MessageT, memory: MemoryT | None) -> Gradient:
        """Return the gradient that local training follows."""
        return backprop(cross_entropy)

    def average(self, replies: Sequence[Reply[HasUpdate]]) -> Update:
        """Return the weighted mean of the updates and of the buffers."""
        shares = self.shares([reply.client for reply in replies])
        return Update(mean_of(replies, "delta", shares), mean_of(replies, "buffers", shares))

    def shares(self, clients: Sequence[Client]) -> list[float]:
        """Return the aggregation weights, not normalised."""
        uniform = self.weighting == "uniform"
        return [1.0 if uniform else float(client.num_examples) for client in clients]


@dataclass(frozen=True, config=STRICT)
class FedAvgWith(Averaging[TupleT, Message, Update, MemoryT]):
    """FedAvg with another server state, or with a client memory (None if there is none).

    Every client gets the global model and returns its update.
    """

    about: ClassVar[About] = About(
        client="SGD on cross-entropy",
        server="mean of the models",
        state="none",
        up="M",
        down="M",
    )

    def send(self, state: TupleT, turn: Turn) -> Sequence[Message]:
        """Send the global model to everyone."""
        return [Message(state.params)] * len(turn.clients)

    def work(self, local: Local, message: Message, memory: MemoryT | None) -> Work[Update, MemoryT]:
        """Train from the received model."""
        done = train(local, message.params, self.gradient(local, message, memory))
        return Work(moved(message.params, done.params), memory, done.loss)

    @averages(by_shares)
    def merge(self, state: TupleT, replies: Sequence[Reply[Update]]) -> TupleT:
        """Move the global model by the mean update."""
        return state._replace(params=step(state.params, self.average(replies)))


@dataclass(frozen=True, config=STRICT)
class FedAvg(FedAvgWith[State, None]):
    """The mean of locally trained models; other methods override two or three functions."""

    name: ClassVar[str] = "fedavg"
    title: ClassVar[str] = "FedAvg"
    about: ClassVar[About] = FedAvgWith.about._replace(source="McMahan et al., AISTATS 2017")

    def init(self, params: Params, cohort: Cohort) -> State:
        """Start from the initial model."""
        return State(params)
