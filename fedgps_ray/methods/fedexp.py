"""FedExP (Jhunjhunwala et al., 2023): the more the clients' updates differ, the longer the step."""

from collections.abc import Sequence
from typing import ClassVar, Literal, NamedTuple

from pydantic.dataclasses import dataclass

from fedgps_ray.methods.averages import averages, by_shares
from fedgps_ray.methods.base import STRICT, About, Ask, Cohort, Reply, Turn
from fedgps_ray.methods.fedavg import FedAvgWith
from fedgps_ray.tensors import Params, Update, norm, step
from fedgps_ray.training.local import NotNegative, Positive, Sgd

AUTHORS_DECAY = 0.998


class State(NamedTuple):
    """The server's state: the model, the one before it (None at first), the rounds done."""

    params: Params
    previous: Params | None
    rounds: int


@dataclass(frozen=True, config=STRICT)
class FedExP(FedAvgWith[State, None]):
    """FedAvg with a server step that grows with the diversity of the updates; tests a mean of two.

    step = max(min_step, sum_k p_k |D_k|^2 / (2 (|D|^2 + eps))), D the mean of the updates D_k

    The eps_rule "authors" multiplies eps by the number of clients and by 0.998^2 every round, as
    the authors' code does. The model tested is the mean of the last two; which BatchNorm statistics
    belong to it is open.
    """

    name: ClassVar[str] = "fedexp"
    title: ClassVar[str] = "FedExP"
    about: ClassVar[About] = FedAvgWith.about._replace(
        server="mean update times an adaptive step; tests the mean of the last two models",
        state="server: previous model (M)",
        source="Jhunjhunwala et al., ICLR 2023",
    )
    optimizer: ClassVar[Sgd] = Sgd(lr_decay=0.998)

    eps: Positive = 1e-3
    min_step: NotNegative = 1.0
    eps_rule: Literal["plain", "authors"] = "plain"
    tested_buffers: Literal["newest", "mean"] = "newest"

    def init(self, params: Params, cohort: Cohort) -> State:
        """Start without a previous model."""
        return State(params, None, 0)

    @averages(by_shares)
    def merge(self, state: State, replies: Sequence[Reply[Update]]) -> State:
        """Move the weights by a multiple of the mean update; buffers are averaged."""
        update = self.average(replies)
        params = step(state.params, update, self.length(update, replies, state.rounds))
        return State(params, state.params if state.rounds else None, state.rounds + 1)

    def length(self, update: Update, replies: Sequence[Reply[Update]], rounds: int) -> float:
        """Return the server step."""
        shares = self.shares([reply.client for reply in replies])
        squares = [how_far(reply) ** 2 for reply in replies]
        spread = sum(p * s for p, s in zip(shares, squares, strict=True)) / sum(shares)
        eps = self.eps
        if self.eps_rule == "authors":
            eps *= len(replies) * AUTHORS_DECAY ** (2 * (rounds + 1))
        return max(self.min_step, spread / (2 * (norm(update.delta) ** 2 + eps)))

    def deploy(self, state: State, turn: Turn, ask: Ask) -> Params:
        """Test the mean of the last two models; training goes on from the last."""
        last, before = state.params, state.previous
        if before is None:
            return self.global_params(state)
        mean_buffers = self.tested_buffers == "mean"
        buffers = (last.buffers + before.buffers) / 2 if mean_buffers else last.buffers
        return Params((last.weights + before.weights) / 2, buffers)


def how_far(reply: Reply[Update]) -> float:
    """Return the norm of a client's update, which it tells if the update itself was added up."""
    return norm(reply.upload.delta) if reply.update_norm is None else reply.update_norm
