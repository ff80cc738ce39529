"""FedGPS-CF (NeurIPS 2025): FedGPS without its extra download; received models stand for it."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple

from pydantic.dataclasses import dataclass
from torch import Tensor

from fedgps_ray.errors import UserError
from fedgps_ray.methods.base import STRICT, About, Turn
from fedgps_ray.methods.fedgps import FedGPS, Message, without_own
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
class FedGPSCF(FedGPS):
    """FedGPS at FedAvg's cost: clients infer the update from the models they received."""

    about: ClassVar[About] = FedGPS.about._replace(
        client="as FedGPS, the others' update inferred from two received models",
        state="client: own update, momentum, last received model (3M); server: prototypes",
        down="M + Cd",
    )

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        **FedGPS.presets,
        # a newcomer has received no earlier model, so it cannot tell the others' update
        "paper": {"method": {**FedGPS.presets["paper"]["method"], "first_time": "none"}},
    }

    cf_remove_own: Literal["adjacent", "always"] = "adjacent"

    def __post_init__(self) -> None:
        if self.first_time == "global_update":
            raise UserError(
                "first_time = 'global_update' needs the update that FedGPS-CF does not send"
            )

    def send(self, state: Any, turn: Turn) -> Sequence[Any]:
        """Send the model and the prototypes only."""
        message = Message(state.params, None, state.prototypes, self._total(turn))
        return [message] * len(turn.clients)

    def others(self, local: Local, message: Any, memory: Any) -> Tensor | None:
        """Return how far the global model went since last time, without the own share."""
        if memory is None:
            return None
        went: Tensor = message.params.weights - memory.received
        if memory.round == local.round - 1:
            return without_own(went, memory, self.server_lr)
        if self.cf_remove_own == "always":
            return went.sub_(memory.delta, alpha=self.server_lr * memory.share)
        return went

    def remember(self, local: Local, message: Any, update: Update) -> Any:
        """Keep the received weights too."""
        kept = super().remember(local, message, update)
        return Memory(kept.round, kept.share, kept.delta, message.params.weights, kept.model)

    def fade(self, memory: Any) -> Any:
        """The own update is of use later only where it is always removed."""
        return memory if self.cf_remove_own == "always" else memory._replace(delta=None)
