import pytest

from fedgps_ray.errors import UserError
from fedgps_ray.methods.fedexp import FedExP
from fedgps_ray.spec import trial_spec


@pytest.fixture
def merged(params, reply, cohort):
    """Merge one round, from weights (0, 0), and return the state."""

    def merge(method, *deltas, examples=None, buffers=((), ()), rounds=0):
        state = method.init(params((0.0, 0.0)), cohort(2, 2, (0.0, 0.0)))._replace(rounds=rounds)
        counts = examples or [1] * len(deltas)
        replies = [reply(*given) for given in zip(deltas, counts, buffers, strict=False)]
        return method.merge(state, replies)

    return merge


def test_eps_as_in_the_authors_code(merged):
    # 5 / (2 * (1 + 2 * 0.001 * 0.998^2)), a round later 0.998^4
    method = FedExP(eps_rule="authors")
    first = merged(method, (3.0, 0.0), (-1.0, 0.0))
    assert first.params.weights.tolist() == pytest.approx([2.4950299, 0.0], abs=1e-7)
    second = merged(method, (3.0, 0.0), (-1.0, 0.0), rounds=1)
    assert float(second.params.weights[0]) == pytest.approx(5 / (2 * (1 + 0.002 * 0.998**4)))


def test_the_step_is_never_below_the_floor(merged):
    # mean (1, 1), 4 / (2 * 2.001) = 0.9995
    updates = (2.0, 0.0), (0.0, 2.0)
    assert merged(FedExP(), *updates).params.weights.tolist() == [1.0, 1.0]
    lower = merged(FedExP(min_step=0.5), *updates)
    assert lower.params.weights.tolist() == pytest.approx([4 / 4.002] * 2)


def test_norms_and_mean_are_weighted_by_samples(merged):
    # p = (1/4, 3/4): mean (1, 0), mean square 16 / 4 = 4, step 4 / 2.002
    state = merged(FedExP(), (4.0, 0.0), (0.0, 0.0), examples=[1, 3])
    assert float(state.params.weights[0]) == pytest.approx(4 / 2.002)


def test_what_only_follows_is_in_no_norm_and_is_averaged(merged):
    # counted in, a counter that grew by 79 twice would give 6246 / (2 * 6242), hence step 1
    state = merged(FedExP(), (3.0, 0.0), (-1.0, 0.0), buffers=((79.0, 0.2), (79.0, 0.4)))
    assert float(state.params.weights[0]) == pytest.approx(2.4975025)
    assert state.params.buffers.tolist() == pytest.approx([79.0, 0.3])


@pytest.mark.parametrize(
    "deltas", [[(0.0, 0.0)] * 2, [(3.0, 4.0)], [(3.0, 4.0)] * 2], ids=["zero", "one", "equal"]
)
def test_updates_that_agree_make_a_step_of_one(deltas, merged):
    assert merged(FedExP(), *deltas).params.weights.tolist() == list(deltas[0])


def test_the_mean_of_two_models_is_tested(params, reply, cohort):
    # models 4, then 6: tested 4, then 5; buffers 1, then 3: the newest, or 2
    method, state = FedExP(), FedExP().init(params(0.0, buffers=(0.0,)), cohort(1, 1, 0.0))
    state = method.merge(state, [reply([4.0], buffers=(1.0,))])
    assert float(method.deploy(state, None, None).weights) == 4.0
    state = method.merge(state, [reply([2.0], buffers=(3.0,))])
    assert [float(v) for v in method.deploy(state, None, None)] == [5.0, 3.0]
    averaged = FedExP(tested_buffers="mean").deploy(state, None, None)
    assert [float(v) for v in averaged] == [5.0, 2.0]
    assert float(method.global_params(state).weights) == 6.0


def test_the_learning_rate_decays_as_in_the_paper():
    assert trial_spec(method="fedexp").optimizer.lr_decay == 0.998


@pytest.mark.parametrize(("option", "value"), [("eps", 0.0), ("min_step", -1.0)])
def test_wrong_settings_are_refused(option, value):
    with pytest.raises(UserError, match=f"{option}.*got {value}"):
        trial_spec(method={"name": "fedexp", option: value})
