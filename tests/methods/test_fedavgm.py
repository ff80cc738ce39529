import pytest
import torch

from fedgps_ray.errors import UserError
from fedgps_ray.methods.fedavg import FedAvg
from fedgps_ray.methods.fedavgm import FedAvgM
from fedgps_ray.spec import trial_spec


def weights_after(method, client_means, params, reply, cohort):
    """Start at 10; clients end at the means given, one after the other."""
    state, seen = method.init(params(10.0), cohort(1, 1, 10.0)), []
    for mean in client_means:
        moved = mean - float(state.params.weights)
        state = method.merge(state, [reply([moved])])
        seen.append(float(state.params.weights))
    return seen, float(state.velocity)


def test_nesterov_on_the_server(params, reply, cohort):
    # d 1, v 1, 10 - (1 + 0.9) = 8.1 ; d 0.5, v 0.9 + 0.5 = 1.4, 8.1 - (0.5 + 0.9 * 1.4) = 6.34
    seen, velocity = weights_after(FedAvgM(), [9.0, 7.6], params, reply, cohort)
    assert seen == pytest.approx([8.1, 6.34])
    assert velocity == pytest.approx(-1.4)


def test_plain_momentum_on_the_server_is_not_damped(params, reply, cohort):
    # v 1, 10 - 1 = 9 (damped, it would be 9.9) ; v 0.9 + 0.5 = 1.4, 9 - 1.4 = 7.6
    seen, _ = weights_after(FedAvgM(nesterov=False), [9.0, 8.5], params, reply, cohort)
    assert seen == pytest.approx([9.0, 7.6])


def test_the_server_step_scales_the_move(params, reply, cohort):
    # 10 - 0.5 * 1.9
    seen, _ = weights_after(FedAvgM(server_lr=0.5), [9.0], params, reply, cohort)
    assert seen == pytest.approx([9.05])


def test_running_statistics_are_averaged_not_extrapolated(params, reply, cohort):
    # with the rule of the weights the variance would be 1 - 1.9 * 0.8 = -0.52
    method = FedAvgM()
    state = method.init(params(10.0, buffers=(1.0,)), cohort(1, 1, 10.0))
    state = method.merge(state, [reply([-1.0], buffers=(0.2,))])
    assert state.params.buffers.tolist() == [0.2]
    assert state.velocity.shape == state.params.weights.shape


def test_the_mean_update_is_weighted_by_samples(params, reply, cohort):
    # (1 * 4 + 3 * 0) / 4 = 1, then 1.9 times that
    method = FedAvgM()
    state = method.init(params(0.0), cohort(2, 2, 0.0))
    state = method.merge(state, [reply([4.0], 1), reply([0.0], 3)])
    assert float(state.params.weights) == pytest.approx(1.9)


def test_merging_changes_nothing_in_place(params, reply, cohort):
    method = FedAvgM()
    state = method.init(params(10.0), cohort(1, 1, 10.0))
    sent = reply([-1.0])
    method.merge(state, [sent])
    assert (float(state.params.weights), float(state.velocity)) == (10.0, 0.0)
    assert float(sent.upload.delta) == -1.0


@pytest.mark.parametrize("nesterov", [True, False])
def test_without_momentum_it_is_fedavg(nesterov, hashes):
    assert hashes(FedAvgM(server_momentum=0.0, nesterov=nesterov)) == hashes(FedAvg())


def test_without_updates_the_model_coasts(params, reply, cohort):
    # v 0.9, then 0.9 + 0.9 * 0 ... : d 0, v 0.9, step 0.9 * 0.9
    method = FedAvgM()
    state = method.init(params(0.0), cohort(1, 1, 0.0))._replace(velocity=torch.ones(1).double())
    state = method.merge(state, [reply([0.0])])
    assert float(state.params.weights) == pytest.approx(0.81)


def test_a_model_goes_each_way(traffic):
    assert traffic(FedAvgM()) == [1.0, 1.0, 1.0, 1.0]


@pytest.mark.parametrize(
    ("option", "value"), [("server_momentum", 1.0), ("server_momentum", -0.1), ("server_lr", 0.0)]
)
def test_wrong_settings_are_refused(option, value):
    with pytest.raises(UserError, match=f"{option}.*got {value}"):
        trial_spec(method={"name": "fedavgm", option: value})
