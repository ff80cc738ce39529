"""Contenders side by side: interleaved, several times, medians and ratios."""

import os
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import numpy as np
import ray
import torch

from fedgps_ray import cluster, seeds
from fedgps_ray.bench.bare import Pool, Serial, Workload, make_data
from fedgps_ray.data.datasets import Dataset
from fedgps_ray.data.partition import class_counts
from fedgps_ray.data.surrogate import Noise, noise_images
from fedgps_ray.distributed import crew
from fedgps_ray.runtime.dispatch import Dispatcher
from fedgps_ray.runtime.pool import InProcess
from fedgps_ray.runtime.ray_pool import RayPool
from fedgps_ray.runtime.rounds import Snapshot, run
from fedgps_ray.runtime.worker import Setup, Worker
from fedgps_ray.spec import ExecutionSpec, TrialSpec, trial_spec

WORKLOADS = {
    "W1": Workload("W1", "cnn", 32, 100, 500, 10, 50),
    "W2": Workload("W2", "mlp", 8, 500, 100, 50, 50),
    "W3": Workload("W3", "cnn", 32, 100, 500, 10, 64, fedgps=True),
}
ROUNDS = {"W1": 1, "W2": 20, "W3": 1}  # in one measurement
CORES = os.cpu_count() or 1
BARE = ("bare PyTorch, threads", "bare PyTorch, processes")
OURS = ("fedgps-ray, in process", "fedgps-ray, Ray actors")


class Result(NamedTuple):
    """Seconds a round of one contender, and its ratio to the faster of the bare loops."""

    workload: str
    contender: str
    seconds: float
    ratio: float
    training_share: float | None = None


def measure(names: list[str], repeats: int, tell: Callable[[str], None]) -> Iterator[Result]:
    """Yield the results of some workloads; the contenders take turns."""
    with cluster.session(None):
        for name in names:
            with ExitStack() as stack:
                tell(f"{name}: preparing")
                contenders = _contenders(WORKLOADS[name], stack)
                yield from _race(WORKLOADS[name], contenders, repeats, tell)


def _race(
    load: Workload,
    contenders: dict[str, Callable[[], None]],
    repeats: int,
    tell: Callable[[str], None],
) -> Iterator[Result]:
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for repeat in range(repeats + 1):  # the first turn warms up and is not counted
        for name, turn in contenders.items():
            tell(f"{load.name}: {name}, turn {repeat} of {repeats}")
            began = time.perf_counter()
            turn()
            if repeat:
                seconds[name].append((time.perf_counter() - began) / ROUNDS[load.name])
    limit = [min(seconds[name][i] for name in BARE) for i in range(repeats)]
    for name, found in seconds.items():
        ratios = [mine / bare for mine, bare in zip(found, limit, strict=True)]
        yield Result(load.name, name, statistics.median(found), statistics.median(ratios))


def _contenders(load: Workload, stack: ExitStack) -> dict[str, Callable[[], None]]:
    data = make_data(load)
    serial, pool = Serial(load, data, CORES), Pool(load, data, CORES)
    stack.callback(pool.close)
    setup = make_setup(load)
    in_process = Worker(setup)
    actors = stack.enter_context(_actors(setup))
    count = ROUNDS[load.name]
    return {
        BARE[0]: lambda: _times(count, serial.round),
        BARE[1]: lambda: _times(count, pool.round),
        OURS[0]: lambda: _rounds(setup.spec, in_process, InProcess(in_process)),
        OURS[1]: lambda: _rounds(setup.spec, in_process, actors),
    }


def _times(count: int, turn: Callable[[], None]) -> None:
    for _ in range(count):
        turn()


def _rounds(spec: TrialSpec, worker: Worker, pool: Any) -> None:
    torch.set_num_threads(spec.threads)
    state = spec.method.init(worker.initial(), worker.cohort())
    for _ in run(spec, worker.cohort(), pool, Snapshot(0, state, {})):
        pass


@contextmanager
def _actors(setup: Setup) -> Iterator[RayPool]:
    execution = ExecutionSpec(actors=CORES)
    with crew(execution, setup.spec.clients, setup.spec.per_round) as started:
        dispatcher = Dispatcher(started.clients, ray.put(setup), "cpu", 60.0)
        dispatcher.wait_ready()
        yield RayPool(setup, dispatcher)


def make_setup(load: Workload) -> Setup:
    """Return a trial with the same work: random images, equal clients."""
    rng, side = seeds.stream(0, "bench"), load.image_size
    size = load.clients * load.samples

    def pictures(number: int) -> Any:
        return rng.integers(256, size=(number, side, side, 3), dtype=np.uint8)

    y = rng.integers(load.classes, size=size)
    names = tuple(str(c) for c in range(load.classes))
    half = ((0.5,) * 3, (0.25,) * 3)
    data = Dataset(pictures(size), y, pictures(256), y[:256], load.classes, names, *half, "none")
    parts = tuple(np.arange(size).reshape(load.clients, load.samples))
    spec = trial_spec(
        dataset={"name": "synthetic", "image_size": side},
        model=load.model,
        method="fedgps" if load.fedgps else "fedavg",
        clients=load.clients,
        sampling_rate=load.per_round / load.clients,
        batch_size=load.batch_size,
        rounds=ROUNDS[load.name],
        evaluate_every=10**6,
        optimizer={"client_momentum": "reset"},
    )
    noise = noise_images(Noise(per_class=500), load.classes, (side, side, 3))
    counts = class_counts(parts, y, load.classes)
    return Setup(spec, data, parts, counts, 0, noise if load.fedgps else None)
