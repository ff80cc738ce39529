import math

import pytest
import torch
from torch import nn

from fedgps_ray.data.batches import Batch
from fedgps_ray.methods.fedavg import FedAvg
from fedgps_ray.methods.feddecorr import FedDecorr
from fedgps_ray.models.base import Model
from fedgps_ray.tensors import Params
from fedgps_ray.training.local import Client, Local, Sgd
from fedgps_ray.training.network import Network


@pytest.fixture
def blank():
    """A client whose features are its inputs and whose head is zero: cross-entropy is ln 2."""
    network = Network(Model(nn.Identity(), 2, 2), torch.device("cpu"), torch.float64)
    network.load(Params(torch.zeros(6, dtype=torch.float64), torch.zeros(0)))
    return Local(network, Client(0, (2,)), 0, 2, 1, Sgd(), 0.01, None)


@pytest.mark.parametrize(
    ("options", "added"),
    [
        ({}, 0.05),  # R = 0.5
        ({"coefficient": 1.0}, 0.5),
        ({"form": "paper"}, 0.1),  # R = 1 in the paper's scaling
        ({"coefficient": 0.0}, 0.0),
    ],
)
def test_loss_is_cross_entropy_plus_penalty(blank, options, added):
    x = torch.tensor([[1.0, 1.0], [-1.0, -1.0]], dtype=torch.float64)
    loss = FedDecorr(**options).loss(blank, Batch(x, torch.tensor([0, 1])))
    assert float(loss.detach()) == pytest.approx(math.log(2) + added, abs=1e-7)


def test_single_example_adds_nothing(blank):
    x = torch.tensor([[1.0, 2.0]], dtype=torch.float64)
    loss = FedDecorr().loss(blank, Batch(x, torch.tensor([0])))
    assert float(loss.detach()) == pytest.approx(math.log(2))


def test_no_penalty_is_fedavg(hashes):
    plain = hashes(FedAvg())
    assert hashes(FedDecorr(coefficient=0.0)) == plain
    assert hashes(FedDecorr())[0] != plain[0]


def test_batches_of_one_example_with_batchnorm(quick):
    data = {"name": "synthetic", "image_size": 4, "train_size": 30, "test_size": 10}
    finished = quick(FedDecorr(), dataset=data, clients=2, batch_size=1, rounds=1)
    assert finished[0].clients[0]["steps"] == finished[0].clients[0]["samples"]


def test_costs_are_those_of_fedavg(quick, traffic):
    assert traffic(FedDecorr(), rounds=1) == pytest.approx([1.0] * 4, rel=0.01)
    row = quick(FedDecorr(), rounds=1)[0].row
    assert row["gradient_evaluations"] == row["steps"]


def test_settings_are_those_of_the_paper():
    assert FedDecorr().coefficient == 0.1
    assert FedDecorr.optimizer == Sgd(lr=0.01, momentum=0.9, weight_decay=1e-5)


@pytest.mark.parametrize("wrong", [{"coefficient": -0.1}, {"form": "other"}, {"lambda": 1.0}])
def test_wrong_settings_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        FedDecorr(**wrong)
