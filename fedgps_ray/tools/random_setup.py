"""A trial on random images, for tools that count or time work and do not care what is learned."""

from typing import NamedTuple

import numpy as np

from fedgps_ray import seeds
from fedgps_ray.data.datasets import Dataset
from fedgps_ray.data.partition import class_counts
from fedgps_ray.data.surrogate import Labelled
from fedgps_ray.rounds.setup import Setup
from fedgps_ray.spec import TrialSpec


class Amount(NamedTuple):
    """How much data there is: images of (channels, height, width) or rows, and how many."""

    shape: tuple[int, ...]
    classes: int
    samples: int  # of each client
    noise: int = 0  # images in the surrogate set
    test: int = 256


def random_setup(spec: TrialSpec, amount: Amount) -> Setup:
    """Return a trial with clients of equal size and data that are drawn, not loaded."""
    rng, is_image = seeds.stream(0, "random images"), len(amount.shape) == 3
    stored = (*amount.shape[1:], amount.shape[0]) if is_image else amount.shape

    def drawn(number: int) -> Labelled:
        pixels = rng.integers(256, size=(number, *stored), dtype=np.uint8)
        return pixels, np.arange(number, dtype=np.int64) % amount.classes

    (x, y), (x_test, y_test) = drawn(spec.clients * amount.samples), drawn(amount.test)
    if not is_image:
        x, x_test = x.astype(np.float32), x_test.astype(np.float32)
    names = tuple(str(c) for c in range(amount.classes))
    data = Dataset(
        x_train=x,
        y_train=y,
        x_test=x_test,
        y_test=y_test,
        num_classes=amount.classes,
        class_names=names,
        mean=(0.5,) * stored[-1],
        std=(0.25,) * stored[-1],
        augment="none",
        kind="images" if is_image else "features",
    )
    parts = tuple(np.arange(len(y)).reshape(spec.clients, amount.samples))
    return Setup(
        spec=spec,
        data=data,
        parts=parts,
        counts=class_counts(parts, y, amount.classes),
        moved_samples=0,
        surrogate=drawn(amount.noise) if amount.noise else None,
    )
