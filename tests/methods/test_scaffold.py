import pytest
import torch

from fedgps_ray.errors import UserError
from fedgps_ray.methods.base import Reply
from fedgps_ray.methods.fedavg import FedAvg
from fedgps_ray.methods.scaffold import Memory, Message, Scaffold, State, plain_steps
from fedgps_ray.spec import trial_spec
from fedgps_ray.training.local import Sgd

DESIGNS = ["none", "before", "after"]
MOMENTUM = {"steps": 2, "lr": 0.1, "momentum": 0.9}


class Constant(Scaffold):
    """SCAFFOLD on a loss of slope 1; keeps the weights before each step."""

    def gradient(self, local, message, memory):
        def one(local, batch):
            path.append(local.network.weights.tolist())
            local.network.grads.fill_(1.0)
            return torch.zeros(())

        path.clear()
        return one


path = []


def number(value):
    return torch.tensor([value], dtype=torch.float64)


def work(method, local, params, control=0.0, own=None):
    memory = None if own is None else Memory(number(own))
    return method.work(local, Message(params(1.0), number(control)), memory)


def test_the_learning_rate_is_the_one_of_the_steps(client, params):
    local = client(1.0, steps=4, lr=0.1)
    local.lr = 0.025
    assert float(work(Constant(), local, params).memory.control) == pytest.approx(1.0)


def test_the_global_step_scales_the_update_not_the_control(client, params):
    # y = 1 - 2 * 0.1 = 0.8, half of it: 0.9 ; c = 1.0 / 4
    method, local = Constant(server_lr=0.5), client(1.0, steps=2, lr=0.1)
    done = work(method, local, params)
    state = method.merge(State(params(1.0), number(0.0), 4), [Reply(local.client, done.upload)])
    assert float(state.params.weights) == pytest.approx(0.9)
    assert float(state.control) == pytest.approx(0.25)


def test_clients_count_alike_whatever_their_size(client, params):
    # updates -0.1 and -0.3, one and three steps: -0.2 ; by samples it would be -0.25
    method = Constant()
    locals_ = [client(1.0, steps=steps, lr=0.1, number=steps) for steps in (1, 3)]
    replies = [Reply(one.client, work(method, one, params).upload) for one in locals_]
    state = method.merge(State(params(1.0), number(0.0), 2), replies)
    assert float(state.params.weights) == pytest.approx(0.8)


def test_plain_steps():
    heavy = Sgd(momentum=0.9)
    assert plain_steps(1, heavy) == pytest.approx(1.0)
    assert plain_steps(2, heavy) == pytest.approx(2.9)
    assert plain_steps(79, heavy) / 79 == pytest.approx(8.86, abs=0.01)
    assert plain_steps(100_000, heavy) / 100_000 == pytest.approx(10, rel=1e-3)
    assert plain_steps(7, Sgd(momentum=0.0)) == 7
    # 1 + 0.9 ; 1 + 0.9 * 1.9
    assert plain_steps(2, Sgd(momentum=0.9, nesterov=True)) == pytest.approx(1.9 + 2.71)


def test_a_client_without_data_keeps_its_control(client, params):
    done = work(Constant(), client(1.0, steps=0), params, control=0.2, own=0.6)
    assert (float(done.upload.delta), float(done.upload.control)) == (0.0, 0.0)
    assert float(done.memory.control) == 0.6


def test_nothing_changes_in_place(client, params):
    message, memory = Message(params(1.0), number(0.2)), Memory(number(0.6))
    for design in DESIGNS:
        Constant(momentum_design=design).work(client(1.0, **MOMENTUM), message, memory)
    assert [float(v) for v in (message.params.weights, message.control, memory.control)] == [
        1.0, 0.2, 0.6,
    ]  # fmt: skip


@pytest.mark.parametrize("design", DESIGNS)
def test_the_first_round_is_uniform_fedavg(design, hashes):
    plain = {"momentum": 0.0} if design == "none" else {}
    expected = hashes(FedAvg(weighting="uniform"), optimizer=plain, rounds=2)
    found = hashes(Scaffold(momentum_design=design), rounds=2)
    assert found[0] == expected[0]
    assert found[1] != expected[1]


@pytest.mark.parametrize("design", DESIGNS)
def test_the_control_is_the_mean_over_all_clients(design, quick):
    for finished in quick(Scaffold(momentum_design=design), precision="float64"):
        state, kept = finished.snapshot.state, finished.snapshot.kept
        total = sum(entry.memory.control for entry in kept.values())  # the others hold zero
        torch.testing.assert_close(state.control, total / 5, rtol=0, atol=1e-12)
        assert state.control.norm() > 0.01
        assert state.control.shape == state.params.weights.shape


def test_momentum_is_reset_every_round(quick):
    kept = quick(Scaffold(), rounds=1)[0].snapshot.kept
    assert [entry.velocity for entry in kept.values()] == [None] * 3


def test_wrong_settings_are_refused():
    with pytest.raises(UserError, match=r"server_lr.*got 0"):
        trial_spec(method={"name": "scaffold", "server_lr": 0})
    with pytest.raises(UserError, match=r"momentum_design.*'during'"):
        trial_spec(method={"name": "scaffold", "momentum_design": "during"})
