import pytest
import torch
from torch import nn

from fedgps_ray.data.batches import Batch
from fedgps_ray.models.base import Model
from fedgps_ray.models.norm import BatchNorm
from fedgps_ray.tensors import Params
from fedgps_ray.training.local import Client, Local, Sgd
from fedgps_ray.training.network import Network


class Scripted:
    """Hands out the given batches in their order, again in every epoch."""

    def __init__(self, batches):
        self.batches = batches

    def shuffled(self, epochs):
        for epoch in range(epochs):
            for batch in self.batches:
                yield batch._replace(epoch=epoch)

    def plain(self):
        return iter(self.batches)


class Toys:
    """Small networks, and Locals made from a few tensors."""

    def scalar(self, value=1.0, dtype=torch.float64):
        """One trained number; its features are w * x, its head is fixed to the identity."""
        model = Model(nn.Linear(1, 1, bias=False), 1, 1)
        model.head = nn.Identity()
        return self.loaded(model, [value], [], dtype)

    def convolution(self, dtype=torch.float32):
        """Return a convolution, BatchNorm and a head: 2*9 + 2 + 2 + 3*2 + 3 weights, 4 buffers."""
        body = nn.Sequential(
            nn.Conv2d(1, 2, 3, padding=1, bias=False),
            BatchNorm(2),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
        )
        generator = torch.Generator().manual_seed(5)
        weights = torch.randn(31, generator=generator, dtype=torch.float64)
        return self.loaded(Model(body, 2, 3), weights, [0.1, -0.2, 1.0, 2.0], dtype)

    def loaded(self, model, weights, buffers, dtype):
        network = Network(model, torch.device("cpu"), dtype)
        network.load(
            Params(torch.as_tensor(weights, dtype=dtype), torch.tensor(buffers, dtype=dtype))
        )
        return network

    def images(self, sizes=(4, 4, 3), dtype=torch.float32):
        generator = torch.Generator().manual_seed(6)
        return [
            Batch(
                torch.randn(size, 1, 4, 4, generator=generator, dtype=dtype),
                torch.randint(3, (size,), generator=generator),
            )
            for size in sizes
        ]

    def local(self, network, batches=(), epochs=1, velocity=None, **optimizer):
        sgd = Sgd(**{"momentum": 0.0, "weight_decay": 0.0, **optimizer})
        client = Client(0, (1,))
        data = Scripted(list(batches))
        return Local(network, client, 0, 1, epochs, sgd, sgd.lr, data, velocity=velocity)


@pytest.fixture
def toys():
    return Toys()
