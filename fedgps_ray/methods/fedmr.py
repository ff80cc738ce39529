"""FedMR (Hu et al., 2024): the server shuffles the layers of the models instead of averaging."""

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal, NamedTuple

import numpy as np
import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from fedgps_ray.methods.base import STRICT, About, Cohort, Reply, Turn, Work
from fedgps_ray.methods.fedavg import Averaging, Message
from fedgps_ray.tensors import Layout, Params, Piece, mean
from fedgps_ray.training.local import Local, train


class State(NamedTuple):
    """The server's state: one model for each place in a round, their mean, and where layers lie."""

    models: tuple[Params, ...]
    params: Params
    layout: Layout


@dataclass(frozen=True, config=STRICT)
class FedMR(Averaging[State, Message, Params, None]):
    """Each client trains another mixture of the last round's layers; only the mean is tested.

    A layer is an entry of the model's state, as in the authors' code, where a convolution and its
    BatchNorm can come from different clients, or a module, where they stay together.
    """

    name: ClassVar[str] = "fedmr"
    title: ClassVar[str] = "FedMR"
    about: ClassVar[About] = About(
        client="SGD on cross-entropy",
        server="layers shuffled among the models; tests their mean",
        state="server: a model for each client of a round",
        up="M",
        down="M",
        source="Hu et al., KDD 2024",
    )

    weighting: Literal["samples", "uniform"] = "uniform"
    averaging_rounds: int = Field(default=0, ge=0)  # the first rounds, which end in plain averaging
    layer: Literal["entry", "module"] = "entry"

    def init(self, params: Params, cohort: Cohort) -> State:
        """Start with equal models."""
        return State((params,) * cohort.per_round, params, cohort.layout)

    def send(self, state: State, turn: Turn) -> Sequence[Message]:
        """Send everyone a mixture; at first, and after a round of plain averaging, one model."""
        if turn.round <= self.averaging_rounds:
            return [Message(state.params)] * len(turn.clients)
        layers = by_module(state.layout) if self.layer == "module" else by_entry(state.layout)
        return [Message(p) for p in recombined(state.models, state.layout, layers, turn.rng)]

    def work(self, local: Local, message: Message, memory: None) -> Work[Params, None]:
        """Train from the received model and return the whole model."""
        done = train(local, message.params, self.gradient(local, message, memory))
        return Work(done.params, None, done.loss)

    def merge(self, state: State, replies: Sequence[Reply[Params]]) -> State:
        """Keep the models, and their mean for testing."""
        shares = self.shares([reply.client for reply in replies])
        models = tuple(reply.upload for reply in replies)
        weights = mean([model.weights for model in models], shares)
        buffers = mean([model.buffers for model in models], shares)
        return State(models, Params(weights, buffers), state.layout)


def by_entry(layout: Layout) -> dict[str, str]:
    """Return a layer of its own for each tensor."""
    return {piece.name: piece.name for piece in layout.weights + layout.buffers}


def by_module(layout: Layout) -> dict[str, str]:
    """Return the module of each tensor; one with running statistics belongs to the one before."""
    module_of = {p.name: p.name.rpartition(".")[0] for p in layout.weights + layout.buffers}
    follows = {module_of[piece.name] for piece in layout.buffers}
    layer_of: dict[str, str] = {}
    for module in dict.fromkeys(module_of.values()):
        last = next(reversed(layer_of.values()), None) if module in follows else None
        layer_of[module] = last or module
    return {name: layer_of[module] for name, module in module_of.items()}


def recombined(
    models: Sequence[Params], layout: Layout, layers: Mapping[str, str], rng: np.random.Generator
) -> list[Params]:
    """Return as many mixtures as models; each layer is shuffled by a permutation of its own."""
    orders = {layer: rng.permutation(len(models)) for layer in dict.fromkeys(layers.values())}
    weights, buffers = [m.weights for m in models], [m.buffers for m in models]

    def mixture(place: int) -> Params:
        source = {name: int(orders[layer][place]) for name, layer in layers.items()}
        return Params(
            _gathered(weights, layout.weights, source), _gathered(buffers, layout.buffers, source)
        )

    return [mixture(place) for place in range(len(models))]


def _gathered(
    vectors: Sequence[Tensor], layout: tuple[Piece, ...], source: Mapping[str, int]
) -> Tensor:
    """Return a vector whose pieces come from the sources named."""
    result = torch.empty_like(vectors[0])
    for piece in layout:
        here = slice(piece.start, piece.end)
        result[here] = vectors[source[piece.name]][here]
    return result
