"""A live model whose parameters, gradients and BatchNorm statistics are views into flat vectors."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from fedgps_ray.models.base import Model
from fedgps_ray.models.outside import Adapted, followed, root, trained
from fedgps_ray.models.randomness import seeded
from fedgps_ray.tensors import Layout, Params, Piece, pieces, views
from fedgps_ray.training.arithmetic import Arithmetic
from fedgps_ray.training.chain import chain_of
from fedgps_ray.training.compiled import Compiled


def layout_of(model: nn.Module, channels_last: bool = False) -> Layout:
    """Return where each parameter that is trained and each statistic will lie, and how."""
    weights = [(name, tuple(p.shape)) for name, p in trained(model)]
    buffers = [(name, tuple(b.shape)) for name, b in followed(model)]
    head = model.split.layer if isinstance(model, Adapted) else "head"
    laid = pieces(weights)
    if channels_last:
        laid = tuple(piece._replace(channels_last=len(piece.shape) == 4) for piece in laid)
    return Layout(laid, pieces(buffers), head)


class Place(NamedTuple):
    """Where a module keeps a tensor."""

    owner: nn.Module
    attribute: str
    name: str

    def get(self) -> Tensor:
        """Return the tensor that is there now."""
        tensor: Tensor = getattr(self.owner, self.attribute)
        return tensor

    def put(self, tensor: Tensor) -> None:
        """Put another one there."""
        setattr(self.owner, self.attribute, tensor)


class Network:
    """A model bound to vectors of weights, gradients and buffers; each change shows in both."""

    def __init__(
        self,
        model: Model,
        device: torch.device,
        dtype: torch.dtype,
        cast: torch.dtype | None = None,
        channels_last: bool = False,
    ) -> None:
        self.model, self._arithmetic = model, Arithmetic(dtype, cast)
        self._compiled: Compiled | None = None
        self.layout = layout_of(model, channels_last)
        self.weights = torch.empty(_size(self.layout.weights), device=device, dtype=dtype)
        self.grads = torch.zeros_like(self.weights)
        self.buffers = torch.empty(_size(self.layout.buffers), device=device, dtype=dtype)
        net = root(model)
        self._parameters = _places(net, net.named_parameters(remove_duplicate=False))
        self._buffers = _places(net, net.named_buffers(remove_duplicate=False))
        self._statistics = views(self.buffers, self.layout.buffers)
        self._bind()
        self._constants = self._moved_constants()
        self._restore_constants()
        _keep_recurrent_weights(net)
        self.chain = None if cast else chain_of(model)

    def _bind(self) -> None:
        grads = views(self.grads, self.layout.weights)
        for name, view in views(self.weights, self.layout.weights).items():
            _take_over(view, self._parameters[name][0].get())
            _bound(self._parameters[name], view).grad = grads[name]
        for name, view in self._statistics.items():
            _take_over(view, self._buffers[name][0].get())
            for place in self._buffers[name]:
                place.put(view)

    def _moved_constants(self) -> dict[str, Tensor]:
        """Bring what is neither trained nor averaged to the device; return the buffers in it."""
        weights = {piece.name for piece in self.layout.weights}
        for name in self._parameters.keys() - weights:
            frozen = nn.Parameter(self._moved(self._parameters[name][0].get()), False)
            for place in self._parameters[name]:
                place.put(frozen)
        others = [name for name in self._buffers if name not in self._statistics]
        return {name: self._moved(self._buffers[name][0].get()) for name in others}

    def _restore_constants(self) -> None:
        for name, first in self._constants.items():
            tensor = first.clone()
            for place in self._buffers[name]:
                place.put(tensor)

    def _moved(self, tensor: Tensor) -> Tensor:
        dtype = self.weights.dtype if tensor.is_floating_point() else tensor.dtype
        if _can_copy(tensor, self.weights):
            return tensor.detach().to(self.weights.device, dtype)
        return torch.zeros(tensor.shape, device=self.weights.device, dtype=dtype)

    def load(self, params: Params) -> None:
        """Take over the values of params; counters and the like begin again."""
        self._gather()
        self.weights.copy_(params.weights)
        self.buffers.copy_(params.buffers)
        self._restore_constants()

    def params(self) -> Params:
        """Return a copy of the present values."""
        self._gather()
        return Params(self.weights.clone(), self.buffers.clone())

    def statistics(self) -> Tensor:
        """Return a copy of the present buffers."""
        self._gather()
        return self.buffers.clone()

    def restore_statistics(self, buffers: Tensor) -> None:
        """Take over buffers, and leave everything else as it is."""
        self._gather()
        self.buffers.copy_(buffers)

    def _gather(self) -> None:
        """Bring home the statistics that a model replaced where it could have changed them."""
        for name, view in self._statistics.items():
            for place in self._buffers[name]:
                if place.get() is not view:
                    view.copy_(place.get().detach())
                    place.put(view)

    def state_dict(self, params: Params) -> dict[str, Tensor]:
        """Return copies of params by the names of the model, with all that it does not train."""
        values = views(params.weights, self.layout.weights)
        values |= views(params.buffers, self.layout.buffers) | self._constants
        saved = root(self.model).state_dict()
        first = {p.name: name for named in self._all() for name, places in named for p in places}
        known = [name for name in saved if name in first]
        return {name: values.get(first[name], saved[name]).clone() for name in known}

    def _all(self) -> list[Iterable[tuple[str, list[Place]]]]:
        return [self._parameters.items(), self._buffers.items()]

    def casting(self) -> AbstractContextManager[None]:
        """Return the context of the forward pass and the loss: with bf16, PyTorch's autocast."""
        return self._arithmetic.casting(self.weights.device)

    def compile(self, rows: Collection[int]) -> None:
        """From now on compute features for steps on batches of these sizes with compiled code."""
        self._compiled = Compiled(self.model.features, rows, self.weights.device)
        self.chain = None

    def features(self, x: Tensor) -> Tensor:
        """Return the input of the last linear layer."""
        fast = self._compiled if self.model.training else None
        return self._computed(fast or self.model.features, x)

    def head(self, z: Tensor) -> Tensor:
        """Return the logits of features."""
        return self._computed(self.model.head, z)

    def __call__(self, x: Tensor) -> Tensor:
        """Return the logits of inputs."""
        if isinstance(self.model, Adapted):  # it may have no head that is known
            return self._computed(self.model, x)
        return self.head(self.features(x))

    def _computed(self, part: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        """Return the output of a part in the type of the weights: sums of it need all digits."""
        if self._arithmetic.cast is None:
            return part(x)
        with self.casting():
            return part(x).to(self.weights.dtype)

    @contextmanager
    def drawing(self, stream: Callable[[], np.random.Generator]) -> Iterator[None]:
        """Let layers that draw, such as dropout, draw from a stream.

        Built-in models have none; in others nobody can tell, so the generators are always seeded.
        stream: makes the stream, if it is needed.
        """
        if not isinstance(self.model, Adapted):
            yield
            return
        with seeded(int(stream().integers(2**63)), self.weights.device):
            yield


def _size(laid: tuple[Piece, ...]) -> int:
    return laid[-1].end if laid else 0


def _places(net: nn.Module, named: Iterable[tuple[str, Tensor]]) -> dict[str, list[Place]]:
    """Return, for the first name of each tensor, all places that share it."""
    first: dict[int, str] = {}
    places: dict[str, list[Place]] = defaultdict(list)
    for name, tensor in named:
        owner, _, attribute = name.rpartition(".")
        place = Place(net.get_submodule(owner), attribute, name)
        places[first.setdefault(id(tensor), name)].append(place)
    return dict(places)


def _take_over(view: Tensor, values: Tensor) -> None:
    if _can_copy(values, view):
        view.copy_(values.detach())


def _can_copy(values: Tensor, to: Tensor) -> bool:
    """Say whether there are values, and a place that can take them: fake tensors take no real."""
    return not values.is_meta and _is_fake(values) == _is_fake(to)


def _is_fake(tensor: Tensor) -> bool:
    return hasattr(tensor, "fake_mode")


def _bound(places: list[Place], view: Tensor) -> Tensor:
    """Let a parameter be a view; the object stays, if it can, for whoever else refers to it."""
    parameter = places[0].get()
    fake = _is_fake(parameter) or _is_fake(view)  # their device cannot be changed
    if not fake and parameter.is_meta == view.is_meta:
        parameter.data = view
        return parameter
    parameter = nn.Parameter(view)
    for place in places:
        place.put(parameter)
    return parameter


def _keep_recurrent_weights(net: nn.Module) -> None:
    """Let recurrent layers never move their weights to memory of their own, as for cuDNN."""
    for module in net.modules():
        if isinstance(module, nn.RNNBase):
            vars(module)["flatten_parameters"] = _nothing


def _nothing() -> None:
    pass
