"""FedGPS-CF (NeurIPS 2025): FedGPS without its extra download: clients infer the update."""

from collections.abc import Sequence
from typing import ClassVar, Literal, NamedTuple

from pydantic.dataclasses import dataclass
from torch import Tensor

from fedgps_ray.errors import UserError
from fedgps_ray.methods.base import STRICT, About, Presets, Turn
from fedgps_ray.methods.fedgps import FedGPSWith, Message, State, without_own
from fedgps_ray.tensors import Params, Update
from fedgps_ray.training.local import Local


class Memory(NamedTuple):
    """As FedGPS's, and the weights the client received when it last took part."""

    round: int
    share: float
    delta: Tensor | None
    received: Tensor
    model: Params | None = None


@dataclass(frozen=True, config=STRICT)
class FedGPSCF(FedGPSWith[Memory]):
    """FedGPS at FedAvg's cost: clients infer the update from the models they received."""

    name: ClassVar[str] = "fedgps_cf"
    title: ClassVar[str] = "FedGPS-CF"
    about: ClassVar[About] = FedGPSWith.about._replace(
        client="as FedGPS, the others' update inferred from two received models",
        state="client: own update, momentum, last received model (3M); server: prototypes",
        down="M + Cd",
    )

    presets: ClassVar[Presets] = {
        **FedGPSWith.presets,
        # a newcomer has received no earlier model, so it cannot tell the others' update
        "paper": {
            **FedGPSWith.presets["paper"],
            "method": {**FedGPSWith.presets["paper"]["method"], "first_time": "none"},
        },
    }

    cf_remove_own: Literal["adjacent", "always"] = "adjacent"

    def __post_init__(self) -> None:
        if self.first_time == "global_update":
            raise UserError(
                "first_time = 'global_update' needs the update that FedGPS-CF does not send"
            )

    def send(self, state: State, turn: Turn) -> Sequence[Message]:
        """Send the model and the prototypes only."""
        message = Message(state.params, None, state.prototypes, self._total(turn))
        return [message] * len(turn.clients)

    def others(self, local: Local, message: Message, memory: Memory | None) -> Tensor | None:
        """Return how far the global model went since last time, without the client's own part."""
        if memory is None:
            return None
        went = message.params.weights - memory.received
        if memory.round == local.round - 1:
            return without_own(went, memory, self.server_lr)
        if self.cf_remove_own == "always" and memory.delta is not None:
            return went.sub_(memory.delta, alpha=self.server_lr * memory.share)
        return went

    def remember(self, local: Local, message: Message, update: Update) -> Memory:
        """Keep the received weights too."""
        kept = self.memory_of(local, message, update)
        return Memory(kept.round, kept.share, kept.delta, message.params.weights, kept.model)

    def fade(self, memory: Memory) -> Memory:
        """Drop the update unless it is always removed later."""
        return memory if self.cf_remove_own == "always" else memory._replace(delta=None)
