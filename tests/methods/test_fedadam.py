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


def test_two_rounds_from_nothing(walked):
    # m 0.1, v 0.01: 0.01 / (0.1 + 0.001) ; m 0.14, v 0.0124: 0.014 / (0.1113553 + 0.001)
    states = walked(FedAdam(**ZERO), 1.0, 0.5)
    assert lengths(states) == pytest.approx([0.0990099, 0.1246047], abs=1e-7)
    assert [float(s.first) for s in states] == pytest.approx([0.0, 0.1, 0.14])
    assert [float(s.second) for s in states] == pytest.approx([0.0, 0.01, 0.0124])


def test_second_moment_from_tau_squared(walked):
    # v 0.99 * 1e-6 + 0.01: 0.01 / (0.1000050 + 0.001)
    assert lengths(walked(FedAdam(server_lr=0.1), 1.0)) == pytest.approx([0.0990050], abs=1e-7)


def test_bias_correction_as_in_flower(walked):
    # 0.0990099 * sqrt(1 - 0.99^2) / (1 - 0.9^2) ; then with powers of 3
    method = FedAdam(**ZERO, bias_correction="flower")
    first, second = lengths(walked(method, 1.0, 0.5))
    assert first == pytest.approx(0.0735109, abs=1e-7)
    assert second == pytest.approx(0.1246047 * (1 - 0.99**3) ** 0.5 / (1 - 0.9**3), abs=1e-7)


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


def test_the_mean_is_squared_not_averaged_in_squares(params, reply, cohort):
    method = FedAdam(**ZERO)
    state = method.init(params(5.0), cohort(2, 2, 5.0))
    state = method.merge(state, [reply([1.0]), reply([-1.0])])
    assert [float(state.second), float(state.params.weights)] == [0.0, 5.0]


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


def test_a_model_goes_each_way(traffic):
    assert traffic(FedAdam()) == [1.0, 1.0, 1.0, 1.0]


@pytest.mark.parametrize(
    ("option", "value"),
    [("server_lr", 0.0), ("beta1", 1.0), ("beta2", -0.1), ("tau", 0.0)],
)
def test_wrong_settings_are_refused(option, value):
    with pytest.raises(UserError, match=f"{option}.*got {value}"):
        trial_spec(method={"name": "fedadam", option: value})
