"""Estimates what trials cost in images, steps, bytes and time."""

import functools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch

from fedgps_ray.data import datasets
from fedgps_ray.data.surrogate import DEFAULT_SIZE, Noise
from fedgps_ray.models import Outside, build
from fedgps_ray.spec import TrialSpec
from fedgps_ray.tools.cost.law import RoundWork, image_terms, law_of, message_terms, times
from fedgps_ray.tools.cost.timing import Measured, measure_seconds_per_image
from fedgps_ray.training.network import layout_of

FORWARD_SHARE = (
    1 / 3
)  # of the time per training image: a backward pass takes as long as two forward passes
GPU_SPEEDUP = 100.0  # of a GPU over one CPU core, where there is no GPU to measure
BATCH = {"cpu": 8, "cuda": 64}  # most images per step when timing, to keep it short


class Cost(NamedTuple):
    """What one trial takes; seconds are those of one core or of one GPU."""

    images: int  # training images shown to clients
    gradient_images: int  # images, including noise, that gradients are computed on
    forward_images: int  # images in forward passes only: tests, statistics, comparisons
    steps: int
    bytes_up: int
    bytes_down: int
    seconds: float


class Budget(NamedTuple):
    """What several trials take together, and what the estimate is based on."""

    trials: int
    images: int
    bytes_up: int
    bytes_down: int
    core_hours: float | None  # None where a GPU was measured
    gpu_hours: float
    sentence: str


class Images(NamedTuple):
    """The size of a data set: its examples, and the shape of one as a network gets it."""

    train: int
    test: int
    classes: int
    shape: tuple[int, ...]


KNOWN = {
    "cifar10": Images(50_000, 10_000, 10, (3, 32, 32)),
    "cifar100": Images(50_000, 10_000, 100, (3, 32, 32)),
    "svhn": Images(73_257, 26_032, 10, (3, 32, 32)),
    "mnist": Images(60_000, 10_000, 10, (1, 28, 28)),
    "fashion_mnist": Images(60_000, 10_000, 10, (1, 28, 28)),
    "kmnist": Images(60_000, 10_000, 10, (1, 28, 28)),
    "qmnist": Images(60_000, 60_000, 10, (1, 28, 28)),
    "usps": Images(7_291, 2_007, 10, (1, 16, 16)),
    "stl10": Images(5_000, 8_000, 10, (3, 96, 96)),
}
EMNIST = {
    "balanced": Images(112_800, 18_800, 47, (1, 28, 28)),
    "byclass": Images(697_932, 116_323, 62, (1, 28, 28)),
    "bymerge": Images(697_932, 116_323, 47, (1, 28, 28)),
    "letters": Images(124_800, 20_800, 26, (1, 28, 28)),
    "digits": Images(240_000, 40_000, 10, (1, 28, 28)),
    "mnist": Images(60_000, 10_000, 10, (1, 28, 28)),
}


def budget(
    specs: Sequence[TrialSpec],
    device: str | None = None,
    gpu_speedup: float = GPU_SPEEDUP,
    source: datasets.Source = datasets.NO_SOURCE,
) -> Budget:
    """Time the models of some trials on this machine; return what the trials take together."""
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    models = [
        (spec.model, size_of(spec.dataset, source).shape, min(spec.batch_size, BATCH[device]))
        for spec in specs
    ]
    measured = {key: measure_seconds_per_image(*key, device) for key in dict.fromkeys(models)}
    costs = [
        estimate(spec, measured[key].seconds, source)
        for spec, key in zip(specs, models, strict=True)
    ]
    seconds = sum(cost.seconds for cost in costs)
    return Budget(
        trials=len(costs),
        images=sum(cost.images for cost in costs),
        bytes_up=sum(cost.bytes_up for cost in costs),
        bytes_down=sum(cost.bytes_down for cost in costs),
        core_hours=seconds / 3600 if device == "cpu" else None,
        gpu_hours=gpu_hours(seconds, device, gpu_speedup),
        sentence=sentence(
            {str(key[0]): timed for key, timed in measured.items()}, device, gpu_speedup
        ),
    )


def gpu_hours(seconds: float, device: str, gpu_speedup: float = GPU_SPEEDUP) -> float:
    """Convert seconds on a device to hours on one GPU."""
    return seconds / 3600 / (gpu_speedup if device == "cpu" else 1)


def sentence(
    measured: Mapping[str, Measured], device: str, gpu_speedup: float = GPU_SPEEDUP
) -> str:
    """Say in one sentence what was measured and what was assumed."""
    times = ", ".join(f"{name} {1000 * timed.seconds:.3g} ms" for name, timed in measured.items())
    where = next((f" on {timed.device}" for timed in measured.values()), "")
    assumed = "a forward pass takes a third of that time, clients are of equal size"
    if device == "cpu":
        assumed += f", and a GPU is {gpu_speedup:g} times as fast as this core"
    return (
        f"Measured{where}: {times} for each training image; counted: images and bytes, in"
        f" rounds of each method with tiny models; assumed: {assumed}."
    )


def estimate(
    spec: TrialSpec, seconds_per_image: float, source: datasets.Source = datasets.NO_SOURCE
) -> Cost:
    """Return what a trial takes, clients being of equal size.

    The refit of CCVR's head, aggregation and measuring the divergence are left out.
    """
    data = size_of(spec.dataset, source)
    law = law_of(spec.method, spec.precision)
    a_round = _client_round(spec, data)
    messages = message_terms(*_model_size(spec, data), data.classes)
    rounds, tests = spec.rounds, -(-spec.rounds // spec.evaluate_every)
    turns, asked = rounds * spec.per_round, tests * spec.clients  # all are asked before a test
    own = a_round._replace(real=data.train / spec.clients)
    gradient = turns * times(law.gradient_images, image_terms(a_round))
    forward = turns * times(law.forward_images, image_terms(a_round))
    forward += asked * times(law.asked_images, image_terms(own)) + tests * data.test
    return Cost(
        images=round(turns * a_round.real),
        gradient_images=round(gradient),
        forward_images=round(forward),
        steps=round(turns * a_round.steps),
        bytes_up=round(times(turns * law.up + asked * law.asked_up, messages)),
        bytes_down=round(times(turns * law.down + asked * law.asked_down, messages)),
        seconds=seconds_per_image * (gradient + forward * FORWARD_SHARE),
    )


def size_of(dataset: datasets.DatasetSpec, source: datasets.Source = datasets.NO_SOURCE) -> Images:
    """Return the size of a data set, reading only embedded ones and the user's own files."""
    if isinstance(dataset, datasets.Synthetic):
        side = dataset.image_size
        shape = (dataset.channels, side, side)
        return Images(dataset.train_size, dataset.test_size, dataset.num_classes, shape)
    if dataset.name in KNOWN:
        return KNOWN[dataset.name]
    if isinstance(dataset, datasets.Emnist):
        return EMNIST[dataset.split]
    sha256 = getattr(dataset, "sha256", None)
    return _read_size(dataset, sha256, source.files.get(sha256) if sha256 else None)


@functools.cache
def _read_size(dataset: datasets.DatasetSpec, sha256: str | None, path: str | None) -> Images:
    files = {sha256: path} if sha256 and path else {}
    data = datasets.load(dataset, datasets.Source(files=files))
    return Images(len(data.y_train), len(data.y_test), data.num_classes, data.input_shape)


def _model_size(spec: TrialSpec, data: Images) -> tuple[int, int, int]:
    return _layout_size(spec.model, data.shape, spec.method.num_outputs(data.classes))


@functools.cache
def _layout_size(name: str | Outside, shape: tuple[int, ...], outputs: int) -> tuple[int, int, int]:
    """Return how many weights, buffers and features a model has."""
    with torch.device("meta"):
        model = build(name, shape, outputs)
    layout = layout_of(model)
    weights, buffers = (p[-1].end if p else 0 for p in (layout.weights, layout.buffers))
    return weights, buffers, model.feature_dim


def _client_round(spec: TrialSpec, data: Images) -> RoundWork:
    """Return the work of a client of mean size; half a batch more, as the last one is not full."""
    epochs, surrogate = spec.local_epochs, spec.surrogate
    own = data.train / spec.clients
    per_class = surrogate.per_class if isinstance(surrogate, Noise) else None
    noise = per_class * data.classes if per_class else DEFAULT_SIZE
    steps = epochs * (own / spec.batch_size + 0.5)
    return RoundWork(epochs * own, steps, spec.batch_size, surrogate.batch_size, noise)
