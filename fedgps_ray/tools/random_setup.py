"""A trial on random images, for tools that count or time work and do not care what is learned."""

from typing import NamedTuple

import numpy as np

from fedgps_ray import seeds
from fedgps_ray.data.datasets import Dataset
from fedgps_ray.data.partition import class_counts
from fedgps_ray.data.surrogate import Labelled
from fedgps_ray.rounds.worker import Setup
from fedgps_ray.spec import TrialSpec


class Amount(NamedTuple):
    """How much data there is: images of (channels, height, width), and how many."""

    shape: tuple[int, int, int]
    classes: int
    samples: int  # of each client
    noise: int = 0  # images in the surrogate set
    test: int = 256


def random_setup(spec: TrialSpec, amount: Amount) -> Setup:
    """Return a trial with clients of equal size and images that are drawn, not loaded."""
    rng, (channels, height, width) = seeds.stream(0, "random images"), amount.shape

    def drawn(number: int) -> Labelled:
        pixels = rng.integers(256, size=(number, height, width, channels), dtype=np.uint8)
        return pixels, np.arange(number, dtype=np.int64) % amount.classes

    x, y = drawn(spec.clients * amount.samples)
    names = tuple(str(c) for c in range(amount.classes))
    normal = (0.5,) * channels, (0.25,) * channels
    data = Dataset(x, y, *drawn(amount.test), amount.classes, names, *normal, "none")
    parts = tuple(np.arange(len(y)).reshape(spec.clients, amount.samples))
    noise = drawn(amount.noise) if amount.noise else None
    return Setup(spec, data, parts, class_counts(parts, y, amount.classes), 0, noise)
