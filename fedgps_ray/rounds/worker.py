"""A plain class that does one client's work in one round, evaluates, and answers questions."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from fedgps_ray import seeds
from fedgps_ray.data.batches import (
    PLAIN_BATCH,
    Batches,
    Examples,
    Images,
    Surrogate,
    examples,
    images,
)
from fedgps_ray.data.surrogate import NORMAL
from fedgps_ray.methods.base import Memory, Question, Reply
from fedgps_ray.rounds.setup import Ready, Setup
from fedgps_ray.tensors import Params, all_finite, norm
from fedgps_ray.training.evaluate import Outputs, Score, Tally, score, tallies
from fedgps_ray.training.local import Local
from fedgps_ray.training.memory import keep_freed

Handle = Any  # a value for a worker, or where a pool keeps it: by reference, number or parcel


class Job(NamedTuple):
    """What the server asks of one client in a round, from what the client kept."""

    client: int
    round: int
    message: Handle
    memory: Handle | None = None
    velocity: Handle | None = None
    shares: Mapping[str, float] = {}  # by the fields of the upload that are averaged


class Asked(NamedTuple):
    """A question of the server to every client, and what it sends along."""

    round: int
    question: Question
    sent: Any


class Worker(Ready):
    """Serves any client of a trial: one live network, the data, no memory of its own."""

    def __init__(self, setup: Setup, device: str = "cpu", name: str = "in-process") -> None:
        super().__init__(setup, device)
        self.name = name
        keep_freed()
        self._parts = [torch.from_numpy(part.copy()).to(self.device) for part in setup.parts]
        self._train, self._test = self._examples()
        self._surrogate = self._surrogate_images()
        if self.spec.compile:
            with_noise = self.spec.batch_size + self.spec.surrogate.batch_size
            self.network.compile({self.spec.batch_size, with_noise})

    def _examples(self) -> tuple[Examples, Batches]:
        data, to = self.setup.data, (self.device, self.dtype)
        augment = data.augment if self.spec.augment == "auto" else self.spec.augment
        index = torch.arange(len(data.y_test), device=self.device)
        test = Batches(examples(data, "test", "none", to), index)
        return examples(data, "train", augment, to), test

    def _surrogate_images(self) -> Images | None:
        if self.setup.surrogate is None:
            return None
        pixels, labels = self.setup.surrogate
        return images(pixels, labels, NORMAL, "crop_flip", (self.device, self.dtype))

    def local(
        self, client: int, round_index: int, velocity: torch.Tensor | None, purpose: str = "train"
    ) -> Local:
        """Return all that a client may touch in a round."""
        spec = self.spec
        sgd = spec.optimizer
        keeps = sgd.client_momentum == "persist"

        def rng(what: str) -> np.random.Generator:
            return seeds.stream(spec.seed, f"{purpose} {what}", round_index, client)

        augment = None if self._train.augment == "none" else rng("augment")
        data = Batches(self._train, self._parts[client], spec.batch_size, rng("order"), augment)
        surrogate = None
        if self._surrogate is not None:
            size, steps = spec.surrogate.batch_size, -(-len(data.index) // spec.batch_size)
            ahead = 1 if self.device.type == "cpu" else max(1, steps)
            surrogate = Surrogate(self._surrogate, size, rng("surrogate"), ahead)
        return Local(
            network=self.network,
            client=self.clients[client],
            round=round_index,
            num_classes=self.setup.data.num_classes,
            epochs=spec.local_epochs,
            optimizer=sgd,
            lr=sgd.lr * sgd.lr_decay**round_index,
            data=data,
            surrogate=surrogate,
            velocity=velocity.clone() if velocity is not None and keeps else None,
        )

    def work(self, job: Job) -> Reply:
        """Let the method work on one client."""
        began = time.perf_counter()
        message, memory, velocity = self._here((job.message, job.memory, job.velocity))
        local = self.local(job.client, job.round, velocity)
        with self.network.drawing(self._layers("train", job.round, job.client)):
            work = self.method.work(local, message, memory)
        kept = local.velocity if self.spec.optimizer.client_momentum == "persist" else None
        return Reply(
            client=local.client,
            upload=work.upload,
            memory=work.memory,
            velocity=kept,
            loss=work.loss,
            metrics=work.metrics,
            steps=local.steps,
            gradient_evaluations=local.backward_passes,
            finite=all_finite(work.upload),
            update_norm=_update_norm(work.upload),
            seconds=time.perf_counter() - began,
            worker=self.name,
        )

    def answer(self, asked: Asked, client: int, memory: Memory | None) -> Any:
        """Ask one client."""
        local = self.local(client, asked.round, None, "ask")
        with self.network.drawing(self._layers("ask", asked.round, client)):
            return asked.question(local, self._here(memory), self._here(asked.sent))

    def _layers(
        self, purpose: str, round_index: int, client: int
    ) -> Callable[[], np.random.Generator]:
        """Return what makes the stream of layers that draw, such as dropout."""
        return lambda: seeds.stream(self.spec.seed, f"{purpose} layers", round_index, client)

    def evaluate(self, params: Params) -> Score:
        """Test a model."""
        return score(self.tallies(params, range(self.num_test_batches)))

    @property
    def num_test_batches(self) -> int:
        """Into how many pieces the test set falls, whoever tests them."""
        return -(-len(self.setup.data.y_test) // PLAIN_BATCH)

    def tallies(self, params: Params, numbers: Sequence[int]) -> list[Tally]:
        """Test a model on some batches of the test set."""
        num_classes = self.setup.data.num_classes
        real = num_classes if self.spec.eval_logits == "real" else None
        batches = (self._test.batch(number) for number in numbers)
        return tallies(self.network, self._here(params), batches, Outputs(num_classes, real))

    def _here(self, value: object) -> Any:
        """Move all tensors of a value to this worker's device."""
        if self.device.type == "cpu":
            return value
        return moved_to(value, self.device)


def _update_norm(upload: object) -> float | None:
    """Return how far a client moved the weights, if its upload says so."""
    delta = getattr(upload, "delta", None)
    return norm(delta) if isinstance(delta, torch.Tensor) else None


def moved_to(value: object, device: torch.device) -> Any:
    """Return the same structure with its tensors on a device."""
    if isinstance(value, torch.Tensor):
        return value.to(device)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(moved_to(item, device) for item in value))
    if isinstance(value, list | tuple):
        return type(value)(moved_to(item, device) for item in value)
    if isinstance(value, dict):
        return {key: moved_to(item, device) for key, item in value.items()}
    return value
