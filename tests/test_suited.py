"""Values that suit a data set, where the user gives none."""

import pytest

from fedgps_ray.api.settings import suited_trial
from fedgps_ray.experiment.suited import suited, suited_noise
from fedgps_ray.spec import trial_spec


@pytest.mark.parametrize(
    ("values", "chosen"),
    [
        ({}, {"batch_size": 8, "rounds": 60}),
        ({"dataset": "digits", "rounds": 5}, {"batch_size": 8}),
        ({"dataset": {"name": "digits"}, "batch_size": 32}, {"rounds": 60}),
        ({"dataset": "cifar10"}, {"batch_size": 64, "rounds": 50}),
        ({"dataset": "mine.npz", "rounds": None}, {"batch_size": 64, "rounds": 50}),
    ],
)
def test_open_settings_are_chosen_by_the_data_set(values, chosen):
    assert suited(values) == chosen


@pytest.mark.parametrize(
    ("values", "batch_size", "chosen"),
    [
        ({}, 8, {"surrogate": {"batch_size": 16}}),
        ({"surrogate": {"per_class": 9}}, 4, {"surrogate": {"per_class": 9, "batch_size": 8}}),
        ({"surrogate": {"batch_size": 99}}, 4, {}),
        ({}, 64, {}),
        ({"surrogate": "noise.npz"}, 4, {}),
    ],
)
def test_not_more_than_two_noise_images_for_a_real_one(values, batch_size, chosen):
    assert suited_noise(values, batch_size) == chosen


def test_the_choice_is_written_into_the_spec():
    spec, _, chosen = suited_trial({"method": "fedgps"}, [])
    assert (spec.batch_size, spec.rounds, spec.surrogate.batch_size) == (8, 60, 16)
    assert set(chosen) == {"batch_size", "rounds", "surrogate"}


def test_what_a_method_does_not_use_stays_as_it_is():
    spec, _, chosen = suited_trial({"method": "fedavg"}, ["batch_size=64", "rounds=50"])
    assert chosen == {}
    assert spec == trial_spec(method="fedavg")
