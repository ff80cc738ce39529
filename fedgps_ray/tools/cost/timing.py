"""How long a model takes to train on one image, here."""

import functools
import platform
import time
from pathlib import Path
from typing import NamedTuple

import torch

from fedgps_ray import seeds
from fedgps_ray.methods.fedavg import FedAvg, Message
from fedgps_ray.models import build, initialise
from fedgps_ray.tools.cost.law import Sizes, on_threads, random_client
from fedgps_ray.training.local import Local
from fedgps_ray.training.network import Network

STEPS = 2


class Measured(NamedTuple):
    """Seconds to train on one image, and where."""

    seconds: float
    device: str
    threads: int


@functools.cache
def measure_seconds_per_image(
    model: str,
    shape: tuple[int, ...],
    batch_size: int = 8,
    device: str = "cpu",
    threads: int = 1,
) -> Measured:
    """Time forward pass, backward pass and step on random images, after a warm-up.

    On a CPU it is the time of the cores that counts, so that other programs do not.
    """
    clock = time.process_time if device == "cpu" else time.perf_counter
    with on_threads(threads):
        local = _random_client(model, shape, batch_size, torch.device(device))
        start = Message(local.network.params())
        for _ in range(2):  # the first one warms up
            began = clock()
            FedAvg().work(local, start, None)
            seconds = clock() - began
    return Measured(seconds / (STEPS * batch_size), _device_name(device), threads)


def _random_client(
    name: str, shape: tuple[int, ...], batch_size: int, device: torch.device
) -> Local:
    with torch.device("meta"):
        model = build(name, shape, 10)
    network = Network(model, device, torch.float32)
    initialise(network.model, seeds.stream(0, "cost"))
    return random_client(network, Sizes(classes=10, batch=batch_size, steps=STEPS), shape)


def _device_name(device: str) -> str:
    if device != "cpu":
        return torch.cuda.get_device_name(device)
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"one core of {next(iter(names), platform.machine())}"
