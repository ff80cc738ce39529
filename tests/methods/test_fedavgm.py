import pytest
import torch

from fedgps_ray.errors import UserError
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


def test_the_server_step_scales_the_move(params, reply, cohort):
    # 10 - 0.5 * 1.9
    seen, _ = weights_after(FedAvgM(server_lr=0.5), [9.0], params, reply, cohort)
    assert seen == pytest.approx([9.05])


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


def test_without_updates_the_model_coasts(params, reply, cohort):
    # v 0.9, then 0.9 + 0.9 * 0 ... : d 0, v 0.9, step 0.9 * 0.9
    method = FedAvgM()
    state = method.init(params(0.0), cohort(1, 1, 0.0))._replace(velocity=torch.ones(1).double())
    state = method.merge(state, [reply([0.0])])
    assert float(state.params.weights) == pytest.approx(0.81)


@pytest.mark.parametrize(
    ("option", "value"), [("server_momentum", 1.0), ("server_momentum", -0.1), ("server_lr", 0.0)]
)
def test_wrong_settings_are_refused(option, value):
    with pytest.raises(UserError, match=f"{option}.*got {value}"):
        trial_spec(method={"name": "fedavgm", option: value})
