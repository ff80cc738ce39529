"""FedAvg (McMahan et al., 2017): clients train what they receive, the server averages."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple

from pydantic.dataclasses import dataclass

from fedgps_ray.methods.base import STRICT, About, Ask, Cohort, Reply, Turn, Work
from fedgps_ray.tensors import Params, Update, mean, moved, step
from fedgps_ray.training.gradients import backprop, cross_entropy
from fedgps_ray.training.local import Client, Gradient, Local, Sgd, train


class State(NamedTuple):
    """The server's: the global model."""

    params: Params


class Message(NamedTuple):
    """To a client: the global model."""

    params: Params


@dataclass(frozen=True, config=STRICT)
class FedAvg:
    """The mean of locally trained models; other methods override two or three functions."""

    about: ClassVar[About] = About(
        client="SGD on cross-entropy",
        server="mean of the models",
        state="none",
        up="M",
        down="M",
        source="McMahan et al., AISTATS 2017",
    )
    optimizer: ClassVar[Sgd] = Sgd()
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    overrides: ClassVar[Mapping[str, Any]] = {}

    weighting: Literal["samples", "uniform"] = "samples"

    @property
    def needs_surrogate(self) -> bool:
        """Whether clients draw from the shared noise set."""
        return False

    def num_outputs(self, num_classes: int) -> int:
        """Return the width of the head."""
        return num_classes

    def init(self, params: Params, cohort: Cohort) -> Any:
        """Start from the initial model."""
        return State(params)

    def send(self, state: Any, turn: Turn) -> Sequence[Any]:
        """Send the global model to everyone."""
        return [Message(state.params)] * len(turn.clients)

    def work(self, local: Local, message: Any, memory: Any) -> Work:
        """Train from the received model."""
        done = train(local, message.params, self.gradient(local, message, memory))
        return Work(moved(message.params, done.params), memory, done.loss)

    def gradient(self, local: Local, message: Any, memory: Any) -> Gradient:
        """Return the gradient that local training follows."""
        return backprop(cross_entropy)

    def merge(self, state: Any, replies: Sequence[Reply]) -> Any:
        """Move the global model by the mean update."""
        return State(step(state.params, self.average(replies)))

    def average(self, replies: Sequence[Reply]) -> Update:
        """Return the weighted mean of the updates and of the buffers."""
        shares = self.shares([reply.client for reply in replies])
        deltas = mean([reply.upload.delta for reply in replies], shares)
        return Update(deltas, mean([reply.upload.buffers for reply in replies], shares))

    def shares(self, clients: Sequence[Client]) -> list[float]:
        """Return the aggregation weights, not normalised."""
        uniform = self.weighting == "uniform"
        return [1.0 if uniform else float(client.num_examples) for client in clients]

    def deploy(self, state: Any, turn: Turn, ask: Ask) -> Params:
        """Test the global model itself."""
        return self.global_params(state)

    def global_params(self, state: Any) -> Params:
        """Return the aggregated model."""
        params: Params = state.params
        return params

    def measure(self, state: Any, turn: Turn, ask: Ask) -> dict[str, float]:
        """Report nothing beyond the common columns."""
        return {}

    def fade(self, memory: Any) -> Any:
        """Keep everything."""
        return memory
