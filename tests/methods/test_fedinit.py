import numpy as np
import pytest
import torch

from fedgps_ray.errors import UserError
from fedgps_ray.methods.base import Turn
from fedgps_ray.methods.fedinit import FedInit, State
from fedgps_ray.spec import trial_spec
from fedgps_ray.training.local import Client


def numbers(*values):
    return torch.tensor(values, dtype=torch.float64)


def turn(round_index, *ids):
    return Turn(round_index, tuple(Client(k, (1,)) for k in ids), np.random.default_rng(0))


def test_the_first_round_starts_at_the_first_model(params, cohort):
    state = FedInit().init(params(1.5), cohort(2, 2, 1.5))
    sent = FedInit().send(state, turn(0, 0, 1))
    assert [float(message.params.weights) for message in sent] == [1.5, 1.5]


def test_a_newcomer_gets_its_start_from_the_server(params):
    # theta 3, first model 1: 3 + 0.1 * (3 - 1) = 3.2 ; buffers as they are
    state = State(params(3.0, buffers=(1.0,)), numbers(1.0), (0,))
    known, new = FedInit().send(state, turn(4, 0, 1))
    assert float(known.params.weights) == 3.0
    assert float(new.params.weights) == pytest.approx(3.2)
    assert float(new.params.buffers) == 1.0


# the newcomer ends at 3.2 - 0.2, the other at 3 + 1 having started there
@pytest.mark.parametrize(
    ("mean_of", "expected"),
    [("models", 0.25 * 3.0 + 0.75 * 4.0), ("displacements", 3 - 0.25 * 0.2 + 0.75 * 1.0)],
)
def test_a_newcomer_counts_from_the_start_it_was_sent(mean_of, expected, params, reply):
    state = State(params(3.0), numbers(1.0), (0,))
    replies = [reply([1.0], 3, client=0), reply([-0.2], 1, client=1)]
    state = FedInit(mean_of=mean_of).merge(state, replies)
    assert float(state.params.weights) == pytest.approx(expected)
    assert state.seen == (0, 1)
    assert float(replies[0].upload.delta) == 1.0


def test_the_model_is_the_mean_of_the_models_clients_ended_with(quick):
    seen, newcomers = set(), []
    for finished in quick(FedInit(beta=0.5), precision="float64"):
        sizes = {row["client"]: row["samples"] for row in finished.clients}
        state, kept = finished.snapshot.state, finished.snapshot.kept
        ended = sum(kept[k].memory.last * n for k, n in sizes.items()) / sum(sizes.values())
        torch.testing.assert_close(state.params.weights, ended)
        newcomers.append(len(set(sizes) - seen))
        seen |= set(sizes)
    assert sum(newcomers[1:]) > 0  # else no start was sent by the server


def test_the_optimizer_of_the_paper():
    sgd = trial_spec(method="fedinit").optimizer
    assert (sgd.lr, sgd.momentum, sgd.weight_decay) == (0.1, 0.0, 0.001)


def test_wrong_settings_are_refused():
    with pytest.raises(UserError, match=r"beta.*got -0\.1"):
        trial_spec(method={"name": "fedinit", "beta": -0.1})
    with pytest.raises(UserError, match=r"mean_of.*'updates'"):
        trial_spec(method={"name": "fedinit", "mean_of": "updates"})
