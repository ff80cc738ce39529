"""A trial made ready: its data loaded and shared out, its network built."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from fedgps_ray import seeds
from fedgps_ray.data import datasets, partition
from fedgps_ray.data.memory import check_room
from fedgps_ray.data.surrogate import Labelled, Noise, file_images, image_shape, noise_images
from fedgps_ray.methods.base import Cohort
from fedgps_ray.models import Model, build, check_takes_tokens, initialise
from fedgps_ray.rounds.guard import guarded
from fedgps_ray.spec import TrialSpec
from fedgps_ray.tensors import Params
from fedgps_ray.training.arithmetic import arithmetic, settle
from fedgps_ray.training.local import Client
from fedgps_ray.training.network import Network


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


@contextmanager
def own_threads() -> Iterator[None]:
    """Give the caller's process back the number of threads it had: trials set their own."""
    before = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(before)


class Ready:
    """A trial on a device, before its first round: what a server has to know of it."""

    def __init__(self, setup: Setup, device: str = "cpu") -> None:
        spec = setup.spec
        torch.set_num_threads(spec.threads)
        self.setup, self.spec = setup, spec
        self.device = torch.device(device)
        settle(self.device, spec.precision, spec.deterministic)
        self.dtype, cast = arithmetic(spec.precision)
        self.method = guarded(spec.method)
        self.clients = clients_of(setup)
        # by the spec: the server of a trial on GPUs is on the CPU, and shares the layout
        order = spec.device == "cuda"
        self.network = Network(self._model(), self.device, self.dtype, cast, order)

    def _model(self) -> Model:
        data = self.setup.data
        outputs = self.method.num_outputs(data.num_classes)
        if data.kind == "tokens":
            check_takes_tokens(self.spec.model)
        dtype = torch.int64 if data.kind == "tokens" else torch.float32
        with torch.device("meta"):
            model = build(self.spec.model, data.input_shape, outputs, dtype=dtype)
        sizes = (part.numel() * part.element_size() for part in model.parameters())
        check_room("the model for inputs of this size", sum(sizes))
        return model

    def cohort(self) -> Cohort:
        """Return what the server may know about clients and model."""
        return Cohort(self.clients, self.spec.per_round, self.network.layout)

    def initial(self) -> Params:
        """Return the model before training."""
        by_partition = self.spec.init_seed == "partition"
        seed = self.spec.partition_seed if by_partition else self.spec.seed
        initialise(self.network.model, seeds.stream(seed, "init"))
        return self.network.params()
