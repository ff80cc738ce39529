import pytest
import torch
from torch import nn

from fedgps_ray.methods import fedasam
from fedgps_ray.methods.fedasam import FedASAM, adaptive_places
from fedgps_ray.methods.fedavg import FedAvg, Message
from fedgps_ray.models import build
from fedgps_ray.models.base import Model
from fedgps_ray.tensors import Params, views
from fedgps_ray.training.local import Sgd
from fedgps_ray.training.network import Network, layout_of


def vector(*values):
    return torch.tensor(values, dtype=torch.float64)


@pytest.fixture
def linear(client):
    """A client whose model is one weight and one bias."""

    def make(weight, bias, **settings):
        local = client(0.0, **settings)
        local.network = Network(Model(nn.Identity(), 1, 1), torch.device("cpu"), torch.float64)
        local.network.load(Params(vector(weight, bias), vector()))
        return local

    return make


@pytest.fixture
def follow(monkeypatch):
    """Put a loss of (weight, bias) in place of cross-entropy and note where it is taken."""

    def use(loss):
        points = []

        def noted(local, batch):
            points.append(local.network.weights.clone())
            return loss(*(p.sum() for p in local.network.model.parameters()))

        monkeypatch.setattr(fedasam, "cross_entropy", noted)
        return points

    return use


def test_momentum_and_weight_decay_see_the_second_gradient_only(linear, follow):
    # loss w^2 / 2, wd 0.5, momentum 0.9, lr 0.1: g1 = 1, ascent 0.1, G = 1.1 + 0.5 -> 0.84
    # then g1 = 0.84, ascent 0.1 * 0.84, G = 0.924 + 0.42, v = 1.44 + 1.344 = 2.784 -> 0.5616
    follow(lambda weight, bias: weight.square() / 2 + 0 * bias)
    local = linear(1.0, 0.0, steps=2, lr=0.1, momentum=0.9, weight_decay=0.5)
    work = FedASAM().work(local, Message(local.network.params()), None)
    assert work.upload.delta.tolist() == pytest.approx([0.5616 - 1.0, 0.0], abs=1e-12)
    assert work.loss == pytest.approx((0.5 + 0.84**2 / 2) / 2)


def test_weights_are_restored_exactly(linear, follow):
    points = follow(lambda weight, bias: weight + 3 * bias)
    local = linear(1 / 3, 1e-9, steps=2, lr=1e-30)
    FedASAM().work(local, Message(local.network.params()), None)
    assert torch.equal(points[0], points[2])
    assert not torch.equal(points[0], points[1])


def test_zero_gradient_stays_finite():
    nothing = vector(0.0, 0.0)
    shift = FedASAM().ascent(vector(2.0, -1.0), nothing, torch.ones(2, dtype=torch.bool))
    assert torch.equal(shift, nothing)


def test_weights_of_zero_move_only_with_eta():
    everywhere = torch.ones(2, dtype=torch.bool)
    at, gradient = vector(0.0, 1.0), vector(1.0, 1.0)
    assert float(FedASAM().ascent(at, gradient, everywhere)[0]) == 0.0
    assert float(FedASAM(eta=0.2).ascent(at, gradient, everywhere)[0]) > 0.0


def test_scales_of_batchnorm_are_adaptive_and_biases_are_not():
    with torch.device("meta"):
        layout = layout_of(build("convnet", (3, 8, 8), 10)).weights
    found = views(adaptive_places(torch.empty(layout[-1].end), layout), layout)
    assert found["body.1.weight"].all()
    assert {name for name, here in found.items() if not here.any()} == {
        "body.1.bias",
        "body.5.bias",
        "body.9.bias",
        "head.bias",
    }


def test_no_ascent_is_fedavg_but_for_statistics_updated_twice(quick):
    plain, none = quick(FedAvg()), quick(FedASAM(rho=0.0))
    assert [f.row["weights_sha256"] for f in none] == [f.row["weights_sha256"] for f in plain]
    buffers = [f[-1].snapshot.state.params.buffers for f in (plain, none)]
    assert not torch.equal(*buffers)
    assert quick(FedASAM(), rounds=1)[0].row["weights_sha256"] != plain[0].row["weights_sha256"]


def test_batches_of_one_example_with_batchnorm(quick):
    data = {"name": "synthetic", "image_size": 4, "train_size": 30, "test_size": 10}
    finished = quick(FedASAM(), dataset=data, clients=2, batch_size=1, rounds=1)
    assert finished[0].clients[0]["steps"] == finished[0].clients[0]["samples"]


def test_settings_are_those_of_the_paper():
    assert (FedASAM().rho, FedASAM().eta) == (0.1, 0.0)
    assert FedASAM.optimizer == Sgd(lr=0.01, momentum=0.9, weight_decay=1e-5)


@pytest.mark.parametrize("wrong", [{"rho": -0.1}, {"eta": -1.0}, {"adaptive": "x"}, {"Rho": 0.1}])
def test_wrong_settings_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        FedASAM(**wrong)
