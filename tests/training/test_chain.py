"""The gradient without autograd has the bits of the one with it."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from fedgps_ray import seeds
from fedgps_ray.data.batches import Batch
from fedgps_ray.models import build, initialise
from fedgps_ray.models.base import Model
from fedgps_ray.training.gradients import backprop, cross_entropy
from fedgps_ray.training.network import Network


def network(model, dtype=torch.float32, cast=None):
    bound = Network(model, torch.device("cpu"), dtype, cast)
    initialise(bound.model, seeds.stream(0, "init"))
    return bound


def batch(size, shape, classes=10, dtype=torch.float32, channels_last=True):
    generator = torch.Generator().manual_seed(size)
    x = torch.randn(size, *shape, generator=generator, dtype=dtype)
    if channels_last and len(shape) == 3:
        x = x.contiguous(memory_format=torch.channels_last)
    return Batch(x, torch.randint(classes, (size,), generator=generator))


def by_autograd(bound, data):
    """Return loss and gradient as autograd has them, and leave the gradient at zero."""
    loss = F.cross_entropy(bound(data.x), data.y)
    loss.backward()
    grads = bound.grads.clone()
    bound.grads.zero_()
    return loss.detach(), grads


@pytest.mark.parametrize("size", [1, 2, 7, 50, 64])
@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("mlp", (3, 8, 8)),
        ("mlp", (1, 28, 28)),
        ("mlp", (20,)),
        ("cnn", (3, 32, 32)),
        ("cnn", (1, 8, 8)),
        ("cnn", (3, 13, 10)),
    ],
)
def test_built_in_models_give_the_bits_of_autograd(name, shape, size):
    bound, data = network(build(name, shape, 10)), batch(size, shape)
    loss, grads = by_autograd(bound, data)
    assert torch.equal(bound.chain.cross_entropy(data.x, data.y), loss)
    assert torch.equal(bound.grads, grads)
    assert grads.count_nonzero()


@pytest.mark.parametrize("channels_last", [False, True])
def test_also_in_float64_and_in_either_memory_order(channels_last):
    bound = network(build("cnn", (3, 16, 16), 20), torch.float64)
    data = batch(9, (3, 16, 16), 20, torch.float64, channels_last)
    loss, grads = by_autograd(bound, data)
    assert torch.equal(bound.chain.cross_entropy(data.x, data.y), loss)
    assert torch.equal(bound.grads, grads)


def test_also_with_layers_of_other_shapes():
    body = nn.Sequential(
        nn.ReLU(),  # before the first layer that is trained
        nn.Conv2d(4, 6, 3, stride=2, padding=1, dilation=2, groups=2),
        nn.MaxPool2d(3, 2, padding=1, ceil_mode=True),
        nn.ReLU(),
        nn.Conv2d(6, 5, (1, 3)),
        nn.Flatten(),
    )
    features = body(torch.zeros(1, 4, 17, 15)).shape[1]
    bound, data = network(Model(body, features, 3)), batch(6, (4, 17, 15), 3)
    loss, grads = by_autograd(bound, data)
    assert torch.equal(bound.chain.cross_entropy(data.x, data.y), loss)
    assert torch.equal(bound.grads, grads)


def test_gradients_of_several_batches_add_up(toys):
    local = toys.local(network(build("mlp", (1, 4, 4), 10)))
    first, second = (batch(size, (1, 4, 4)) for size in (5, 8))
    each = [by_autograd(local.network, data)[1] for data in (first, second)]
    gradient = backprop(cross_entropy)
    gradient(local, first)
    gradient(local, second)
    torch.testing.assert_close(local.network.grads, each[0] + each[1])
    assert local.backward_passes == 2


def test_weights_that_were_moved_count(toys):
    bound, data = network(build("mlp", (1, 4, 4), 10)), batch(5, (1, 4, 4))
    bound.weights.add_(0.1)
    loss, grads = by_autograd(bound, data)
    assert torch.equal(bound.chain.cross_entropy(data.x, data.y), loss)
    assert torch.equal(bound.grads, grads)


def test_models_with_other_layers_are_left_to_autograd():
    for name in ("convnet", "resnet18", "vit"):
        assert network(build(name, (3, 32, 32), 10)).chain is None
    without_bias = Model(nn.Sequential(nn.Flatten(), nn.Linear(4, 2, bias=False)), 2, 3)
    assert network(without_bias).chain is None


def test_another_precision_is_left_to_autograd():
    assert network(build("mlp", (1, 4, 4), 10), cast=torch.bfloat16).chain is None


def test_a_model_that_only_looks_like_one_of_ours_is_left_to_autograd():
    class Twice(Model):
        def features(self, x):
            return 2 * super().features(x)

    plain = build("mlp", (1, 4, 4), 10)
    assert network(copy.deepcopy(plain)).chain is not None
    assert network(Twice(plain.body, 32, 10)).chain is None
