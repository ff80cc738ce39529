"""FedLESAM (Fan et al., 2024): gradients taken towards an older global model, one pass per step.

Variant S corrects the gradient as SCAFFOLD does, D as FedDyn does, base not at all.
"""

from collections.abc import Sequence
from typing import ClassVar, Literal, NamedTuple

import torch
from pydantic.dataclasses import dataclass
from torch import Tensor

from fedgps_ray.methods.averages import Shares, averages, by_shares, mean_of
from fedgps_ray.methods.base import STRICT, About, Cohort, Reply, Turn, Work
from fedgps_ray.methods.fedavg import Averaging
from fedgps_ray.tensors import Params, moved, norm, step, sum_of_norms
from fedgps_ray.training.gradients import ahead_sizes, backprop, cross_entropy, plus, shifted
from fedgps_ray.training.local import Client, Gradient, Local, NotNegative, Positive, Sgd, train


class State(NamedTuple):
    """The server's state; control is the mean over all clients of their own (not for base)."""

    params: Params
    control: Tensor | None
    previous: Tensor | None  # the weights of a round ago, only if they are sent
    num_clients: int


class Message(NamedTuple):
    """Sent to a client: the model, for S the control, and the previous weights if they are sent."""

    params: Params
    control: Tensor | None
    previous: Tensor | None


class Upload(NamedTuple):
    """Sent to the server: the update, and for S the change of the client's control."""

    delta: Tensor
    buffers: Tensor
    control: Tensor | None


class Memory(NamedTuple):
    """A client's last received weights, and its own control."""

    received: Tensor | None
    control: Tensor | None


def shares_of(method: "FedLESAM", clients: Sequence[Client]) -> Shares:
    """Average the controls of S by equal shares; D takes two means of the updates."""
    shares, equal = dict(by_shares(method, clients)), [1.0] * len(clients)
    if method.variant == "D" and method.weighting != "uniform":
        del shares["delta"]
    return {**shares, "control": equal} if method.variant == "S" else shares


@dataclass(frozen=True, config=STRICT)
class FedLESAM(Averaging[State, Message, Upload, Memory]):
    """Sharpness-aware steps back along the way that the global model has come."""

    name: ClassVar[str] = "fedlesam"
    title: ClassVar[str] = "FedLESAM"
    about: ClassVar[About] = About(
        client="gradient taken towards the last received model, corrected as in SCAFFOLD",
        server="mean update; control variate",
        state="client: last received model, control (2M); server: control (M)",
        up="2M",
        down="2M",
        source="Fan et al., ICML 2024",
    )
    optimizer: ClassVar[Sgd] = Sgd(
        lr=0.1, momentum=0.0, weight_decay=0.001, max_norm=10.0, client_momentum="reset"
    )

    weighting: Literal["samples", "uniform"] = "uniform"
    variant: Literal["base", "S", "D"] = "S"
    rho: NotNegative = 0.5
    correction: NotNegative = 0.1  # lambda of S and D; 1.0 is SCAFFOLD's own correction
    server_lr: Positive = 1.0
    # The paper's perturbation starts from the model a client last received itself; the authors'
    # code sends everyone the last update of the server, which costs another M down.
    reference: Literal["own", "last_update"] = "own"
    # The paper divides by one norm of the whole difference; the authors' optimizers, from which
    # FedGPS's own derives, by the sum of the tensors' norms, which makes the shift shorter.
    perturb_norm: Literal["global", "sum"] = "global"

    def init(self, params: Params, cohort: Cohort) -> State:
        """Start with a control of zero."""
        control = None if self.variant == "base" else torch.zeros_like(params.weights)
        return State(params, control, None, len(cohort.clients))

    def send(self, state: State, turn: Turn) -> Sequence[Message]:
        """Send the model and what the variant needs."""
        control = state.control if self.variant == "S" else None
        return [Message(state.params, control, state.previous)] * len(turn.clients)

    def work(self, local: Local, message: Message, memory: Memory | None) -> Work[Upload, Memory]:
        """Train on corrected gradients taken at other weights; update the client's control."""
        start = message.params.weights
        memory = memory or Memory(None, torch.zeros_like(start))
        shift, gradient = self.shift(local, message, memory), backprop(cross_entropy)
        taken = gradient if shift is None else shifted(gradient, shift)
        done = train(local, message.params, self.corrected(taken, message, memory))
        update = moved(message.params, done.params)
        control = change = None
        if self.variant == "D":
            control = required(memory.control) + update.delta
        if self.variant == "S":
            change = control_change(required(message.control), update.delta, local)
            control = required(memory.control) + change
        received = start if self.reference == "own" else None
        sizes = ahead_sizes(shift, start, update.delta)
        return Work(Upload(*update, change), Memory(received, control), done.loss, sizes)

    def shift(self, local: Local, message: Message, memory: Memory) -> Tensor | None:
        """Return rho (old - new) / |old - new|, if there is an old model."""
        old = memory.received if self.reference == "own" else message.previous
        if old is None:
            return None
        back, layout = old - message.params.weights, local.network.layout.weights
        size = sum_of_norms(back, layout) if self.perturb_norm == "sum" else norm(back)
        return back * (self.rho / (size + 1e-7))

    def corrected(self, gradient: Gradient, message: Message, memory: Memory) -> Gradient:
        """Add lambda (c - c_k) for S, lambda (w - start + h_k) for D."""
        if self.variant == "base":
            return gradient
        start, own = message.params.weights, required(memory.control)
        if self.variant == "D":
            return plus(gradient, lambda now: (now.network.weights - start + own) * self.correction)
        drift = (required(message.control) - own) * self.correction
        return plus(gradient, lambda _: drift)

    @averages(shares_of)
    def merge(self, state: State, replies: Sequence[Reply[Upload]]) -> State:
        """Move the model by the mean update; update the control, and for D add it to the model."""
        params = step(state.params, self.average(replies), self.server_lr)
        previous = None if self.reference == "own" else state.params.weights
        if self.variant == "base":
            return state._replace(params=params, previous=previous)
        equal = [1.0] * len(replies)
        change = mean_of(replies, "control" if self.variant == "S" else "delta", equal)
        control = required(state.control).add(change, alpha=len(replies) / state.num_clients)
        if self.variant == "D":
            params = params._replace(weights=params.weights + control)
        return state._replace(params=params, control=control, previous=previous)


def required(control: Tensor | None) -> Tensor:
    """Return a control, which variants S and D always have."""
    assert control is not None
    return control


def control_change(control: Tensor, delta: Tensor, local: Local) -> Tensor:
    """Return -c - delta / (steps * lr), by which SCAFFOLD's second option changes c_k."""
    way = effective_steps(local.optimizer, local.steps) * local.lr
    return torch.zeros_like(delta) if not way else torch.sub(-control, delta, alpha=1 / way)


def effective_steps(optimizer: Sgd, steps: int) -> float:
    """Return how far a number of steps follows a constant gradient, in learning rates.

    Without momentum, as in the paper, this is the number of steps.
    """
    velocity = total = 0.0
    for _ in range(steps):
        velocity = optimizer.momentum * velocity + 1
        total += 1 + optimizer.momentum * velocity if optimizer.nesterov else velocity
    return total
