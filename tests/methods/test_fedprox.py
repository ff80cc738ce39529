import pytest
import torch

from fedgps_ray.errors import UserError
from fedgps_ray.methods.fedavg import FedAvg
from fedgps_ray.methods.fedprox import FedProx
from fedgps_ray.spec import trial_spec

ORIGIN = torch.zeros(2, dtype=torch.float64)


def test_no_pull_at_the_start(client):
    for penalty in ("squared", "norm"):
        assert FedProx(penalty=penalty).pull(ORIGIN)(client((0.0, 0.0))).tolist() == [0.0, 0.0]


@pytest.mark.parametrize("penalty", ["squared", "norm"])
def test_only_the_second_step_feels_the_penalty(penalty, hashes):
    method = FedProx(mu=1.0, penalty=penalty)
    one_step = {"batch_size": 150, "rounds": 1}
    assert hashes(method, **one_step) == hashes(FedAvg(), **one_step)
    two_steps = {**one_step, "local_epochs": 2}
    assert hashes(method, **two_steps) != hashes(FedAvg(), **two_steps)


def test_wrong_settings_are_refused():
    with pytest.raises(UserError, match=r"mu.*got -1"):
        trial_spec(method={"name": "fedprox", "mu": -1})
    with pytest.raises(UserError, match=r"unknown setting.*Did you mean 'penalty'"):
        trial_spec(method={"name": "fedprox", "penalti": "norm"})
