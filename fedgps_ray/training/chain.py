"""The gradient of the mean cross-entropy through a plain chain of layers, without autograd.

It calls the operations that autograd would call, so the bits are the same. A step of a small
network spends half of its time on autograd's records; here there are none.
"""

from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from fedgps_ray.models.base import Model

IGNORED = -100  # the label that cross-entropy ignores, as in PyTorch
aten: Any = torch.ops.aten


class Layer(Protocol):
    """A layer that can go forward, and back with what it saved on the way."""

    def forward(self, x: Tensor) -> tuple[Tensor, Any]:
        """Return the output, and what `backward` needs."""

    def backward(self, grad: Tensor, saved: Any, is_first: bool) -> Tensor:
        """Add to the gradients of the weights; return that of the input, unless it is the first."""


class Affine:
    """nn.Linear."""

    def __init__(self, layer: nn.Linear) -> None:
        self.weight, self.bias = layer.weight.detach(), layer.bias.detach()
        self.to_weight, self.to_bias = layer.weight.grad, layer.bias.grad

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the output and the input."""
        return torch.addmm(self.bias, x, self.weight.t()), x

    def backward(self, grad: Tensor, saved: Tensor, is_first: bool) -> Tensor:
        """Go back."""
        assert self.to_weight is not None
        assert self.to_bias is not None
        self.to_weight.addmm_(grad.t(), saved)
        self.to_bias.add_(grad.sum(0))
        return grad if is_first else grad.mm(self.weight)


class Convolution:
    """nn.Conv2d with zero padding."""

    def __init__(self, layer: nn.Conv2d) -> None:
        assert layer.bias is not None
        self.weight, self.bias = layer.weight.detach(), layer.bias.detach()
        self.to_weight, self.to_bias = layer.weight.grad, layer.bias.grad
        self.shape = (layer.stride, layer.padding, layer.dilation, False, [0, 0], layer.groups)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the output and the input."""
        return aten.convolution.default(x, self.weight, self.bias, *self.shape), x

    def backward(self, grad: Tensor, saved: Tensor, is_first: bool) -> Tensor:
        """Go back."""
        assert self.to_weight is not None
        assert self.to_bias is not None
        back, weight, bias = aten.convolution_backward.default(
            grad,
            saved,
            self.weight,
            self.bias.shape,
            *self.shape,
            [not is_first, True, True],
        )
        self.to_weight.add_(weight)
        self.to_bias.add_(bias)
        return grad if is_first else back


class Rectified:
    """nn.ReLU."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the output twice: it says where a gradient passes."""
        y = torch.relu(x)
        return y, y

    def backward(self, grad: Tensor, saved: Tensor, is_first: bool) -> Tensor:
        """Go back."""
        passed: Tensor = aten.threshold_backward.default(grad, saved, 0)
        return passed


class Pooled:
    """nn.MaxPool2d."""

    def __init__(self, layer: nn.MaxPool2d) -> None:
        shape = (layer.kernel_size, layer.stride, layer.padding, layer.dilation)
        self.shape = [[n, n] if isinstance(n, int) else list(n) for n in shape]
        self.ceil = layer.ceil_mode

    def forward(self, x: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Return the output, and the input with the places of the largest values."""
        y, places = aten.max_pool2d_with_indices.default(x, *self.shape, self.ceil)
        return y, (x, places)

    def backward(self, grad: Tensor, saved: tuple[Tensor, Tensor], is_first: bool) -> Tensor:
        """Go back."""
        x, places = saved
        back: Tensor = aten.max_pool2d_with_indices_backward.default(
            grad, x, *self.shape, self.ceil, places
        )
        return back


class Flattened:
    """nn.Flatten from the second dimension on."""

    def forward(self, x: Tensor) -> tuple[Tensor, torch.Size]:
        """Return the output and the shape of the input."""
        return x.flatten(1), x.shape

    def backward(self, grad: Tensor, saved: torch.Size, is_first: bool) -> Tensor:
        """Go back."""
        return grad if is_first else grad.reshape(saved)


class Chain:
    """A model as a list of such layers, the head last."""

    def __init__(self, layers: Sequence[Layer]) -> None:
        self.layers = layers
        trained = [i for i, layer in enumerate(layers) if isinstance(layer, Affine | Convolution)]
        self.first = trained[0]

    @torch.no_grad()
    def cross_entropy(self, x: Tensor, labels: Tensor) -> Tensor:
        """Return the mean loss of a batch; its gradient is added to that of the weights."""
        kept = []
        for layer in self.layers:
            x, saved = layer.forward(x)
            kept.append(saved)
        logs = torch.log_softmax(x, 1)
        loss, total = aten.nll_loss_forward.default(logs, labels, None, 1, IGNORED)
        grad = aten.nll_loss_backward.default(
            torch.ones_like(loss), logs, labels, None, 1, IGNORED, total
        )
        grad = aten._log_softmax_backward_data.default(grad, logs, 1, logs.dtype)
        for place in range(len(self.layers) - 1, self.first - 1, -1):
            grad = self.layers[place].backward(grad, kept[place], place == self.first)
        mean: Tensor = loss
        return mean


def chain_of(model: nn.Module) -> Chain | None:
    """Return a model as a chain, if all of its layers are of these kinds."""
    if type(model) is not Model or not isinstance(model.body, nn.Sequential):
        return None
    layers = [_layer(module) for module in (*model.body, model.head)]
    known = [layer for layer in layers if layer is not None]
    return Chain(known) if len(known) == len(layers) else None


def _layer(module: nn.Module) -> Layer | None:
    match module:
        case nn.Linear(bias=Tensor()):
            return Affine(module)
        case nn.Conv2d(bias=Tensor(), padding_mode="zeros", padding=tuple()):
            return Convolution(module)
        case nn.ReLU():
            return Rectified()
        case nn.MaxPool2d(return_indices=False):
            return Pooled(module)
        case nn.Flatten(start_dim=1, end_dim=-1):
            return Flattened()
    return None
