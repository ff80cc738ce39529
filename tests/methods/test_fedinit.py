import numpy as np
import pytest
import torch

from fedgps_ray.errors import UserError
from fedgps_ray.methods.base import Reply, Turn
from fedgps_ray.methods.fedavg import FedAvg, Message
from fedgps_ray.methods.fedinit import FedInit, Memory, State
from fedgps_ray.spec import trial_spec
from fedgps_ray.training.local import Client


class Sloped(FedInit):
    """FedInit on a loss of slope (3, 2)."""

    def gradient(self, local, message, memory):
        def slope(local, batch):
            local.network.grads.copy_(torch.tensor([3.0, 2.0]))
            return torch.zeros(())

        return slope


def numbers(*values):
    return torch.tensor(values, dtype=torch.float64)


def turn(round_index, *ids):
    return Turn(round_index, tuple(Client(k, (1,)) for k in ids), np.random.default_rng(0))


@pytest.fixture
def returning(client, params):
    """Let a client that last ended at (3, 0) take one step from theta = (1, 2)."""

    def go(method):
        local, message = client((1.0, 2.0), lr=0.1, number=7), Message(params((1.0, 2.0)))
        work = method.work(local, message, Memory(numbers(3.0, 0.0)))
        state = State(message.params, numbers(0.0, 0.0), (7,))
        return work, method.merge(state, [Reply(local.client, work.upload)])

    return go


def test_the_start_is_moved_away_from_the_last_model(params):
    # 1 - 0.1 * 2 = 0.8 ; 2 + 0.1 * 2 = 2.2
    start = FedInit().relaxed(params((1.0, 2.0), buffers=(1.0,)), numbers(3.0, 0.0))
    assert start.weights.tolist() == pytest.approx([0.8, 2.2])
    assert start.buffers.tolist() == [1.0]


def test_the_server_takes_the_mean_of_final_models(returning):
    # (0.8, 2.2) - 0.1 * (3, 2) = (0.5, 2.0)
    work, state = returning(Sloped())
    assert state.params.weights.tolist() == pytest.approx([0.5, 2.0])
    assert work.memory.last.tolist() == pytest.approx([0.5, 2.0])


def test_the_mean_of_displacements_is_another_model(returning):
    # (1, 2) + (0.5, 2.0) - (0.8, 2.2) = (0.7, 1.8)
    work, state = returning(Sloped(mean_of="displacements"))
    assert state.params.weights.tolist() == pytest.approx([0.7, 1.8])
    assert work.memory.last.tolist() == pytest.approx([0.5, 2.0])


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


@pytest.mark.parametrize("mean_of", ["models", "displacements"])
def test_without_relaxation_it_is_fedavg(mean_of, hashes):
    same = {"optimizer": {"lr": 0.1, "momentum": 0.0, "weight_decay": 1e-3}}
    assert hashes(FedInit(beta=0.0, mean_of=mean_of)) == hashes(FedAvg(), **same)
    assert hashes(FedInit(mean_of=mean_of)) != hashes(FedAvg(), **same)


def test_the_optimizer_of_the_paper():
    sgd = trial_spec(method="fedinit").optimizer
    assert (sgd.lr, sgd.momentum, sgd.weight_decay) == (0.1, 0.0, 0.001)


def test_a_model_goes_each_way_also_for_newcomers(traffic):
    assert traffic(FedInit()) == [1.0, 1.0, 1.0, 1.0]


def test_wrong_settings_are_refused():
    with pytest.raises(UserError, match=r"beta.*got -0\.1"):
        trial_spec(method={"name": "fedinit", "beta": -0.1})
    with pytest.raises(UserError, match=r"mean_of.*'updates'"):
        trial_spec(method={"name": "fedinit", "mean_of": "updates"})
