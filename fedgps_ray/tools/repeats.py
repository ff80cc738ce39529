"""Whether a device gives the same bits again: a few steps of a small trial, done twice."""

from fedgps_ray import seeds
from fedgps_ray.data.datasets import NO_SOURCE
from fedgps_ray.methods.base import Turn
from fedgps_ray.rounds.setup import prepare
from fedgps_ray.rounds.worker import Job, Worker
from fedgps_ray.spec import TrialSpec, trial_spec
from fedgps_ray.tensors import sha256

STEPS, BATCH = 4, 16


def hashes(device: str, times: int = 2) -> list[str]:
    """Return the digest of an update of FedGPS for each time that it is computed."""
    return [_update(_spec(device), device) for _ in range(times)]


def _spec(device: str) -> TrialSpec:
    """Return a trial with convolutions, BatchNorm and contrast, where GPUs tend to differ."""
    size = {"image_size": 16, "channels": 3, "train_size": STEPS * BATCH, "test_size": BATCH}
    return trial_spec(
        dataset={"name": "synthetic", "num_classes": 4, **size},
        partition="iid",
        clients=1,
        model="convnet",
        method="fedgps",
        batch_size=BATCH,
        surrogate={"per_class": 8, "batch_size": BATCH},
        device="cuda" if device.startswith("cuda") else "cpu",
    )


def _update(spec: TrialSpec, device: str) -> str:
    worker, method = Worker(prepare(spec, NO_SOURCE), device), spec.method
    state = method.init(worker.initial(), worker.cohort())
    (message,) = method.send(state, Turn(0, worker.clients, seeds.stream(0, "server", 0)))
    return sha256(worker.work(Job(0, 0, message)).upload.delta)
