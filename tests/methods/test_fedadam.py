from itertools import pairwise

import pytest

from fedgps_ray.errors import UserError
from fedgps_ray.methods.fedadam import FedAdam
from fedgps_ray.spec import trial_spec

ZERO = {"server_lr": 0.1, "second_start": "zero"}


@pytest.fixture
def walked(params, reply, cohort):
    """Start at 0, let the clients move by each of the means, and return all states."""

    def walk(method, *means):
        states = [method.init(params(0.0), cohort(1, 1, 0.0))]
        for mean in means:
            states.append(method.merge(states[-1], [reply([mean])]))
        return states

    return walk


def lengths(states):
    at = [float(state.params.weights) for state in states]
    return [there - here for here, there in pairwise(at)]


def test_a_step_of_about_the_rate_or_of_a_multiple_of_a_small_update(walked):
    # |D| >> 0.01: about 0.1 ; |D| << 0.01: 100 * 0.1 * D
    assert lengths(walked(FedAdam(**ZERO), -50.0)) == pytest.approx([-0.1], rel=1e-3)
    assert lengths(walked(FedAdam(**ZERO), 1e-6)) == pytest.approx([1e-5], rel=1e-3)


def test_by_default_a_small_update_goes_half_as_far_as_in_fedavg_at_first_and_then_farther(walked):
    # round 1: 0.01 * 0.1 D / (0.99^0.5 + 1) tau ; 30: 0.01 (1 - 0.9^30) D / (0.99^15 + 1) tau
    # which is 1 / 1.9949874 and 9.576088 / 1.8600584
    ratios = [length / 1e-9 for length in lengths(walked(FedAdam(), *[1e-9] * 30))]
    assert ratios[0] == pytest.approx(0.5013, abs=1e-4)
    assert ratios[29] == pytest.approx(5.1483, abs=1e-4)


def test_running_statistics_are_averaged(params, reply, cohort):
    method = FedAdam()
    state = method.init(params(0.0, buffers=(1.0,)), cohort(2, 2, 0.0))
    sent = [reply([1.0], 1, buffers=(2.0,)), reply([1.0], 3, buffers=(4.0,))]
    merged = method.merge(state, sent)
    assert merged.params.buffers.tolist() == [3.5]
    assert merged.second.shape == merged.params.weights.shape
    assert [float(v) for v in (state.params.weights, state.first, state.second)] == [0, 0, 1e-6]


def test_a_huge_tau_leaves_the_mean_update(walked):
    method = FedAdam(server_lr=1e9, tau=1e9, beta1=0.0, second_start="zero")
    assert lengths(walked(method, 0.5, -2.0)) == pytest.approx([0.5, -2.0])


@pytest.mark.parametrize(
    ("option", "value"),
    [("server_lr", 0.0), ("beta1", 1.0), ("beta2", -0.1), ("tau", 0.0)],
)
def test_wrong_settings_are_refused(option, value):
    with pytest.raises(UserError, match=f"{option}.*got {value}"):
        trial_spec(method={"name": "fedadam", option: value})
