"""Which clients take part: the recorded sequences, and what a draw depends on."""

import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from fedgps_ray.data.partition import Dirichlet, split
from fedgps_ray.methods import METHODS
from fedgps_ray.rounds.selection import official, schedule, select
from fedgps_ray.spec import trial_spec

SVHN = [4948, 13861, 10585, 8497, 7458, 6882, 5727, 5595, 5045, 4659]
CLASS_SIZES = {"cifar10": [5000] * 10, "cifar100": [500] * 100, "svhn": SVHN}
GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "sampling.json").read_text())


@cache
def sizes_of(dataset, clients, alpha, seed):
    class_sizes = CLASS_SIZES[dataset]
    labels = np.repeat(np.arange(len(class_sizes)), class_sizes)
    partition = split(labels, clients, Dirichlet(alpha=alpha, mode="official"), seed)
    return [len(part) for part in partition.parts]


def recorded_sizes(row):
    return sizes_of(row["dataset"], row["clients"], row["alpha"], row["seed"])


def name_of(row):
    return "-".join(str(row[key]) for key in ("dataset", "clients", "seed", "train_seed"))


@pytest.mark.parametrize("row", GOLDEN, ids=name_of)
def test_the_recorded_sequences_come_out(row):
    draws = 0 if row["dataset"] == "svhn" else 2 * row["local_epochs"]
    rounds = len(row["rounds"])
    drawn = official(row["train_seed"], recorded_sizes(row), row["per_round"], rounds, draws)
    assert drawn == row["rounds"]


@pytest.mark.parametrize("row", GOLDEN, ids=name_of)
def test_a_trial_meets_the_recorded_sequence(row):
    spec = trial_spec(
        dataset=row["dataset"],
        method={"name": "fedgps", "preset": "official"},
        clients=row["clients"],
        sampling_rate=row["per_round"] / row["clients"],
        partition={"alpha": row["alpha"], "mode": "official"},
        scenario=row["seed"] + 1,
        seed=row["train_seed"],
        local_epochs=row["local_epochs"],
        rounds=len(row["rounds"]),
    )
    assert schedule(spec, recorded_sizes(row)) == row["rounds"]


def test_more_epochs_read_more_of_the_official_stream():
    once = official(0, [10, 20, 30, 40], 2, 5, draws_per_image=2)
    twice = official(0, [10, 20, 30, 40], 2, 5, draws_per_image=4)
    assert once[0] == twice[0]  # the first draw is before anything is read
    assert once != twice
    spec = trial_spec(clients=4, selection="official", rounds=5, local_epochs=2)
    assert schedule(spec, [10, 20, 30, 40]) == twice


def test_official_takes_all_in_order_without_a_draw():
    assert official(0, [1, 2, 3], 3, 2, 0) == [[0, 1, 2], [0, 1, 2]]


def test_the_same_arguments_give_the_same_clients():
    assert select(3, 20, 5, 7) == select(3, 20, 5, 7)


@pytest.mark.parametrize("other", [(4, 20, 5, 7), (3, 21, 5, 7), (3, 20, 6, 7), (3, 20, 5, 8)])
def test_each_argument_matters(other):
    assert select(3, 20, 5, 7) != select(*other)


def test_a_round_does_not_depend_on_the_rounds_before():
    spec = trial_spec(clients=9, sampling_rate=0.4, rounds=6, seed=5)
    assert schedule(spec, [1] * 9) == [select(5, 9, 4, t) for t in range(6)]
    longer = trial_spec(clients=9, sampling_rate=0.4, rounds=12, seed=5)
    assert schedule(longer, [1] * 9)[:6] == schedule(spec, [1] * 9)


def test_every_method_meets_the_same_clients():
    def of(**values):
        return schedule(trial_spec(clients=9, rounds=5, **values), [7] * 9)

    federated = [name for name, kind in METHODS.items() if "clients" not in kind.overrides]
    assert len({str(of(method=name)) for name in federated}) == 1
    assert of(partition="iid", local_epochs=3, batch_size=2, model="mlp") == of(method="fedavg")


def test_clients_are_distinct_and_all_take_part_in_the_long_run():
    rounds = [select(0, 10, 3, t) for t in range(100)]
    assert all(len(set(picked)) == 3 and set(picked) <= set(range(10)) for picked in rounds)
    counts = np.bincount(np.concatenate(rounds), minlength=10)
    assert counts.min() > 10  # 30 expected, deviation 4.6
    assert {type(k) for picked in rounds for k in picked} == {int}


def test_all_clients_come_in_order():
    assert select(0, 5, 5, 3) == [0, 1, 2, 3, 4]
