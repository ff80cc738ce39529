"""A trial made ready: its data loaded, shared out, and the surrogate set made."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedgps_ray.data import datasets, partition
from fedgps_ray.data.surrogate import Labelled, Noise, file_images, image_shape, noise_images
from fedgps_ray.spec import TrialSpec
from fedgps_ray.training.local import Client


class Setup(NamedTuple):
    """A trial made ready: the spec and all its data, as arrays that processes can share."""

    spec: TrialSpec
    data: datasets.Dataset
    parts: tuple[NDArray[np.int64], ...]
    counts: NDArray[np.int64]
    moved_samples: int
    surrogate: Labelled | None


def prepare(
    spec: TrialSpec, source: datasets.Source, data: datasets.Dataset | None = None
) -> Setup:
    """Load the data set, share it out, and make the surrogate set if the method uses one."""
    data = data or datasets.load(spec.dataset, source)
    split = partition.split(
        data.y_train, spec.clients, spec.partition, spec.partition_seed, data.client_train
    )
    counts = partition.class_counts(split.parts, data.y_train, data.num_classes)
    surrogate = None
    if spec.method.needs_surrogate:
        shape = image_shape(data)
        if isinstance(spec.surrogate, Noise):
            surrogate = noise_images(spec.surrogate, data.num_classes, shape)
        else:
            path = datasets.locate(spec.surrogate.file, spec.surrogate.sha256, source)
            surrogate = file_images(str(path), data.num_classes, shape)
    return Setup(
        spec=spec,
        data=data,
        parts=split.parts,
        counts=counts,
        moved_samples=split.moved,
        surrogate=surrogate,
    )


def clients_of(setup: Setup) -> tuple[Client, ...]:
    """Return all clients as the server sees them."""
    return tuple(Client(k, tuple(int(n) for n in row)) for k, row in enumerate(setup.counts))
