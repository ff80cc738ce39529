import pytest
import torch

from fedgps_ray.methods import fedlesam
from fedgps_ray.methods.base import Reply
from fedgps_ray.methods.fedavg import FedAvg
from fedgps_ray.methods.fedlesam import (
    FedLESAM,
    Memory,
    Message,
    State,
    Upload,
    effective_steps,
)
from fedgps_ray.tensors import leaves
from fedgps_ray.training.local import Client, Sgd, train

HOW = {"lr": 0.1, "momentum": 0.0, "weight_decay": 0.001, "max_norm": 10.0}


def vector(*values):
    return torch.tensor(values, dtype=torch.float64)


@pytest.fixture
def slope(monkeypatch):
    """Give the loss a constant gradient and note the points where it is taken."""

    def use(gradient):
        points = []

        def loss(local, batch):
            points.append(local.network.weights.clone())
            return gradient * sum(p.sum() for p in local.network.model.parameters())

        monkeypatch.setattr(fedlesam, "cross_entropy", loss)
        return points

    return use


def message(params, control=None, previous=None):
    return Message(params, control, previous)


# --- where the gradient is taken ----------------------------------------------------------------


def test_gradient_is_taken_towards_the_last_received_model(client, params, slope):
    # difference (0.6, 0.8), one global norm of 1: (0.4, 0.2) + 0.5 * (0.6, 0.8)
    points = slope(1.0)
    local = client(0.4, 0.2, steps=2, lr=0.1)
    work = FedLESAM(variant="base").work(
        local, message(params(0.4, 0.2)), Memory(vector(1.0, 1.0), None)
    )
    assert points[0].tolist() == pytest.approx([0.7, 0.6], abs=1e-6)
    assert points[1].tolist() == pytest.approx([0.6, 0.5], abs=1e-6)
    assert work.upload.delta.tolist() == pytest.approx([-0.2, -0.2])


@pytest.mark.parametrize(
    ("how", "scale"),  # tensors of norms 3, 4 and 12: their sum is 19, all in all 13
    [("global", 0.5 / 13), ("sum", 0.5 / 19)],
)
def test_perturb_norm_decides_how_long_the_shift_is(client, params, slope, how, scale):
    points = slope(1.0)
    start = (0.0, (0.0, 0.0), (0.0, 0.0))
    memory = Memory(vector(3.0, 0.0, 4.0, 12.0, 0.0), None)
    method = FedLESAM(variant="base", perturb_norm=how)
    work = method.work(client(*start, lr=0.1), message(params(*start)), memory)
    expected = [x * scale for x in (3.0, 0.0, 4.0, 12.0, 0.0)]
    assert points[0].tolist() == pytest.approx(expected, abs=1e-7)
    # five weights move by 0.1 each: 0.1 * 5 ** 0.5; the weights themselves are zero
    assert work.metrics == {"ahead_to_update": pytest.approx(13 * scale / 0.2236068, rel=1e-6)}


def test_the_size_of_the_shift_is_reported(client, params, slope):
    # weights of norm 5, a shift of norm 0.5, and an update of (-0.1, -0.1)
    slope(1.0)
    memory = Memory(vector(3.6, 4.8), None)
    work = FedLESAM(variant="base").work(
        client(3.0, 4.0, lr=0.1), message(params(3.0, 4.0)), memory
    )
    assert work.metrics["ahead_to_weights"] == pytest.approx(0.1, rel=1e-6)
    assert work.metrics["ahead_to_update"] == pytest.approx(0.5 / 0.1414214, rel=1e-6)
    newcomer = FedLESAM(variant="base").work(client(3.0, 4.0), message(params(3.0, 4.0)), None)
    assert newcomer.metrics == {}


@pytest.mark.parametrize("variant", ["base", "S", "D"])
def test_first_participation_is_the_base_method(client, params, slope, variant):
    points = slope(1.0)
    sent = message(params(0.4, 0.2), vector(0.0, 0.0) if variant == "S" else None)
    work = FedLESAM(variant=variant).work(client(0.4, 0.2, round_index=7, lr=0.1), sent, None)
    assert torch.equal(points[0], vector(0.4, 0.2))
    assert work.upload.delta.tolist() == pytest.approx([-0.1, -0.1])


def test_unchanged_model_moves_nothing(client, params, slope):
    points = slope(1.0)
    sent = message(params(0.4, 0.2))
    work = FedLESAM(variant="base").work(client(0.4, 0.2), sent, Memory(vector(0.4, 0.2), None))
    assert torch.equal(points[0], vector(0.4, 0.2))
    assert work.upload.delta.isfinite().all()


def test_last_update_of_the_server_can_stand_for_the_own_model(client, params, slope):
    points = slope(1.0)
    method = FedLESAM(variant="base", reference="last_update")
    sent = message(params(0.4, 0.2), previous=vector(1.0, 1.0))
    work = method.work(client(0.4, 0.2), sent, None)
    assert points[0].tolist() == pytest.approx([0.7, 0.6], abs=1e-6)
    assert work.memory.received is None


def test_previous_weights_are_sent_from_the_second_round(params, cohort):
    method = FedLESAM(reference="last_update")
    state = method.init(params(1.0), cohort(2, 1, 1.0))
    assert state.previous is None
    upload = Upload(vector(-0.5), vector(), vector(0.0))
    state = method.merge(state, [Reply(Client(0, (1,)), upload)])
    assert state.previous.tolist() == [1.0]
    assert state.params.weights.tolist() == [0.5]


def test_received_weights_are_kept_without_a_copy(client, params, slope):
    slope(1.0)
    sent = message(params(0.4, 0.2), vector(0.0, 0.0))
    work = FedLESAM().work(client(0.4, 0.2), sent, None)
    assert work.memory.received is sent.params.weights


# --- order on the gradient ----------------------------------------------------------------------


def test_weight_decay_is_that_of_the_unshifted_weights(client, params, slope):
    points = slope(1.0)  # taken at 1.5; 1 - 0.1 * (1 + 0.5 * 1) = 0.85
    local = client(1.0, lr=0.1, weight_decay=0.5)
    sent = message(params(1.0))
    work = FedLESAM(variant="base").work(local, sent, Memory(vector(2.0), None))
    assert points[0].tolist() == pytest.approx([1.5], abs=1e-6)
    assert work.upload.delta.tolist() == pytest.approx([-0.15])


# --- variant S ----------------------------------------------------------------------------------


def test_two_steps_and_the_server(client, params, slope):
    # full correction: 1 - 2 * 0.1 * 0.6 = 0.88; c_1 = 1.0; c = 0.2 + (1.0 - 0.6) / 2 = 0.4
    slope(1.0)
    method = FedLESAM(correction=1.0)
    sent = message(params(1.0), vector(0.2))
    work = method.work(client(1.0, steps=2, lr=0.1), sent, Memory(vector(1.0), vector(0.6)))
    state = State(params(1.0), vector(0.2), None, 2)
    state = method.merge(state, [Reply(Client(1, (5,)), work.upload)])
    assert work.memory.control.tolist() == pytest.approx([1.0])
    assert state.params.weights.tolist() == pytest.approx([0.88])
    assert state.control.tolist() == pytest.approx([0.4])


def test_server_step_scales_the_update(params):
    state = State(params(1.0), vector(0.0), None, 1)
    upload = Upload(vector(-0.5), vector(), vector(0.0))
    merged = FedLESAM(server_lr=0.5).merge(state, [Reply(Client(0, (1,)), upload)])
    assert merged.params.weights.tolist() == [0.75]


def test_client_without_data_changes_nothing(client, params, slope):
    slope(1.0)
    sent = message(params(1.0), vector(0.2))
    work = FedLESAM().work(client(1.0, steps=0), sent, Memory(vector(2.0), vector(0.6)))
    assert work.upload.delta.tolist() == [0.0]
    assert work.upload.control.tolist() == [0.0]
    assert work.memory.control.tolist() == [0.6]


@pytest.mark.parametrize(
    ("how", "steps", "expected"),
    [
        ({"momentum": 0.0}, 7, 7.0),
        ({"momentum": 0.9}, 2, 2.9),  # 1 + 1.9
        ({"momentum": 0.9, "nesterov": True}, 2, 4.61),  # 1.9 + 2.71
    ],
)
def test_effective_steps_are_how_far_a_constant_gradient_leads(client, how, steps, expected):
    assert effective_steps(Sgd(**how), steps) == pytest.approx(expected)
    local = client(1.0, steps=steps, lr=0.1, **how)

    def one(local, batch):
        local.network.grads.fill_(1.0)
        return torch.zeros(())

    done = train(local, local.network.params(), one)
    assert done.params.weights.tolist() == pytest.approx([1 - 0.1 * expected])


# --- variant D ----------------------------------------------------------------------------------


def test_two_rounds_of_variant_d(client, params, cohort, slope):
    # y = 1 - 0.1 = 0.9, h_0 = -0.1, mean h of two clients -0.05: 0.85
    # g = 1 + 0.1 * (0 - 0.1) = 0.99, y = 0.751, h_0 = -0.199, mean h -0.0995: 0.6515
    slope(1.0)
    method, memory = FedLESAM(variant="D"), None
    state = method.init(params(1.0), cohort(2, 1, 1.0))
    for expected in (0.85, 0.6515):
        sent = message(state.params)
        work = method.work(client(1.0, lr=0.1), sent, memory)
        memory = work.memory
        state = method.merge(state, [Reply(Client(0, (1,)), work.upload)])
        assert state.params.weights.tolist() == pytest.approx([expected])
    assert memory.control.tolist() == pytest.approx([-0.199])


def test_variant_d_pulls_back_to_the_start(client, params, slope):
    # second step: 1 + 0.1 * (0.9 - 1) = 0.99
    slope(1.0)
    work = FedLESAM(variant="D").work(client(1.0, steps=2, lr=0.1), message(params(1.0)), None)
    assert work.upload.delta.tolist() == pytest.approx([-0.199])


def test_buffers_are_averaged_whatever_happens_to_the_weights(params):
    state = State(params(1.0, buffers=(5.0,)), vector(-0.3), None, 2)
    replies = [
        Reply(Client(k, (1,)), Upload(vector(-0.5), vector(value), None))
        for k, value in enumerate((2.0, 4.0))
    ]
    merged = FedLESAM(variant="D").merge(state, replies)
    assert merged.params.buffers.tolist() == [3.0]
    assert merged.params.weights.tolist() == pytest.approx([1 - 0.5 - 0.3 - 0.5])


# --- against FedAvg -----------------------------------------------------------------------------


@pytest.fixture
def plain(hashes):
    return hashes(FedAvg(weighting="uniform"), optimizer=HOW)


def test_without_shift_and_correction_it_is_uniform_fedavg_with_clipping(hashes, plain):
    assert hashes(FedLESAM(rho=0.0, correction=0.0)) == plain
    assert hashes(FedLESAM(variant="base", rho=0.0)) == plain


@pytest.mark.parametrize("variant", ["base", "S"])
def test_first_round_is_uniform_fedavg_and_the_second_is_not(hashes, plain, variant):
    found = hashes(FedLESAM(variant=variant), rounds=2)
    assert found[0] == plain[0]
    assert found[1] != plain[1]


# --- costs and settings -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "expected"),  # up: least and most; down: least and most
    [
        ({}, [2, 2, 2, 2]),
        ({"variant": "base"}, [1, 1, 1, 1]),
        ({"variant": "D"}, [1, 1, 1, 1]),
        ({"reference": "last_update"}, [2, 2, 2, 3]),  # in the first round there is no last
    ],
)
def test_traffic(traffic, options, expected):
    assert traffic(FedLESAM(**options), rounds=2) == pytest.approx(expected, rel=0.01)


def test_settings_are_those_of_the_paper():
    method, how = FedLESAM(), FedLESAM.optimizer
    assert (method.variant, method.rho, method.correction, method.server_lr) == ("S", 0.5, 0.1, 1.0)
    assert (method.weighting, method.perturb_norm) == ("uniform", "global")
    assert (how.lr, how.momentum, how.weight_decay, how.max_norm) == (0.1, 0.0, 0.001, 10.0)
    assert how.lr_decay == 1.0


@pytest.mark.parametrize(
    "wrong", [{"rho": -0.5}, {"variant": "X"}, {"correction": -1.0}, {"server_lr": 0}, {"beta": 1}]
)
def test_wrong_settings_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        FedLESAM(**wrong)


def test_inputs_stay_as_they_were(client, params, slope):
    slope(1.0)
    sent = message(params(1.0), vector(0.2))
    memory = Memory(vector(2.0), vector(0.6))
    state = State(params(1.0), vector(0.2), None, 2)
    work = FedLESAM().work(client(1.0, steps=2), sent, memory)
    FedLESAM().merge(state, [Reply(Client(0, (1,)), work.upload)])
    held = [leaf for leaf in leaves([sent, memory, state]) if isinstance(leaf, torch.Tensor)]
    assert [t.tolist() for t in held] == [[1.0], [], [0.2], [2.0], [0.6], [1.0], [], [0.2]]
