"""How a method's messages and work grow with the model, the classes and the data.

Rounds of the method are played with a few tiny models, images and bytes are counted, and the law
is fitted to the counts: it holds for whatever options the method has.
"""

import functools
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedgps_ray import seeds
from fedgps_ray.data.batches import Batches, Images, Rows, Surrogate, images
from fedgps_ray.data.surrogate import NORMAL
from fedgps_ray.methods.base import Cohort, Method, Question, Reply, Turn
from fedgps_ray.models import Model
from fedgps_ray.tensors import Params, num_bytes
from fedgps_ray.training.local import Client, Local, Sgd
from fedgps_ray.training.network import Network

Vector = NDArray[np.float64]
NUM_CLIENTS = 2
CPU = torch.device("cpu")


class Sizes(NamedTuple):
    """What the messages and the work of a client in a round depend on."""

    spare: int = 0  # weights beside those of the head
    buffers: int = 0
    classes: int = 2
    features: int = 4
    steps: int = 1
    batch: int = 4
    noise_batch: int = 4
    noise_set: int = 8


class Work(NamedTuple):
    """Images and steps of a client in a round."""

    real: float
    steps: float
    batch: int
    noise_batch: int
    noise_set: int


class Law(NamedTuple):
    """By what each quantity grows with the terms below, for a client and round, or client asked."""

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


def image_terms(work: Work) -> Vector:
    """Work is done on batches, all images, noise batches, or the whole noise set."""
    return np.array([work.batch, work.real, work.steps * work.noise_batch, work.noise_set])


def times(coefficients: Vector, terms: Vector) -> float:
    """Return what a law gives for some terms."""
    return float(coefficients @ terms)


class Played(NamedTuple):
    """A round of two clients: the terms of one client's messages and work, the counts of both."""

    message_terms: Vector
    image_terms: Vector
    counts: Counter[str]


@functools.cache
def law_of(method: Method, precision: str) -> Law:
    """Play rounds of several sizes and fit; the coefficients are whole, so the fit is exact."""
    with on_threads(1):
        played = [_play(method, sizes, getattr(torch, precision)) for sizes in PROBES]

    def fit(name: str) -> Vector:
        of_images = name.endswith("images")
        terms = [each.image_terms if of_images else each.message_terms for each in played]
        counts = [each.counts[name] / NUM_CLIENTS for each in played]
        found, *_ = np.linalg.lstsq(np.stack(terms), np.array(counts), rcond=None)
        whole: Vector = np.rint(found)
        return whole

    return Law(*(fit(name) for name in Law._fields))


@contextmanager
def on_threads(number: int) -> Iterator[None]:
    """Compute on so many threads, and afterwards on as many as before."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _play(method: Method, sizes: Sizes, dtype: torch.dtype) -> Played:
    """Count the second of two rounds: in the first there is no history to send."""
    site = _Site(method, sizes, dtype)
    site.round(0)
    site.counts.clear()
    site.round(1)
    weights, buffers = (len(vector) for vector in site.network.params())
    work = Work(sizes.steps * sizes.batch, *sizes[4:])
    messages = message_terms(weights, buffers, sizes.features, sizes.classes)
    return Played(messages, image_terms(work), site.counts)


class _Site:
    """A server and two clients who all take part, with a model of any size that costs nothing."""

    def __init__(self, method: Method, sizes: Sizes, dtype: torch.dtype) -> None:
        self.method, self.sizes, self.counts = method, sizes, Counter[str]()
        with torch.device("meta"):
            outputs = method.num_outputs(sizes.classes)
            model = Model(_Spare(sizes.spare, sizes.buffers), sizes.features, outputs)
        self.network = Network(model, CPU, dtype)
        model.body.register_forward_hook(self._counter())
        self.rng = seeds.stream(0, "cost")
        start = Params(*(torch.from_numpy(self.rng.random(len(v))).to(v) for v in self._vectors()))
        labels = (sizes.steps * sizes.batch, *[0] * (sizes.classes - 1))
        self.clients = tuple(Client(k, labels) for k in range(NUM_CLIENTS))
        self.memories: list[Any] = [None] * NUM_CLIENTS
        self.state = method.init(start, Cohort(self.clients, NUM_CLIENTS, self.network.layout))

    def _vectors(self) -> tuple[Tensor, Tensor]:
        return self.network.weights, self.network.buffers

    def _counter(self) -> Any:
        counts = self.counts

        def count(_: nn.Module, given: tuple[Tensor], __: Tensor) -> None:
            counts["gradient_images" if torch.is_grad_enabled() else "forward_images"] += len(
                given[0]
            )

        return count

    def local(self, client: int, round_index: int) -> Local:
        """Return what a client may touch."""
        local = random_client(self.network, self.sizes, (1, 1, self.sizes.features))
        local.client, local.round = self.clients[client], round_index
        return local

    def round(self, index: int) -> None:
        """Send, work, merge and ask, as the runtime does."""
        turn = Turn(index, self.clients, self.rng)
        messages = self.method.send(self.state, turn)
        self.counts["down"] += sum(map(num_bytes, messages))
        replies = []
        for k, message in enumerate(messages):
            work = self.method.work(self.local(k, index), message, self.memories[k])
            self.memories[k] = work.memory
            replies.append(Reply(self.clients[k], work.upload))
            self.counts["up"] += num_bytes(work.upload)
        self.state = self.method.merge(self.state, replies)
        self.method.deploy(self.state, turn, self.ask)

    def ask(self, question: Question, sent: Any) -> list[Any]:
        """Ask everybody and count; the server hears nothing, so that it has nothing to work on."""
        before = self.counts["forward_images"]
        answers = [question(self.local(k, 0), self.memories[k], sent) for k in range(NUM_CLIENTS)]
        self.counts["asked_images"] += self.counts["forward_images"] - before
        self.counts["forward_images"] = before
        self.counts["asked_down"] += num_bytes(sent) * NUM_CLIENTS
        self.counts["asked_up"] += num_bytes(answers)
        return [None] * NUM_CLIENTS


class _Spare(nn.Module):
    """Takes images for features; weights and buffers are there to be sent only."""

    def __init__(self, weights: int, buffers: int) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.empty(weights))
        self.register_buffer("statistics", torch.empty(buffers))

    def forward(self, x: Tensor) -> Tensor:
        """Return the pixels in a row."""
        return x.flatten(1)


def random_client(network: Network, sizes: Sizes, shape: tuple[int, ...]) -> Local:
    """Return a client with random images of (channels, height, width), or rows of any shape."""
    rng = seeds.stream(0, "cost images")
    device, dtype = network.weights.device, network.weights.dtype

    def drawn(number: int, image_shape: tuple[int, ...]) -> Images:
        channels, height, width = image_shape
        pixels = rng.integers(256, size=(number, height, width, channels), dtype=np.uint8)
        labels = np.arange(number, dtype=np.int64) % sizes.classes
        return images(pixels, labels, NORMAL, to=(device, dtype))

    size = sizes.steps * sizes.batch
    index = torch.arange(size, device=device)
    is_image = len(shape) == 3
    own = drawn(size, shape) if is_image else _zeros(network, size, sizes.classes, shape)
    data = Batches(own, index, sizes.batch, rng)
    images_like = shape if is_image else (1, 1, 1)  # there is noise for images only
    noise = Surrogate(drawn(sizes.noise_set, images_like), sizes.noise_batch, rng)
    return Local(network, Client(0, (size,)), 0, sizes.classes, 1, Sgd(), Sgd().lr, data, noise)


def _zeros(network: Network, number: int, classes: int, shape: tuple[int, ...]) -> Rows:
    values = network.weights.new_zeros((number, *shape))
    labels = torch.arange(number, device=values.device) % classes
    one, zero = values.new_ones(1), values.new_zeros(1)
    return Rows(values, labels, one, zero)
