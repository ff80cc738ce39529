"""Measures the contenders in turns, several times; returns medians and ratios."""

import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import torch

from fedgps_ray import seeds
from fedgps_ray.cluster import crew, session
from fedgps_ray.cluster.dispatch import Dispatcher, share
from fedgps_ray.cluster.policy import POLICY
from fedgps_ray.cluster.pool import RayPool
from fedgps_ray.data.partition import Dirichlet, class_counts, split
from fedgps_ray.methods.base import Turn
from fedgps_ray.rounds.loop import Snapshot, run
from fedgps_ray.rounds.pool import InProcess
from fedgps_ray.rounds.setup import Setup
from fedgps_ray.rounds.worker import Job, Worker
from fedgps_ray.spec import ExecutionSpec, TrialSpec, trial_spec
from fedgps_ray.tools.bench import command
from fedgps_ray.tools.bench.bare import Pool, Serial, Trainer, Workload, make_data
from fedgps_ray.tools.random_setup import Amount, random_setup

WORKLOADS = {
    "step": Workload(
        name="step",
        model="cnn",
        image_size=32,
        clients=2,
        samples=64 * 8,
        per_round=1,
        batch_size=64,
        fedgps=True,
    ),
    "W1": Workload(
        name="W1",
        model="cnn",
        image_size=32,
        clients=100,
        samples=500,
        per_round=10,
        batch_size=50,
    ),
    "W2": Workload(
        name="W2",
        model="mlp",
        image_size=8,
        clients=500,
        samples=100,
        per_round=50,
        batch_size=50,
    ),
    "W3": Workload(
        name="W3",
        model="cnn",
        image_size=32,
        clients=100,
        samples=500,
        per_round=10,
        batch_size=64,
        fedgps=True,
    ),
}
EXTRAS = ("skew", "start")
COMMAND_ROUNDS = {"W1": 2, "W2": 60, "W3": 2}
ROUNDS = {"step": 1, "W1": 1, "W2": 20, "W3": 1}  # in one measurement
CORES = os.cpu_count() or 1
BARE = "bare PyTorch"
Notify = Callable[[str], None]
Turns = dict[str, Callable[[], Any]]


class Result(NamedTuple):
    """Seconds of one contender per round (or step), and the ratio to the fastest bare loop."""

    workload: str
    contender: str
    seconds: float
    ratio: float
    lowest: float  # of the ratios of all turns
    highest: float


def measure(names: list[str], repeats: int, notify: Notify) -> Iterator[Result]:
    """Yield the results of the workloads given; the contenders take turns."""
    with session.connected(None):
        for name in names:
            with ExitStack() as stack:
                notify(f"{name}: preparing")
                load = WORKLOADS[name]
                turns = _step_turns(load) if name == "step" else _round_turns(load, stack)
                yield from _race(load, turns, repeats, notify)


def _race(load: Workload, turns: Turns, repeats: int, notify: Notify) -> Iterator[Result]:
    seconds: dict[str, list[float]] = {name: [] for name in turns}
    for repeat in range(repeats + 1):  # the first turn warms up and is not counted
        for name, turn in turns.items():
            notify(f"{load.name}: {name}, turn {repeat} of {repeats}")
            began = time.perf_counter()
            turn()
            if repeat:
                seconds[name].append((time.perf_counter() - began) / ROUNDS[load.name])
    bare = [times for name, times in seconds.items() if name.startswith(BARE)]
    limit = [min(turn) for turn in zip(*bare, strict=True)]
    for name, times in seconds.items():
        ratios = [mine / best for mine, best in zip(times, limit, strict=True)]
        yield _result(load.name, name, times, ratios)


def _result(workload: str, contender: str, times: list[float], ratios: list[float]) -> Result:
    seconds, ratio = statistics.median(times), statistics.median(ratios)
    return Result(
        workload=workload,
        contender=contender,
        seconds=seconds,
        ratio=ratio,
        lowest=min(ratios),
        highest=max(ratios),
    )


def measure_command(names: list[str], repeats: int, notify: Notify) -> Iterator[Result]:
    """Yield rounds of `fedgps-ray run` against the bare pool, which works before and after."""
    for name in names:
        notify(f"{name}: fedgps-ray run, {repeats} times")
        rounds = COMMAND_ROUNDS[name]
        turns = command.turns(WORKLOADS[name], rounds, repeats, CORES)
        ours, bare = ([getattr(turn, which) for turn in turns] for which in ("ours", "bare"))
        yield _result(name, f"{BARE}, {CORES} processes, beside the command", bare, [1.0])
        yield _result(name, "fedgps-ray run", ours, [turn.ratio for turn in turns])


def _step_turns(load: Workload) -> Turns:
    """Return contenders for one client's local steps on one thread, including the look-ahead."""
    bare, setup = Trainer(load, make_data(load)), make_setup(load)
    worker = Worker(setup)
    weights = bare.initial()
    ahead = torch.randn(len(weights), generator=torch.Generator().manual_seed(2))
    method, params = setup.spec.method, worker.initial()
    state = method.init(params, worker.cohort())._replace(update=ahead)
    message = method.send(state, _turn(worker))[0]
    memory = worker.work(
        Job(0, 0, message, None, None)
    ).memory  # of a client that has missed rounds since

    def ours() -> None:
        worker.work(Job(0, 5, message, memory, None))

    def theirs() -> None:
        torch.set_num_threads(1)
        bare.train(0, weights, ahead)

    return {f"{BARE}, 8 FedGPS steps": theirs, "fedgps-ray, 8 FedGPS steps": ours}


def _turn(worker: Worker) -> Turn:
    return Turn(0, worker.clients[:1], seeds.stream(0, "bench"))


def _round_turns(load: Workload, stack: ExitStack) -> Turns:
    data = make_data(load)
    serial, pool = Serial(load, data, CORES), Pool(load, data, CORES)
    stack.callback(pool.close)
    setup = make_setup(load)
    worker = Worker(setup)
    actors = stack.enter_context(_actors(setup))
    count = ROUNDS[load.name]
    return {
        f"{BARE}, {CORES} threads": lambda: _times(count, serial.round),
        f"{BARE}, {CORES} processes": lambda: _times(count, pool.round),
        "fedgps-ray, in process, 1 thread": lambda: _rounds(worker, InProcess(worker)),
        f"fedgps-ray, {CORES} Ray actors": lambda: _rounds(worker, actors),
    }


def _times(count: int, turn: Callable[[], None]) -> None:
    for _ in range(count):
        turn()


def _rounds(worker: Worker, pool: Any) -> list[Any]:
    spec = worker.spec
    torch.set_num_threads(spec.threads)
    state = spec.method.init(worker.initial(), worker.cohort())
    return list(run(spec, worker.cohort(), pool, Snapshot(0, state, {})))


@contextmanager
def _actors(setup: Setup) -> Iterator[RayPool]:
    execution = ExecutionSpec(actors=CORES)
    with crew.start(execution, setup.spec.clients, setup.spec.per_round) as started:
        dispatcher = Dispatcher(started.clients, share(setup), "cpu", POLICY)
        dispatcher.wait_ready()
        yield RayPool(setup, dispatcher)


def make_setup(load: Workload) -> Setup:
    """Return a trial that does the same work."""
    shape = (3, load.image_size, load.image_size)
    noise = 500 * load.classes if load.fedgps else 0
    return random_setup(_spec(load), Amount(shape, load.classes, load.samples, noise))


def _spec(load: Workload) -> TrialSpec:
    return trial_spec(
        dataset={"name": "synthetic", "image_size": load.image_size},
        model=load.model,
        method="fedgps" if load.fedgps else "fedavg",
        clients=load.clients,
        sampling_rate=load.per_round / load.clients,
        batch_size=load.batch_size,
        rounds=ROUNDS[load.name],
        evaluate_every=10**6,
        optimizer={"client_momentum": "reset"},
    )


def training_share(notify: Notify, rounds: int = 4) -> float:
    """Return the share of the actors' time that is spent training, for a skewed partition."""
    notify("skew: Dirichlet 0.1, 100 clients, 10 per round")
    setup = make_setup(WORKLOADS["W1"])
    parts = split(setup.data.y_train, 100, Dirichlet(alpha=0.1), 0).parts
    spec = setup.spec.model_copy(update={"rounds": rounds})
    counts = class_counts(parts, setup.data.y_train, setup.data.num_classes)
    skewed = setup._replace(parts=parts, counts=counts, spec=spec)
    with session.connected(None), _actors(skewed) as pool:
        finished = _rounds(Worker(skewed), pool)[1:]  # the first round has no timings to plan with
    worked = sum(client["work_seconds"] for done in finished for client in done.clients)
    return float(worked / sum(CORES * done.row["train_seconds"] for done in finished))


def start_up(notify: Notify) -> tuple[float, float]:
    """Return the seconds until a command's first round, and those of ray.init plus import torch."""
    notify("start: ray.init and a torch import")
    scripts = (START_RAY, "import torch")
    floor = sum(_seconds(["-c", script + SAY_READY], "ready") for script in scripts)
    notify("start: fedgps-ray run")
    with tempfile.TemporaryDirectory() as folder:
        command = ["run", "--rounds", "1", "--model", "mlp", "--actors", "2", "--out", folder]
        return _seconds(["-m", "fedgps_ray", *command], "first round begins"), floor


START_RAY = 'import ray; ray.init("local", include_dashboard=False, log_to_driver=False)'
SAY_READY = "; import sys; print('ready', file=sys.stderr)"


def _seconds(arguments: list[str], until: str) -> float:
    """Return the seconds until a new Python process prints a line with this text."""
    began = time.perf_counter()
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(
        [sys.executable, *arguments], stdout=quiet, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    said = [time.perf_counter() - began for line in process.stderr if until in line]
    if process.wait() or not said:
        raise RuntimeError(f"{shlex.join(arguments)} ended with {process.returncode}")
    return said[0]
