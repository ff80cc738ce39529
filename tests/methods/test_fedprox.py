import pytest
import torch

from fedgps_ray.errors import UserError
from fedgps_ray.methods.fedavg import FedAvg
from fedgps_ray.methods.fedprox import FedProx
from fedgps_ray.spec import trial_spec
from fedgps_ray.training.gradients import plus
from fedgps_ray.training.local import train

ORIGIN = torch.zeros(2, dtype=torch.float64)


def two(local, batch):
    local.network.grads.fill_(2.0)
    return torch.zeros(())


def test_squared_penalty(client):
    # 0.125 * (3, 4); a quadratic is half its slope times the place: (0.375 * 3 + 0.5 * 4) / 2
    pull = FedProx().pull(ORIGIN)(client((3.0, 4.0)))
    assert pull.tolist() == pytest.approx([0.375, 0.5])
    assert float(pull @ torch.tensor([3.0, 4.0]).double()) / 2 == pytest.approx(1.5625)


def test_penalty_by_the_norm_of_one_tensor(client):
    # 0.125 * (3, 4) / 5; a norm is its slope times the place: 0.075 * 3 + 0.1 * 4
    pull = FedProx(penalty="norm").pull(ORIGIN)(client((3.0, 4.0)))
    assert pull.tolist() == pytest.approx([0.075, 0.1])
    assert float(pull @ torch.tensor([3.0, 4.0]).double()) == pytest.approx(0.625)


def test_penalty_by_the_norms_of_two_tensors(client):
    # each has length 1 of its own: 0.125 * (1, 1); 0.125 * 3 + 0.125 * 4
    pull = FedProx(penalty="norm").pull(ORIGIN)(client(3.0, 4.0))
    assert pull.tolist() == pytest.approx([0.125, 0.125])
    assert float(pull @ torch.tensor([3.0, 4.0]).double()) == pytest.approx(0.875)


def test_no_pull_at_the_start(client):
    for penalty in ("squared", "norm"):
        assert FedProx(penalty=penalty).pull(ORIGIN)(client((0.0, 0.0))).tolist() == [0.0, 0.0]


def test_the_pull_goes_through_momentum(client, params):
    # 1 - 0.1 * 2 = 0.8 ; G = 2 + 0.5 * (0.8 - 1) = 1.9, v = 0.9 * 2 + 1.9 = 3.7, 0.8 - 0.37
    local, start = client(1.0, steps=2, lr=0.1, momentum=0.9), params(1.0)
    done = train(local, start, plus(two, FedProx(mu=0.5).pull(start.weights)))
    assert float(done.params.weights) == pytest.approx(0.43)
    assert float(start.weights) == 1.0


@pytest.mark.parametrize("penalty", ["squared", "norm"])
def test_without_penalty_it_is_fedavg(penalty, hashes):
    assert hashes(FedProx(mu=0.0, penalty=penalty)) == hashes(FedAvg())


@pytest.mark.parametrize("penalty", ["squared", "norm"])
def test_only_the_second_step_feels_the_penalty(penalty, hashes):
    method = FedProx(mu=1.0, penalty=penalty)
    one_step = {"batch_size": 150, "rounds": 1}
    assert hashes(method, **one_step) == hashes(FedAvg(), **one_step)
    two_steps = {**one_step, "local_epochs": 2}
    assert hashes(method, **two_steps) != hashes(FedAvg(), **two_steps)


def test_a_model_goes_each_way(traffic):
    assert traffic(FedProx()) == [1.0, 1.0, 1.0, 1.0]


def test_one_gradient_a_step(quick):
    row = quick(FedProx(), rounds=1)[0].row
    assert row["gradient_evaluations"] == row["steps"] > 3


def test_wrong_settings_are_refused():
    with pytest.raises(UserError, match=r"mu.*got -1"):
        trial_spec(method={"name": "fedprox", "mu": -1})
    with pytest.raises(UserError, match=r"unknown setting.*Did you mean 'penalty'"):
        trial_spec(method={"name": "fedprox", "penalti": "norm"})
