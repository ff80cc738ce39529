"""FedDyn (Acar et al., ICLR 2021): a regulariser that follows each client's own optimum."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from fedgps_ray.methods.base import BaseMethod, Cohort, Reply, Turn, Work
from fedgps_ray.tensors import Params, Update, mean, moved
from fedgps_ray.training.gradients import backprop, cross_entropy, plus
from fedgps_ray.training.local import Local, Positive, Sgd, train


class State(NamedTuple):
    """The server's: the model, h of the paper, the number of clients."""

    params: Params
    h: Tensor
    num_clients: int


class Memory(NamedTuple):
    """A client's: the gradient of its loss where it last ended, by the optimality condition."""

    gradient: Tensor


@dataclass(frozen=True)
class FedDyn(BaseMethod):
    """Local losses get -<g_k, w> + alpha/2 |w - theta|^2, so that all optima agree in the end."""

    optimizer: ClassVar[Sgd] = Sgd(client_momentum="reset")
    alpha: Positive = 0.1

    def init(self, params: Params, cohort: Cohort) -> State:  # noqa: D102
        return State(params, torch.zeros_like(params.weights), len(cohort.clients))

    def send(self, state: State, turn: Turn) -> Sequence[Params]:  # noqa: D102
        return [state.params] * len(turn.clients)

    def work(self, local: Local, message: Params, memory: Memory | None) -> Work:  # noqa: D102
        start = message.weights
        own = torch.zeros_like(start) if memory is None else memory.gradient
        dynamic = plus(
            backprop(cross_entropy), lambda now: self.alpha * (now.network.weights - start) - own
        )
        done = train(local, message, dynamic)
        update = moved(message, done.params)
        return Work(update, Memory(own - self.alpha * update.delta), done.loss)

    def merge(self, state: State, replies: Sequence[Reply[Update]]) -> State:  # noqa: D102
        uploads = [reply.upload for reply in replies]
        delta, buffers = (mean(v, [1.0] * len(v)) for v in zip(*uploads, strict=True))
        h = state.h - self.alpha * len(replies) / state.num_clients * delta
        weights = state.params.weights + delta - h / self.alpha
        return State(Params(weights, buffers), h, state.num_clients)
