"""Tiny trials on generated images, run by worker, pool and round loop without Ray."""

import torch
import torch.nn.functional as F
from torch import Tensor

from fedgps_ray.data.datasets import NO_SOURCE
from fedgps_ray.identity import Table
from fedgps_ray.methods import METHODS
from fedgps_ray.methods.base import Method
from fedgps_ray.rounds.loop import Finished, Snapshot, run
from fedgps_ray.rounds.pool import InProcess
from fedgps_ray.rounds.setup import prepare
from fedgps_ray.rounds.worker import Worker
from fedgps_ray.spec import TrialSpec, trial_spec

DATA = {"num_classes": 3, "image_size": 8, "channels": 1, "train_size": 60, "test_size": 15}
# One client takes part in all three rounds, one misses the second, two are new there.
TINY: Table = {
    "dataset": {"name": "synthetic", **DATA},
    "partition": {"alpha": 0.5, "min_size": 6},
    "model": "convnet",
    "clients": 5,
    "sampling_rate": 0.6,
    "rounds": 3,
    "batch_size": 8,
    "surrogate": {"per_class": 4, "batch_size": 6},
}
EXACT = {"precision": "float64"}
FASTER: Table = {"ccvr": {"virtual_features": 20}}  # less work of the same kind


def quick(name: str) -> Method:
    """Return a method with its defaults, except those that only take time."""
    return METHODS[name](**FASTER.get(name, {}))


def tiny(method: Method, settings: Table) -> TrialSpec:
    """Return the spec of a tiny trial."""
    return trial_spec(method=method, **{**TINY, **settings})


def play(method: Method, **settings: object) -> list[Finished]:
    """Run a tiny trial."""
    return rounds_of(Worker(prepare(tiny(method, settings), NO_SOURCE)))


def rounds_of(worker: Worker) -> list[Finished]:
    """Run all rounds of a trial."""
    start = Snapshot(0, worker.spec.method.init(worker.initial(), worker.cohort()), {})
    return list(run(worker.spec, worker.cohort(), InProcess(worker), start))


class Trials:
    """Tiny trials; each runs once, however many checks use it."""

    def __init__(self) -> None:
        self._done: dict[str, list[Finished]] = {}

    def run(self, method: Method, **settings: object) -> list[Finished]:
        """Return the finished rounds of a trial."""
        key = f"{method!r} {sorted(settings.items())}"
        if key not in self._done:
            self._done[key] = play(method, **settings)
        return self._done[key]

    def hashes(self, method: Method, **settings: object) -> tuple[str, ...]:
        """Return the digest of the global weights after each round."""
        return tuple(done.row["weights_sha256"] for done in self.run(method, **settings))

    def weights(self, method: Method, **settings: object) -> Tensor:
        """Return the last global weights."""
        return method.global_params(self.run(method, **settings)[-1].snapshot.state).weights


def distance(left: Tensor, right: Tensor) -> float:
    """Return the largest difference of two vectors."""
    return float((left - right).abs().max())


def plain_sgd(method: Method, **settings: object) -> Tensor:
    """Train with PyTorch's own optimizer on the first client's batches in every round."""
    spec = tiny(method, settings)
    worker = Worker(prepare(spec, NO_SOURCE))
    network, given = worker.network, spec.optimizer
    network.load(worker.initial())
    model = network.model.train()
    sgd = torch.optim.SGD(
        model.parameters(), given.lr, given.momentum, weight_decay=given.weight_decay
    )
    for round_index in range(spec.rounds):
        for batch in worker.local(0, round_index, None).batches():
            sgd.zero_grad(set_to_none=False)
            torch.autograd.backward(F.cross_entropy(model(batch.x), batch.y))
            sgd.step()
    return network.weights
