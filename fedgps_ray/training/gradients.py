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
        local.backward_passes += 1
        if loss is cross_entropy and local.network.chain is not None:
            return local.network.chain.cross_entropy(batch.x, batch.y)
        with local.network.casting():
            value = loss(local, batch)
        torch.autograd.backward(value)
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


def real_statistics(gradient: Gradient) -> Gradient:
    """Return the same gradient; running statistics then come from the real images alone.

    The pass that makes the gradient normalises by whatever is in its batch. What it does to the
    running statistics is undone, and the real images pass through the network once more, without a
    gradient and normalised by themselves, to update the statistics as in plain training.
    """

    def separate(local: Local, batch: Batch) -> Tensor:
        network = local.network
        if not network.buffers.numel():
            return gradient(local, batch)
        before = network.statistics()
        value = gradient(local, batch)
        network.restore_statistics(before)
        with torch.no_grad():
            network.features(batch.x)
        return value

    return separate


def ahead_sizes(shift: Tensor | None, start: Tensor, update: Tensor) -> dict[str, float]:
    """Return how long a shift is compared with the weights and with the update, in one read."""
    if shift is None:
        return {}
    vectors = (shift, start, update)
    norms = torch.stack([torch.linalg.vector_norm(v, dtype=torch.float64) for v in vectors])
    length, weights, way = norms.tolist()
    sizes = {"ahead_to_weights": (length, weights), "ahead_to_update": (length, way)}
    return {name: length / size for name, (length, size) in sizes.items() if size}
