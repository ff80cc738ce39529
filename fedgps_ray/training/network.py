"""A live model whose parameters, gradients and BatchNorm statistics are views into flat vectors."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from fedgps_ray.models.base import Model
from fedgps_ray.tensors import Layout, Params, pieces, views


def layout_of(model: nn.Module) -> Layout:
    """Return where each parameter and each floating-point buffer will lie."""
    weights = [(name, tuple(p.shape)) for name, p in model.named_parameters()]
    buffers = [(n, tuple(b.shape)) for n, b in model.named_buffers() if b.is_floating_point()]
    return Layout(pieces(weights), pieces(buffers))


def _slots(model: nn.Module, names: list[str]) -> Iterator[tuple[nn.Module, str, str]]:
    for full in names:
        owner, _, name = full.rpartition(".")
        yield model.get_submodule(owner), name, full


class Network:
    """A model bound to vectors of weights, gradients and buffers; each change shows in both."""

    def __init__(self, model: Model, device: torch.device, dtype: torch.dtype) -> None:
        self.model = model
        self.layout = layout_of(model)
        size = {part: (p[-1].end if p else 0) for part, p in self.layout._asdict().items()}
        self.weights = torch.empty(size["weights"], device=device, dtype=dtype)
        self.grads = torch.zeros_like(self.weights)
        self.buffers = torch.empty(size["buffers"], device=device, dtype=dtype)
        self._bind()

    def _bind(self) -> None:
        weights = views(self.weights, self.layout.weights)
        grads = views(self.grads, self.layout.weights)
        for owner, name, full in _slots(self.model, list(weights)):
            parameter = nn.Parameter(weights[full])
            parameter.grad = grads[full]
            setattr(owner, name, parameter)
        buffers = views(self.buffers, self.layout.buffers)
        for owner, name, full in _slots(self.model, list(buffers)):
            setattr(owner, name, buffers[full])

    def load(self, params: Params) -> None:
        """Take over the values of params."""
        self.weights.copy_(params.weights)
        self.buffers.copy_(params.buffers)

    def params(self) -> Params:
        """Return a copy of the present values."""
        return Params(self.weights.clone(), self.buffers.clone())

    def features(self, x: Tensor) -> Tensor:
        """Return the input of the last linear layer."""
        return self.model.features(x)

    def head(self, z: Tensor) -> Tensor:
        """Return the logits of features."""
        logits: Tensor = self.model.head(z)
        return logits

    def __call__(self, x: Tensor) -> Tensor:
        """Return the logits of images."""
        return self.head(self.features(x))
