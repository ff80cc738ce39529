import math

import pytest
import torch
from torch import nn

from fedgps_ray.data.batches import Batch
from fedgps_ray.methods.vhl import VHL
from fedgps_ray.models.base import Model
from fedgps_ray.models.norm import BatchNorm
from fedgps_ray.tensors import Params
from fedgps_ray.training.local import Client, Local, Sgd
from fedgps_ray.training.network import Network

SMALL = {"surrogate": {"per_class": 8, "batch_size": 16}}
LN4 = math.log(4)
CORNERS = torch.tensor([[1.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
LABELS = torch.tensor([0, 1])


class Constant:
    """A surrogate set that always hands out the same batch."""

    def __init__(self, batch):
        self.batch = batch

    def draw(self):
        return self.batch


def local_of(body, feature_dim, noise, head=0.0):
    """Return a client with two classes, a head of four outputs, and the given noise batch."""
    network = Network(Model(body, feature_dim, 4), torch.device("cpu"), torch.float64)
    network.load(Params(torch.zeros_like(network.weights), torch.zeros_like(network.buffers)))
    network.weights[-4:] = torch.as_tensor(head, dtype=torch.float64)
    return Local(network, Client(0, (1, 1)), 0, 2, 1, Sgd(), 0.01, None, Constant(noise))


@pytest.fixture
def corners():
    """A client whose features are its inputs, with the same two images as real and as noise."""
    return local_of(nn.Identity(), 2, Batch(CORNERS, LABELS))


@pytest.mark.parametrize(
    ("epoch", "options", "expected"),
    [
        (0, {}, 2 * LN4 + 0.5514447),
        (4, {}, 2 * LN4 + 0.5514447),
        (5, {}, 2 * LN4),  # later epochs do not align
        (2, {"align_epochs": 2}, 2 * LN4),
        (0, {"alpha": 0.5}, 1.5 * LN4 + 0.5514447),
        (0, {"w_align": 2.0}, 2 * LN4 + 2 * 0.5514447),
    ],
)
def test_loss_is_real_and_noise_cross_entropy_and_alignment(corners, epoch, options, expected):
    method = VHL(temperature=1.0, **options)
    loss = method.loss(corners, Batch(CORNERS, LABELS, epoch))
    assert float(loss.detach()) == pytest.approx(expected, abs=1e-7)


def test_noise_class_j_is_output_c_plus_j():
    # biases (0, 0, 3, 0): the real label 0 costs log(3 + e^3), the noise label 0 three less
    noise = Batch(CORNERS[:1], LABELS[:1])
    local = local_of(nn.Identity(), 2, noise, head=(0.0, 0.0, 3.0, 0.0))
    loss = VHL(align_epochs=0).loss(local, noise)
    assert float(loss.detach()) == pytest.approx(2 * math.log(3 + math.exp(3)) - 3)


def test_noise_features_are_fixed_across_and_free_within():
    real, virtual = CORNERS.clone().requires_grad_(), (CORNERS + 0.5).requires_grad_()
    same = torch.tensor([0, 0])
    VHL(w_surrogate_supcon=0.0).alignment(real, virtual, same, same).backward()
    assert real.grad.any()
    assert not virtual.grad.any()
    three = torch.cat([CORNERS, -CORNERS[:1]]).requires_grad_()
    labels = torch.tensor([0, 0, 1])
    VHL(w_align=0.0).alignment(CORNERS, three, LABELS, labels).backward()
    assert three.grad.any()


def test_noise_is_contrasted_with_a_tenth_of_the_weight():
    # noise alone: 0.2088411 (two alike, one other); real features without positives: 0
    virtual = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    labels = torch.tensor([0, 0, 1])
    value = VHL(temperature=1.0, w_align=0.0).alignment(CORNERS, virtual, LABELS, labels)
    assert float(value) == pytest.approx(0.02088411, abs=1e-7)


def test_real_and_noise_images_share_batch_statistics():
    # two images of 0 and two of 4: the batch mean is 2, of which a tenth enters the running mean
    zeros = torch.zeros(2, 1, 1, 1, dtype=torch.float64)
    body = nn.Sequential(BatchNorm(1), nn.Flatten())
    local = local_of(body, 1, Batch(zeros + 4, LABELS))
    VHL().loss(local, Batch(zeros, LABELS))
    assert float(local.network.model.body[0].running_mean) == pytest.approx(0.2)


def two_norms():
    """A client whose two BatchNorms see the real values 0, 2 and the noise 10, 12."""
    body = nn.Sequential(BatchNorm(1), BatchNorm(1), nn.Flatten())
    values = torch.tensor([0.0, 2.0, 10.0, 12.0], dtype=torch.float64).view(4, 1, 1, 1)
    local = local_of(body, 1, Batch(values[2:], LABELS))
    local.network.weights[:2] = vector(1.0, 0.0)  # scale and offset of the first
    local.network.weights[2:4] = vector(1.0, 0.0)
    return local, Batch(values[:2], LABELS)


def vector(*values):
    return torch.tensor(values, dtype=torch.float64)


@pytest.mark.parametrize(
    ("how", "expected"),  # mean, variance of the first BatchNorm and of the second
    [
        # a tenth of mean 6 and of variance 104/3; then of 0 and 4/3
        ("joint", [0.6, 10.4 / 3, 0.0, 0.4 / 3]),
        # a tenth of mean 1 and of variance 2; the second sees -1 and 1, not -1.18 and -0.78
        ("real", [0.1, 0.2, 0.0, 0.2]),
    ],
)
def test_running_statistics_follow_both_or_the_real_images_alone(how, expected):
    local, real = two_norms()
    VHL(bn_statistics=how).gradient(local, None, None)(local, real)
    assert local.network.buffers.tolist() == pytest.approx(expected, abs=1e-5)


def test_running_statistics_do_not_change_the_step():
    found = []
    for how in ("joint", "real"):
        local, real = two_norms()
        loss = VHL(bn_statistics=how).gradient(local, None, None)(local, real)
        found.append((float(loss), local.network.grads.tolist(), local.backward_passes))
    assert found[0] == found[1]
    assert any(found[0][1])


def test_statistics_of_real_images_change_what_is_tested_and_not_what_is_trained(quick):
    joint, real = (quick(VHL(bn_statistics=how), **SMALL)[-1] for how in ("joint", "real"))
    assert joint.row["weights_sha256"] == real.row["weights_sha256"]
    assert joint.row["loss"] != real.row["loss"]


def test_without_batchnorm_the_statistics_make_no_difference(quick):
    joint, real = (
        quick(VHL(bn_statistics=how), model="cnn", **SMALL)[-1] for how in ("joint", "real")
    )
    assert joint.row["weights_sha256"] == real.row["weights_sha256"]
    assert joint.row["loss"] == real.row["loss"]


def test_zero_features_give_a_finite_gradient():
    real, virtual = torch.zeros(2, 2, requires_grad=True), torch.zeros(2, 2, requires_grad=True)
    VHL().alignment(real, virtual, LABELS, torch.tensor([0, 0])).backward()
    assert real.grad.isfinite().all()
    assert virtual.grad.isfinite().all()


def test_last_batch_of_one_example(quick):
    data = {"name": "synthetic", "image_size": 4, "train_size": 30, "test_size": 10}
    finished = quick(VHL(), dataset=data, clients=2, batch_size=1, rounds=1, **SMALL)
    assert finished[0].clients[0]["steps"] == finished[0].clients[0]["samples"]


def test_alignment_ends_with_the_given_epoch(hashes):
    short = {"local_epochs": 2, "rounds": 1, **SMALL}
    one, two, three = (hashes(VHL(align_epochs=n), **short) for n in (1, 2, 3))
    assert one != two
    assert two == three


def test_settings_are_those_of_the_paper():
    method = VHL()
    assert method.needs_surrogate
    assert method.weighting == "samples"
    assert (method.alpha, method.w_align, method.w_surrogate_supcon) == (1.0, 1.0, 0.1)
    assert VHL.optimizer == Sgd(lr=0.01, momentum=0.9, weight_decay=1e-5)


@pytest.mark.parametrize(
    "wrong", [{"alpha": -1.0}, {"temperature": 0.0}, {"align_epochs": -1}, {"vhl_alpha": 1.0}]
)
def test_wrong_settings_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        VHL(**wrong)
