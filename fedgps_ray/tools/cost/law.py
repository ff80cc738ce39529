"""How a method's messages and work grow with the model, the classes and the data.

Rounds are played with a few tiny models while images and bytes are counted, and the law is fitted
to the counts, so it holds for any options of the method.
"""

import functools
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedgps_ray import seeds
from fedgps_ray.methods.base import Method
from fedgps_ray.models import Model
from fedgps_ray.rounds.loop import Snapshot, run
from fedgps_ray.rounds.pool import InProcess, Kept
from fedgps_ray.rounds.setup import Setup, own_threads
from fedgps_ray.rounds.worker import Asked, Worker
from fedgps_ray.spec import TrialSpec, trial_spec
from fedgps_ray.tensors import Params, num_bytes
from fedgps_ray.tools.random_setup import Amount, random_setup
from fedgps_ray.training.evaluate import Score

Vector = NDArray[np.float64]


class Sizes(NamedTuple):
    """What a client's messages and work in a round depend on."""

    spare: int = 0  # weights besides those of the head
    buffers: int = 0
    classes: int = 2
    features: int = 4
    steps: int = 1
    batch: int = 4
    noise_batch: int = 4
    noise_set: int = 8


class RoundWork(NamedTuple):
    """Images and steps of a client in a round."""

    real: float
    steps: float
    batch: int
    noise_batch: int
    noise_set: int


class Law(NamedTuple):
    """The coefficients of the terms below, per client and round or per client asked."""

    up: Vector
    down: Vector
    gradient_images: Vector
    forward_images: Vector
    asked_up: Vector
    asked_down: Vector
    asked_images: Vector


PROBES = (
    Sizes(),
    Sizes(spare=50, steps=2),
    Sizes(buffers=30, noise_set=20, steps=3),
    Sizes(classes=3, features=5, noise_batch=6, batch=5),
    Sizes(classes=4, features=8, steps=2, batch=6, noise_set=16),
    Sizes(spare=20, classes=5, features=3, noise_batch=7, steps=3, noise_set=15),
    Sizes(spare=90, buffers=11, classes=3, features=9, noise_batch=5, batch=7, steps=4),
)


def message_terms(weights: int, buffers: int, features: int, classes: int) -> Vector:
    """Messages hold models, running statistics, and vectors or matrices for each class."""
    of_classes = (classes, classes * features, classes * features**2)
    return np.array([1, weights, buffers, *of_classes], np.float64)


def image_terms(work: RoundWork) -> Vector:
    """Work is done on batches, all images, noise batches, or the whole noise set."""
    return np.array([work.batch, work.real, work.steps * work.noise_batch, work.noise_set])


def times(coefficients: Vector, terms: Vector) -> float:
    """Return what a law gives for some terms."""
    return float(coefficients @ terms)


class Counts(NamedTuple):
    """One round: the terms of a client's messages and work, and what was counted per client."""

    message_terms: Vector
    image_terms: Vector
    per_client: dict[str, float]


@functools.cache
def law_of(method: Method, precision: str) -> Law:
    """Play rounds of several sizes and fit; the coefficients are whole, so the fit is exact."""
    with own_threads():
        played = [_play(method, sizes, precision) for sizes in PROBES]

    def fit(name: str) -> Vector:
        of_images = name.endswith("images")
        terms = [each.image_terms if of_images else each.message_terms for each in played]
        counts = [each.per_client[name] for each in played]
        coefficients, *_ = np.linalg.lstsq(np.stack(terms), np.array(counts), rcond=None)
        whole: Vector = np.rint(coefficients)
        return whole

    return Law(*(fit(name) for name in Law._fields))


def _play(method: Method, sizes: Sizes, precision: str) -> Counts:
    """Count the second of two rounds, in which all clients take part: the first has no history."""
    spec = _spec(method, sizes, precision)
    samples = sizes.steps * sizes.batch
    amount = Amount((1, 1, sizes.features), sizes.classes, samples, sizes.noise_set, test=1)
    worker = _AnySize(random_setup(spec, amount), sizes)
    pool = _CountingPool(worker)
    state = method.init(worker.initial(), worker.cohort())
    rounds = run(spec, worker.cohort(), pool, Snapshot(0, state, {}))
    next(rounds)
    pool.counts.clear()
    (second,) = rounds
    for way in ("up", "down"):
        pool.counts[way] = sum(client[f"bytes_{way}"] for client in second.clients)
    weights, buffers = worker.network.weights, worker.network.buffers
    return Counts(
        message_terms(len(weights), len(buffers), sizes.features, sizes.classes),
        image_terms(RoundWork(samples, *sizes[4:])),
        {name: pool.counts[name] / spec.clients for name in Law._fields},
    )


def _spec(method: Method, sizes: Sizes, precision: str) -> TrialSpec:
    spec = trial_spec(
        method=method,
        clients=2,
        sampling_rate=1.0,
        rounds=2,
        batch_size=sizes.batch,
        surrogate={"batch_size": sizes.noise_batch},
        precision=precision,
    )
    return spec.model_copy(update={"method": _Unmeasured(method)})


class _Unmeasured:
    """A method without its extra columns, which cost nothing in the estimate."""

    def __init__(self, method: Method) -> None:
        self.method = method

    def __getattr__(self, name: str) -> object:
        return getattr(self.method, name)

    def measure(self, *_: object) -> dict[str, float]:
        """Ask the clients nothing."""
        return {}


class _AnySize(Worker):
    """A worker whose model has any number of weights and buffers, and costs nothing to train."""

    def __init__(self, setup: Setup, sizes: Sizes) -> None:
        self.sizes = sizes
        super().__init__(setup)

    def _model(self) -> Model:
        outputs = self.spec.method.num_outputs(self.sizes.classes)
        with torch.device("meta"):
            body = _Spare(self.sizes.spare, self.sizes.buffers)
            return Model(body, self.sizes.features, outputs)

    def initial(self) -> Params:
        """Draw all numbers from the same distribution."""
        rng, vectors = seeds.stream(0, "cost"), (self.network.weights, self.network.buffers)
        return Params(*(torch.from_numpy(rng.random(len(v))).to(v) for v in vectors))


class _CountingPool(InProcess):
    """A pool that counts images and what clients are asked, and tests nothing."""

    def __init__(self, worker: Worker) -> None:
        super().__init__(worker)
        self.counts = counts = Counter[str]()

        def count(_: nn.Module, given: tuple[Tensor], __: Tensor) -> None:
            kind = "gradient_images" if torch.is_grad_enabled() else "forward_images"
            counts[kind] += len(given[0])

        # a function, not a method: a copy that a client makes of its model counts here too
        worker.network.chain = None  # it passes by the hooks of layers
        worker.network.model.body.register_forward_hook(count)

    def ask(self, asked: Asked, kept: dict[int, Kept]) -> list[Any]:
        """Ask and count; the server hears nothing, so that it has nothing to work on."""
        before = self.counts["forward_images"]
        answers = super().ask(asked, kept)
        self.counts["asked_images"] += self.counts["forward_images"] - before
        self.counts["forward_images"] = before
        self.counts["asked_down"] += num_bytes(asked.sent) * len(answers)
        self.counts["asked_up"] += num_bytes(answers)
        return [None] * len(answers)

    def start_evaluation(self, params: Params) -> Callable[[], Score]:
        """Test nothing."""
        return lambda: Score(0.0, 0.0)


class _Spare(nn.Module):
    """Passes pixels on as features; its weights and buffers are only there to be sent."""

    def __init__(self, weights: int, buffers: int) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.empty(weights))
        self.register_buffer("statistics", torch.empty(buffers))

    def forward(self, x: Tensor) -> Tensor:
        """Return the pixels in a row."""
        return x.flatten(1)
