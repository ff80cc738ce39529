"""Which clients take part in which round: the same for every method."""

from collections.abc import Sequence

import numpy as np

from fedgps_ray import seeds
from fedgps_ray.spec import TrialSpec


def select(seed: int, clients: int, per_round: int, round_index: int) -> list[int]:
    """Return the clients of a round, drawn without replacement; all in order when all take part."""
    if per_round == clients:
        return list(range(clients))
    rng = seeds.stream(seed, "selection", round_index)
    return [int(k) for k in rng.choice(clients, per_round, replace=False)]


def official(
    seed: int, sizes: Sequence[int], per_round: int, rounds: int, draws_per_image: int
) -> list[list[int]]:
    """Return the sequence of the authors' code, whose stream is also read by their augmentation.

    draws_per_image counts what that takes for every training image: two an epoch for CIFAR, none
    for SVHN.
    """
    rng, chosen = np.random.RandomState(seed), []
    for _ in range(rounds):
        if per_round == len(sizes):
            picked = list(range(len(sizes)))
        else:
            picked = [int(k) for k in rng.choice(len(sizes), per_round, replace=False)]
        rng.random_sample(draws_per_image * sum(sizes[k] for k in picked))
        chosen.append(picked)
    return chosen


def schedule(spec: TrialSpec, sizes: Sequence[int]) -> list[list[int]]:
    """Return the clients of every round of a trial."""
    if spec.selection == "official":
        draws = 0 if spec.dataset.name == "svhn" else 2 * spec.local_epochs
        return official(spec.seed, sizes, spec.per_round, spec.rounds, draws)
    return [select(spec.seed, spec.clients, spec.per_round, t) for t in range(spec.rounds)]
