"""Gradients made from losses and from other gradients."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from fedgps_ray.data.batches import Batch
from fedgps_ray.training.local import Gradient, Local

Loss = Callable[[Local, Batch], Tensor]


def cross_entropy(local: Local, batch: Batch) -> Tensor:
    """Return the mean cross-entropy over all outputs."""
    return F.cross_entropy(local.network(batch.x), batch.y)


def backprop(loss: Loss) -> Gradient:
    """Return the plain gradient of a loss."""

    def gradient(local: Local, batch: Batch) -> Tensor:
        with local.network.casting():
            value = loss(local, batch)
        torch.autograd.backward(value)
        local.backward_passes += 1
        return value.detach()

    return gradient


def plus(gradient: Gradient, term: Callable[[Local], Tensor]) -> Gradient:
    """Return the gradient with a vector added, before clipping and momentum."""

    def corrected(local: Local, batch: Batch) -> Tensor:
        value = gradient(local, batch)
        local.network.grads.add_(term(local))
        return value

    return corrected


def shifted(gradient: Gradient, shift: Tensor) -> Gradient:
    """Return the gradient taken at weights + shift; the weights are restored from a copy."""
    kept = torch.empty_like(shift)

    def elsewhere(local: Local, batch: Batch) -> Tensor:
        weights = local.network.weights
        kept.copy_(weights)
        weights.add_(shift)
        value = gradient(local, batch)
        weights.copy_(kept)
        return value

    return elsewhere
