"""Times how long a model takes to train on one image on this machine."""

import functools
import platform
import time
from pathlib import Path
from typing import NamedTuple

import torch

from fedgps_ray.methods.fedavg import FedAvg, Message
from fedgps_ray.models import Outside
from fedgps_ray.rounds.setup import own_threads
from fedgps_ray.rounds.worker import Worker
from fedgps_ray.spec import TrialSpec, trial_spec
from fedgps_ray.tools.random_setup import Amount, random_setup

STEPS = 2


class Measured(NamedTuple):
    """Seconds to train on one image, and on which device."""

    seconds: float
    device: str
    threads: int


@functools.cache
def measure_seconds_per_image(
    model: str | Outside,
    shape: tuple[int, ...],
    batch_size: int = 8,
    device: str = "cpu",
    threads: int = 1,
) -> Measured:
    """Time forward pass, backward pass and step on random images, after a warm-up.

    On a CPU this is CPU time, so that other programs do not count.
    """
    spec = trial_spec(model=model, clients=1, batch_size=batch_size, threads=threads)
    clock = time.process_time if device == "cpu" else time.perf_counter
    with own_threads():
        worker = _worker(spec, shape, device)
        start = Message(worker.initial())
        for _ in range(2):  # the first one warms up
            began = clock()
            FedAvg().work(worker.local(0, 0, None), start, None)
            seconds = clock() - began
    return Measured(seconds / (STEPS * batch_size), _device_name(device), threads)


def _worker(spec: TrialSpec, shape: tuple[int, ...], device: str) -> Worker:
    amount = Amount(shape, classes=10, samples=STEPS * spec.batch_size, test=1)
    return Worker(random_setup(spec, amount), device)


def _device_name(device: str) -> str:
    if device != "cpu":
        return torch.cuda.get_device_name(device)
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"one core of {next(iter(names), platform.machine())}"
