import math

import pytest
import torch

from fedgps_ray.errors import UserError
from fedgps_ray.methods.delta_sgd import DeltaSGD
from fedgps_ray.methods.fedavg import FedAvg
from fedgps_ray.spec import trial_spec
from fedgps_ray.training.local import train

PLAIN = {"lr": 0.2, "momentum": 0.0, "weight_decay": 0.0}


def bowl(*curvatures):
    """Return the gradient of sum a w^2 / 2."""
    a = torch.tensor(curvatures, dtype=torch.float64)

    def gradient(local, batch):
        local.backward_passes += 1
        local.network.grads.add_(a * local.network.weights)
        return torch.zeros(())

    return gradient


@pytest.fixture
def descent(client, params):
    """Train from weights of 1 and return weights and learning rate after each step."""

    def go(method, gradient, steps, size=1):
        local, seen = client(*[1.0] * size, steps=steps, lr=0.2), []

        def note(now):
            seen.append((now.network.weights.tolist(), now.lr))

        train(local, params(*[1.0] * size), method.adaptive(gradient), note)
        weights, rates = zip(*seen, strict=True)
        return [w[0] if size == 1 else w for w in weights], list(rates), local

    return go


@pytest.mark.parametrize("gamma", [1.0, 2.0])
@pytest.mark.parametrize("curvature", [1.0, 6.0, 30.0])
def test_steps_stay_within_the_curvature_after_the_first(gamma, curvature, descent):
    _, rates, _ = descent(DeltaSGD(gamma=gamma), bowl(curvature), 12)
    assert max(rates[1:]) <= gamma / (2 * curvature) * (1 + 1e-6)


def test_one_norm_over_all_tensors(descent):
    # (1, 1) - 0.2 * (4, 10) = (0.2, -1) ; |(0.8, 2)| / |(3.2, 20)|
    _, rates, _ = descent(DeltaSGD(), bowl(4.0, 10.0), 2, size=2)
    assert rates[1] == pytest.approx(math.hypot(0.8, 2) / math.hypot(3.2, 20))


@pytest.mark.parametrize(("delta", "first"), [(0.1, 0.2097618), (0.02, 0.2019901)])
def test_an_amplified_first_step(delta, first, descent):
    _, rates, _ = descent(DeltaSGD(delta=delta, amplify_first=True), bowl(1.0), 1)
    assert rates == pytest.approx([first], abs=1e-7)


@pytest.mark.parametrize("slope", [0.0, 3.0])
def test_where_the_gradient_does_not_change_the_rate_only_grows(slope, descent):
    def line(local, batch):
        local.network.grads.fill_(slope)
        return torch.zeros(())

    weights, rates, _ = descent(DeltaSGD(), line, 2)
    assert rates == pytest.approx([0.2, 0.2097618], abs=1e-7)
    assert weights[-1] == pytest.approx(1 - slope * sum(rates))


def test_two_gradients_a_step_from_the_second_on(descent, quick):
    assert descent(DeltaSGD(), bowl(4.0), 4)[2].backward_passes == 7
    for row in quick(DeltaSGD(), rounds=1)[0].clients:
        assert row["gradient_evaluations"] == 2 * row["steps"] - 1


def test_both_gradients_of_a_step_are_of_one_batch(client, params):
    seen = []

    def gradient(local, batch):
        seen.append(int(batch.y))
        return bowl(4.0)(local, batch)

    local = client(1.0, steps=3, lr=0.2)
    local.batches = lambda: (batch._replace(y=torch.tensor(k)) for k, batch in numbered(local))
    train(local, params(1.0), DeltaSGD().adaptive(gradient))
    assert seen == [0, 1, 1, 2, 2]


def numbered(local):
    return enumerate(local.data.shuffled(1))


def test_every_round_starts_with_the_first_rate(client, params):
    method = DeltaSGD()
    for _ in range(2):
        local = client(1.0, lr=0.2)
        train(local, params(1.0), method.adaptive(bowl(4.0)))
        assert local.lr == 0.2


def test_with_a_constant_rate_it_is_uniform_fedavg(quick):
    # neither branch binds; also shows that the second pass leaves BatchNorm's statistics alone
    found = quick(DeltaSGD(gamma=1e12, delta=0.0))
    expected = quick(FedAvg(weighting="uniform"), optimizer=PLAIN)
    for one, other in zip(found, expected, strict=True):
        assert one.row["weights_sha256"] == other.row["weights_sha256"]
        assert one.snapshot.state.params.buffers.equal(other.snapshot.state.params.buffers)
    assert quick(DeltaSGD())[0].row["weights_sha256"] != found[0].row["weights_sha256"]


def test_single_images_at_a_batchnorm_without_variance(quick):
    data = {"name": "synthetic", "image_size": 4, "train_size": 60, "test_size": 20}
    finished = quick(DeltaSGD(), dataset=data, batch_size=1, rounds=1)[0]
    assert finished.row["steps"] == sum(row["samples"] for row in finished.clients)
    assert finished.snapshot.state.params.buffers.isfinite().all()


def test_no_momentum_and_no_weight_decay():
    sgd = trial_spec(method="delta_sgd").optimizer
    assert (sgd.lr, sgd.momentum, sgd.weight_decay) == (0.2, 0.0, 0.0)


@pytest.mark.parametrize(("option", "value"), [("gamma", 0.0), ("delta", -0.1)])
def test_wrong_settings_are_refused(option, value):
    with pytest.raises(UserError, match=f"{option}.*got {value}"):
        trial_spec(method={"name": "delta_sgd", option: value})
