"""SCAFFOLD (Karimireddy et al., 2020): control variates take the drift out of local gradients."""

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar, Literal, NamedTuple

import torch
from pydantic.dataclasses import dataclass
from torch import Tensor

from fedgps_ray.methods.averages import Shares, averages, by_shares, mean_of
from fedgps_ray.methods.base import STRICT, About, Cohort, Reply, Turn, Work
from fedgps_ray.methods.fedavg import Averaging
from fedgps_ray.tensors import Params, moved, step
from fedgps_ray.training.gradients import plus
from fedgps_ray.training.local import Client, Gradient, Local, Positive, Sgd, Trained, train


class State(NamedTuple):
    """The server's state: the model, the mean of all clients' controls, the number of clients."""

    params: Params
    control: Tensor
    num_clients: int


class Message(NamedTuple):
    """Sent to a client: the model and the mean control."""

    params: Params
    control: Tensor


class Upload(NamedTuple):
    """Sent to the server: the update, and the change of the client's control."""

    delta: Tensor
    buffers: Tensor
    control: Tensor


class Memory(NamedTuple):
    """A client's own control: the mean gradient of its last participation."""

    control: Tensor


def shares_of(method: "Scaffold", clients: Sequence[Client]) -> Shares:
    """Average the controls by equal shares, whatever those of the updates are."""
    return {**by_shares(method, clients), "control": [1.0] * len(clients)}


@dataclass(frozen=True, config=STRICT)
class Scaffold(Averaging[State, Message, Upload, Memory]):
    """FedAvg with c - c_k added to local gradients, where c_k is a client's own mean gradient.

    How this goes with client momentum: "after" corrects the weights after each step; "before"
    corrects the gradient, which then passes through momentum, and counts steps accordingly; "none"
    trains without momentum. All three assume a velocity that is reset every round.
    """

    name: ClassVar[str] = "scaffold"
    title: ClassVar[str] = "SCAFFOLD"
    about: ClassVar[About] = About(
        client="SGD corrected by the difference of mean and own control",
        server="mean update; mean of the controls",
        state="client: control (M); server: control (M)",
        up="2M",
        down="2M",
        source="Karimireddy et al., ICML 2020",
    )
    optimizer: ClassVar[Sgd] = Sgd(client_momentum="reset")

    weighting: Literal["samples", "uniform"] = "uniform"
    server_lr: Positive = 1.0
    momentum_design: Literal["none", "before", "after"] = "after"

    def init(self, params: Params, cohort: Cohort) -> State:
        """Start without any correction."""
        return State(params, torch.zeros_like(params.weights), len(cohort.clients))

    def send(self, state: State, turn: Turn) -> Sequence[Message]:
        """Send the model and the mean control."""
        return [Message(state.params, state.control)] * len(turn.clients)

    def work(self, local: Local, message: Message, memory: Memory | None) -> Work[Upload, Memory]:
        """Train with the correction; c_k becomes c_k - c + (theta - y) / (steps * lr)."""
        own = torch.zeros_like(message.control) if memory is None else memory.control
        drift = message.control - own
        if self.momentum_design == "none":
            local.optimizer = replace(local.optimizer, momentum=0.0)
        done = self.corrected(local, message, self.gradient(local, message, memory), drift)
        update = moved(message.params, done.params)
        before = self.momentum_design == "before"
        steps = plain_steps(done.steps, local.optimizer) if before else done.steps
        fresh = update.delta.div(-steps * local.lr).sub_(drift) if steps else own
        return Work(Upload(*update, fresh - own), Memory(fresh), done.loss)

    def corrected(
        self, local: Local, message: Message, gradient: Gradient, drift: Tensor
    ) -> Trained:
        """Train with the drift added to each gradient, or taken off after each step."""
        if self.momentum_design != "after":
            return train(local, message.params, plus(gradient, lambda _: drift))

        def correct(now: Local) -> None:
            now.network.weights.add_(drift, alpha=-now.lr)

        return train(local, message.params, gradient, correct)

    @averages(shares_of)
    def merge(self, state: State, replies: Sequence[Reply[Upload]]) -> State:
        """Move the model by the mean update and the mean control by the changes over all."""
        change = mean_of(replies, "control", [1.0] * len(replies))
        control = state.control.add(change, alpha=len(replies) / state.num_clients)
        params = step(state.params, self.average(replies), self.server_lr)
        return State(params, control, state.num_clients)


def plain_steps(steps: int, optimizer: Sgd) -> float:
    """Return how many steps without momentum go as far along a constant gradient.

    K = (T - m (1 - mu^T) / (1 - mu)) / (1 - mu), where m is mu, and mu^2 for Nesterov
    """
    mu = optimizer.momentum
    lag = mu**2 if optimizer.nesterov else mu
    return (steps - lag * (1 - mu**steps) / (1 - mu)) / (1 - mu)
