import numpy as np
import pytest
import torch
from torch import nn

from fedgps_ray.data.batches import Batch
from fedgps_ray.methods.base import Cohort, Turn
from fedgps_ray.methods.ccvr import (
    CCVR,
    Moments,
    Query,
    class_moments,
    gaussian,
    moments_of,
    pooled,
)
from fedgps_ray.methods.fedavg import FedAvg
from fedgps_ray.models.base import Model
from fedgps_ray.models.norm import BatchNorm
from fedgps_ray.tensors import Params, num_bytes
from fedgps_ray.training.local import Client, Local, Sgd
from fedgps_ray.training.network import Network, layout_of

CPU = torch.device("cpu")
QUICK = {"virtual_features": 20, "calibration_epochs": 1}


def table(*rows):
    return torch.tensor(rows, dtype=torch.float64)


def rng(seed=0):
    return np.random.default_rng(seed)


def moments(rows, labels, num_classes=1, full=True):
    return moments_of(table(*rows), torch.tensor(labels), num_classes, full)


class Plain:
    """Hands out some examples."""

    def __init__(self, x, y):
        self.batch = Batch(torch.as_tensor(x, dtype=torch.float64), torch.tensor(y))

    def plain(self):
        half = len(self.batch.y) // 2
        x, y, _ = self.batch
        return iter([Batch(x[:half], y[:half]), Batch(x[half:], y[half:])])


def local_of(network, x, y, client=0, num_classes=2):
    counts = tuple(np.bincount(y, minlength=num_classes).tolist())
    return Local(
        network, Client(client, counts), 0, num_classes, 1, Sgd(), 0.01, Plain(x, y) if y else None
    )


class Server:
    """A global model with the identity as body, and clients that hold feature vectors."""

    def __init__(self, method, holdings, feature_dim=1, num_classes=2, weights=None):
        self.method = method
        self.network = Network(Model(nn.Identity(), feature_dim, num_classes), CPU, torch.float64)
        self.network.weights.zero_()
        if weights is not None:
            self.network.weights.copy_(torch.tensor(weights))
        self.locals = [
            local_of(self.network, x, y, client, num_classes)
            for client, (x, y) in enumerate(holdings)
        ]
        self.clients = tuple(local.client for local in self.locals)
        cohort = Cohort(self.clients, len(self.clients), self.network.layout)
        self.state = method.init(self.network.params(), cohort)
        self.answers = None

    def ask(self, question, sent):
        self.answers = [question(local, None, sent) for local in self.locals]
        return self.answers

    def deploy(self, sampled=None, seed=0):
        clients = self.clients if sampled is None else tuple(self.clients[k] for k in sampled)
        return self.method.deploy(self.state, Turn(0, clients, rng(seed)), self.ask)


# --- moments ------------------------------------------------------------------------------------


@pytest.mark.parametrize("full", [True, False])
def test_two_clients_pool_to_the_moments_of_all(full):
    # {1, 3} and {5}: mean 3, unbiased variance 4; with a biased local variance it would be 3.5
    told = [moments([(1.0,), (3.0,)], [0, 0], full=full), moments([(5.0,)], [0], full=full)]
    mean, covariance = pooled(told, 0)
    assert mean.tolist() == [3.0]
    assert covariance.flatten().tolist() == [4.0]


def test_pooled_moments_are_those_of_the_pooled_features():
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(40, 3, dtype=torch.float64, generator=generator) + 10
    labels = torch.randint(3, (40,), generator=generator)
    parts = [slice(0, 17), slice(17, 18), slice(18, 40)]
    full = [moments_of(z[part], labels[part], 4, True) for part in parts]
    diagonal = [moments_of(z[part], labels[part], 4, False) for part in parts]
    for label in range(3):
        own = z[labels == label]
        mean, covariance = pooled(full, label)
        torch.testing.assert_close(mean, own.mean(dim=0), rtol=1e-12, atol=0)
        torch.testing.assert_close(covariance, own.T.cov(), rtol=1e-10, atol=1e-12)
        torch.testing.assert_close(pooled(diagonal, label)[1], own.var(dim=0))


def test_classes_of_no_or_one_example_have_zero_covariance():
    found = moments([(1.0, 2.0)], [1], num_classes=3)
    assert found.counts.tolist() == [0, 1, 0]
    assert found.means.tolist() == [[0.0, 0.0], [1.0, 2.0], [0.0, 0.0]]
    assert not found.covariances.any()


def test_features_are_those_of_the_model_sent_in_evaluation_mode():
    # running mean 1 and variance 4: 3 becomes (3 - 1) / 2; by the batch it would be -1 or 1
    body = nn.Sequential(BatchNorm(1), nn.Flatten())
    network = Network(Model(body, 1, 2), CPU, torch.float64)
    network.load(Params(torch.full_like(network.weights, 7.0), torch.zeros(2)))
    images = np.array([3.0, 5.0, 7.0]).reshape(3, 1, 1, 1)
    local = local_of(network, images, [0, 0, 1])
    sent = Params(torch.tensor([1.0, 0, 0, 0, 0, 0]), torch.tensor([1.0, 4.0]))
    found = class_moments(local, None, Query(sent, None, "full"))
    assert found.means.flatten().tolist() == pytest.approx([1.5, 3.0], rel=1e-5)
    assert found.covariances.flatten().tolist() == pytest.approx([0.5, 0.0], rel=1e-4)
    assert network.buffers.tolist() == [1.0, 4.0]


# --- virtual features ---------------------------------------------------------------------------


def test_drawn_features_have_the_moments_asked_for():
    mean, covariance = table(1.0, -2.0), table((2.0, 0.6), (0.6, 0.5))
    drawn = gaussian(mean, covariance, 50_000, rng())
    torch.testing.assert_close(drawn.mean(dim=0), mean, rtol=0, atol=0.02)
    torch.testing.assert_close(drawn.T.cov(), covariance, rtol=0, atol=0.04)
    diagonal = gaussian(mean, covariance.diagonal(), 50_000, rng())
    torch.testing.assert_close(diagonal.T.cov(), table((2.0, 0.0), (0.0, 0.5)), rtol=0, atol=0.04)


def test_rank_deficient_covariance_gives_features_on_its_line():
    # (1, 1, 1)(1, 1, 1)' has eigenvalues 3, 0, 0, some of them below 0 by rounding
    drawn = gaussian(table(0.0, 1.0, 2.0), torch.ones(3, 3, dtype=torch.float64), 100, rng())
    along = drawn - table(0.0, 1.0, 2.0)
    assert along.std(dim=0).min() > 0.5
    torch.testing.assert_close(along, along[:, :1].expand(-1, 3), rtol=0, atol=1e-6)


def test_negative_eigenvalues_are_clipped():
    drawn = gaussian(table(0.0, 0.0), table((-1e-3, 0.0), (0.0, 1.0)), 10, rng())
    assert torch.equal(drawn[:, 0], torch.zeros(10, dtype=torch.float64))


def test_class_of_one_example_is_drawn_as_that_example():
    z, labels = CCVR(virtual_features=3).draw([moments([(1.0, 2.0)], [1], num_classes=3)], rng())
    assert z.tolist() == [[1.0, 2.0]] * 3
    assert labels.tolist() == [1, 1, 1]


# --- the refitted head --------------------------------------------------------------------------


def test_refit_takes_as_many_steps_as_there_are_batches_and_epochs():
    # 5 features in batches of 2 make 3 steps an epoch; with a gradient of 0.5 for each bias at
    # first and a tiny learning rate, six steps move it by 6 * 0.5 * 1e-6
    how = {"calibration_lr": 1e-6, "calibration_momentum": 0.0, "calibration_weight_decay": 0.0}
    method = CCVR(virtual_features=5, calibration_batch_size=2, calibration_epochs=2, **how)
    moved = Server(method, [([[0.0]], [0])]).deploy().weights
    assert moved.tolist() == pytest.approx([0.0, 0.0, 3e-6, -3e-6], rel=1e-4)


def test_refit_tells_separate_classes_apart():
    held = [([[0.0], [0.2]], [0, 0]), ([[9.8], [10.0]], [1, 1])]
    method = CCVR(virtual_features=200, calibration_lr=0.1)
    weight0, weight1, bias0, bias1 = Server(method, held).deploy().weights.tolist()
    assert bias0 > bias1
    assert 10 * weight1 + bias1 > 10 * weight0 + bias0


def test_only_the_head_of_the_tested_copy_changes(quick):
    finished = quick(CCVR(**QUICK), rounds=1)
    state = finished[0].snapshot.state
    before = state.params.weights.clone()
    body, d = state.weight.start, state.weight.shape[1]
    told = Moments(torch.full((10,), 5), torch.eye(10, d), torch.eye(d).expand(10, d, d))
    tested = CCVR(**QUICK).deploy(state, Turn(0, (), rng()), lambda question, sent: [told])
    assert torch.equal(tested.weights[:body], before[:body])
    assert not torch.equal(tested.weights[body:], before[body:])
    assert tested.buffers is state.params.buffers
    assert torch.equal(state.params.weights, before)


def test_drawing_follows_the_servers_stream():
    held = [([[0.0], [1.0], [4.0]], [0, 0, 1])]
    server = Server(CCVR(**QUICK), held)
    first, again, other = (server.deploy(seed=seed).weights for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_global_random_stream_is_left_alone():
    server = Server(CCVR(**QUICK), [([[0.0], [1.0]], [0, 1])])
    before = torch.get_rng_state()
    server.deploy()
    assert torch.equal(before, torch.get_rng_state())


def test_no_steps_leave_the_model_as_it_is():
    server = Server(CCVR(calibration_epochs=0), [([[0.0], [1.0]], [0, 1])], weights=[1.0, 2, 3, 4])
    assert server.deploy().weights.tolist() == [1.0, 2.0, 3.0, 4.0]


def test_sampled_clients_alone_may_be_asked():
    # class 1 is only at client 1, which is not drawn: no feature says that it exists
    held = [([[1.0], [1.0]], [0, 0]), ([[1.0], [1.0]], [1, 1])]
    server = Server(CCVR(**QUICK, statistics_from="sampled"), held)
    weights = server.deploy(sampled=[0]).weights.tolist()
    assert server.answers[1] is None
    assert weights[0] > 0 > weights[1]
    both = server.deploy(sampled=[1, 0]).weights.tolist()
    assert all(answer is not None for answer in server.answers)
    assert abs(both[0]) < weights[0] / 10


@pytest.mark.parametrize("held", [[([], [])], [([[float("inf")], [1.0]], [0, 1])]])
def test_without_usable_moments_the_model_is_tested_as_it_is(held):
    server = Server(CCVR(**QUICK), held, weights=[1.0, 2.0, 3.0, 4.0])
    assert server.deploy().weights.tolist() == [1.0, 2.0, 3.0, 4.0]


# --- against FedAvg -----------------------------------------------------------------------------


@pytest.mark.parametrize("covariance", ["full", "diagonal"])
def test_training_never_sees_the_refitted_head(quick, covariance):
    plain = quick(FedAvg(), optimizer={"lr": 0.001})
    found = quick(CCVR(**QUICK, covariance=covariance))
    assert [f.row["weights_sha256"] for f in found] == [f.row["weights_sha256"] for f in plain]
    assert [f.row["loss"] for f in found] != [f.row["loss"] for f in plain]


# --- costs and settings -------------------------------------------------------------------------


@pytest.mark.parametrize(("covariance", "numbers"), [("full", 2_626_560), ("diagonal", 10_240)])
def test_every_client_sends_its_moments_and_receives_the_model(quick, covariance, numbers):
    # ten classes, 512 features: C (d + d^2), or 2 C d
    method = CCVR(virtual_features=1, calibration_epochs=0, covariance=covariance)
    (finished,) = quick(method, model="cnn", clients=3, rounds=1)
    model = num_bytes(finished.snapshot.state.params)
    up, down = (
        finished.row[way] - sum(row[way] for row in finished.clients)
        for way in ("bytes_up", "bytes_down")
    )
    assert up == pytest.approx(3 * 4 * numbers, rel=0.01)
    assert down == pytest.approx(3 * model, rel=0.01)
    assert [row["bytes_up"] for row in finished.clients] == [model] * len(finished.clients)


def test_head_is_found_in_the_layout(params):
    layout = layout_of(Model(nn.Linear(2, 3), 3, 2))
    state = CCVR().init(params(1.0), Cohort((), 1, layout))
    assert (state.weight.start, state.bias.end) == (9, 17)


def test_settings_are_those_of_the_public_implementation():
    method = CCVR()
    assert (method.virtual_features, method.calibration_epochs) == (2000, 10)
    assert (method.calibration_lr, method.calibration_batch_size) == (0.001, 64)
    assert (method.calibration_momentum, method.calibration_weight_decay) == (0.9, 1e-5)
    assert (method.covariance, method.statistics_from) == ("full", "all")
    assert CCVR.optimizer == Sgd(lr=0.001, momentum=0.9, weight_decay=1e-5)


@pytest.mark.parametrize(
    "wrong",
    [
        {"virtual_features": 0},
        {"covariance": "shared"},
        {"calibration_lr": 0.0},
        {"calibration_epochs": -1},
        {"calibration_momentum": 1.0},
        {"feed_back": True},
    ],
)
def test_wrong_settings_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        CCVR(**wrong)
