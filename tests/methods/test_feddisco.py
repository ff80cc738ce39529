import math

import numpy as np
import pytest
import torch

from fedgps_ray.errors import UserError
from fedgps_ray.methods.base import Reply, Turn
from fedgps_ray.methods.fedavg import State
from fedgps_ray.methods.feddisco import FedDisco, from_uniform
from fedgps_ray.spec import trial_spec
from fedgps_ray.tensors import Params, Update
from fedgps_ray.training.local import Client


def clients(*counts):
    return tuple(Client(k, c) for k, c in enumerate(counts))


def weights(method, *counts):
    shares = method.shares(clients(*counts))
    return [share / sum(shares) for share in shares]


def turn(*counts):
    return Turn(0, clients(*counts), np.random.default_rng(0))


ONE_CLASS_EACH = [tuple(5 * (c == k) for c in range(10)) for k in range(10)]


def test_divergence_from_uniform_labels():
    assert from_uniform((10, 0)) == pytest.approx(0.6931472)  # 1 * ln 2
    assert from_uniform((5, 5)) == 0.0
    # 0.75 ln 1.5 + 0.25 ln 0.5 ; the reverse divergence would be 0.1438410
    assert from_uniform((3, 1)) == pytest.approx(0.1308120)
    assert from_uniform((7, 0, 0, 0)) == pytest.approx(math.log(4))
    assert from_uniform((0, 0)) == 0.0


def test_equal_clients_count_alike():
    assert weights(FedDisco(), (6, 2), (6, 2), (2, 6)) == pytest.approx([1 / 3] * 3)
    assert weights(FedDisco(), (4, 4), (4, 4)) == [0.5, 0.5]


def test_uniform_weighting_replaces_the_sample_shares():
    # p (0.5, 0.5), d (1, 0): as if both had the same size
    assert weights(FedDisco(weighting="uniform"), (40, 0), (5, 5)) == pytest.approx([1 / 7, 6 / 7])


def test_plain_shares_where_no_weight_is_positive():
    # 0.1 - 0.5 ln 10 + 0.1 < 0 for all ten
    method = FedDisco(normalised=False)
    assert weights(method, *ONE_CLASS_EACH) == pytest.approx([0.1] * 10)
    assert method.measure(None, turn(*ONE_CLASS_EACH), None) == {"plain_shares": 1.0}
    assert FedDisco().measure(None, turn(*ONE_CLASS_EACH), None) == {"plain_shares": 0.0}


def test_weights_and_buffers_are_averaged_alike():
    # 0 + (1 * 7 + 6 * 14) / 7 = 13 for both
    replies = [
        Reply(client, Update(torch.tensor([value]), torch.tensor([value])))
        for client, value in zip(clients((10, 0), (5, 5)), (7.0, 14.0), strict=True)
    ]
    state = FedDisco().merge(State(Params(torch.zeros(1), torch.zeros(1))), replies)
    assert [float(v) for v in state.params] == pytest.approx([13.0, 13.0])


def test_the_row_says_which_shares_were_used(quick):
    assert quick(FedDisco(), rounds=1)[0].row["metrics"] == {"plain_shares": 0.0}


@pytest.mark.parametrize("option", ["a", "b"])
def test_wrong_settings_are_refused(option):
    with pytest.raises(UserError, match=f"{option}.*got -0.5"):
        trial_spec(method={"name": "feddisco", option: -0.5})
