"""One Ray cluster with a crew of ten for all tests that do not need their own, and tiny trials."""

import contextlib
import importlib.util
import logging
import os
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import ray
from ray.cluster_utils import Cluster

from fedgps_ray.cluster import crew as crews
from fedgps_ray.cluster.dispatch import Dispatcher, share
from fedgps_ray.cluster.policy import RetryPolicy
from fedgps_ray.cluster.pool import RayPool
from fedgps_ray.methods import METHODS
from fedgps_ray.results.read import read_trial
from fedgps_ray.rounds.setup import prepare
from fedgps_ray.rounds.trial import claimed, run_trial, run_with_pool
from fedgps_ray.rounds.worker import Worker
from fedgps_ray.spec import ExecutionSpec, trial_spec
from tests.processes import patient

HERE = Path(__file__).parent
HOOK = {"worker_process_setup_hook": "faulty.register"}
QUIET = {"log_to_driver": False, "logging_level": logging.ERROR, "runtime_env": HOOK}
NO_SPARE_WORKERS = {"prestart_worker_first_driver": False, "enable_worker_prestart": False}
TINY = {
    "dataset": {"name": "synthetic", "image_size": 8, "train_size": 200, "test_size": 600},
    "partition": {"kind": "dirichlet", "alpha": 0.5},
    "model": "convnet",
    "clients": 5,
    "sampling_rate": 0.6,
    "batch_size": 32,
    "rounds": 4,
}

ROOM = {"num_cpus": 1, "object_store_memory": 200_000_000}
SOON = RetryPolicy(next_actor_seconds=5.0)
ALL = {"sampling_rate": 1.0}  # every client in every round, so that the faulty one takes part


def _load(name):
    """Import a file beside this one under the name by which a cluster's processes know it."""
    spec = importlib.util.spec_from_file_location(name, HERE / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


faulty = _load("faulty")


CLUSTERS = ("own_cluster", "shared_cluster")  # in this order: a process has one Ray at a time


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Run tests with clusters of their own before the one that all others share is started.

    Side by side, tests of the same kind stay together in one process.
    """

    def turn(item):
        used = getattr(item, "fixturenames", ())
        return max((1 + i for i, name in enumerate(CLUSTERS) if name in used), default=0)

    items.sort(key=turn)
    for item in items:
        if turn(item):
            item.add_marker(pytest.mark.xdist_group(CLUSTERS[turn(item) - 1]))


# --- trials --------------------------------------------------------------------------------------


@pytest.fixture
def faulty_methods(monkeypatch):
    """Make the methods that go wrong known in this process too."""
    for name, kind in faulty.KNOWN.items():
        monkeypatch.setitem(METHODS, name, kind)


@pytest.fixture
def tiny_spec(faulty_methods):
    """Make a trial of five clients that takes a second: tiny_spec("fedgps", rounds=2)."""
    return lambda method, **changes: trial_spec(**{**TINY, "method": method, **changes})


@pytest.fixture
def execution_for(tmp_path):
    """Make an ExecutionSpec for actors on GPUs that do not exist; each has its own folder."""
    numbers = iter(range(1000))

    def make(**changes):
        return ExecutionSpec(**{"out": tmp_path / f"runs-{next(numbers)}", **changes})

    return make


def _rows(events):
    return [event for event in events if isinstance(event, dict)]


@pytest.fixture
def hashes():
    """Return the hash of the weights of every round."""
    return lambda events: [row.get("weights_sha256") for row in _rows(events)]


@pytest.fixture
def numbers():
    """Return all that has to be equal wherever a trial runs."""
    same = ("round", "weights_sha256", "accuracy", "loss", "train_loss", "bytes_up", "bytes_down")
    return lambda events: [tuple(row.get(key) for key in same) for row in _rows(events)]


@pytest.fixture(scope="session")
def done_before():
    """Remember the undisturbed trials of this session."""
    return {}


@pytest.fixture
def in_process(execution_for, done_before):
    """Run a trial without Ray, once."""

    def run(spec):
        if spec.trial_id not in done_before:
            done_before[spec.trial_id] = list(run_trial(spec, execution_for(actors=0)))
        return done_before[spec.trial_id]

    return run


@pytest.fixture
def fault(tmp_path, tiny_spec):
    """Make a trial with a fault in the work of client 2 in round 2, and what it leaves behind."""

    def make(name, options=None, **changes):
        method = {"name": name, "folder": str(tmp_path), **(options or {})}
        return tiny_spec(method, **ALL, **changes), tmp_path / "client-2"

    return make


@pytest.fixture
def undisturbed(tiny_spec, in_process, numbers):
    """Return the numbers of the trial that has no fault."""
    return lambda **changes: numbers(in_process(tiny_spec("fedgps_cf", **ALL, **changes)))


# --- clusters ------------------------------------------------------------------------------------


@contextmanager
def _surroundings():
    """Let a cluster's processes find the faulty methods, and let its files go in the end."""
    with (
        pytest.MonkeyPatch.context() as patch,
        tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder,
    ):
        patch.setenv("PYTHONPATH", str(HERE), prepend=os.pathsep)
        patch.setenv("RAY_TMPDIR", folder)  # a short path: the names of sockets have a limit
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "1")
        patch.setenv("RAY_worker_niceness", "0")
        yield


@pytest.fixture(scope="session")
def shared_cluster():
    """Start the cluster that most tests share; its GPUs are declared, not real."""
    with _surroundings():
        ray.init(
            "local",
            num_cpus=6,
            num_gpus=2,
            object_store_memory=300_000_000,
            include_dashboard=False,
            _system_config=NO_SPARE_WORKERS,
            **QUIET,
        )
        yield
        ray.shutdown()


@pytest.fixture(scope="module")
def own_cluster():
    """Let a module start clusters of its own: a context manager over the options of ray.init."""

    @contextmanager
    def start(**options):
        ray.init(**{**QUIET, **options})
        try:
            yield
        finally:
            ray.shutdown()

    with _surroundings():
        yield start


@pytest.fixture
def nodes(own_cluster):
    """Start a head without room and some nodes with room for one client actor and a server each."""

    @contextmanager
    def start(number):
        with _nodes(own_cluster, number) as started:
            yield started

    return start


@contextmanager
def _nodes(own_cluster, number):
    soon = {"health_check_initial_delay_ms": 1000, "health_check_period_ms": 1000}
    head = {"num_cpus": 0, "memory": 100 * 2**20, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args={**head, "_system_config": soon})
    try:
        started = [cluster.add_node(**ROOM) for _ in range(number)]
        with own_cluster(address=cluster.address):
            yield Nodes(cluster, started)
    finally:
        cluster.shutdown()


class Nodes(NamedTuple):
    """A cluster's nodes that have room."""

    cluster: Cluster
    nodes: list[Any]

    def lose(self, node_id):
        """Kill all processes of a node."""
        (lost,) = (node for node in self.nodes if node.node_id == node_id)
        self.cluster.remove_node(lost, allow_graceful=False)

    def replace_other(self, node_id):
        """Kill all processes of the other node, and add a new one."""
        (lost,) = (node for node in self.nodes if node.node_id != node_id)
        self.cluster.remove_node(lost, allow_graceful=False)
        self.cluster.add_node(**ROOM)


# --- crews ---------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def ten(shared_cluster):
    """Start an actor for each of ten clients, five on a GPU, half a CPU each: one CPU is left."""
    execution = ExecutionSpec(client_cpus=0.5, client_gpus=0.2)
    with crews.start(execution, clients=10, per_round=5) as started:
        ray.get([client.control.remote("facts") for client in started.clients])
        yield started


@pytest.fixture
def crew(ten):
    """Take some of the ten actors: a trial does not know that there are more."""
    return lambda number: crews.Crew(ten.server_room, ten.clients[:number])


def follow_spec(started, spec, execution):
    """Run a trial on a crew, and leave no server behind."""
    try:
        yield from crews.follow(started, crews.settings_of(spec, execution, policy=SOON))
    finally:
        started.drop_server()


@pytest.fixture
def on_crew():
    """Run a trial on a crew: on_crew(crew, spec, execution)."""
    return follow_spec


@pytest.fixture
def follow(crew, execution_for):
    """Run a trial with a server actor and some client actors; events come as they happen."""

    def run(spec, actors=2, execution=None):
        return follow_spec(crew(actors), spec, execution or execution_for())

    return run


@pytest.fixture
def dispatchers():
    """Collect the dispatchers of the trials whose server was this process."""
    return []


@pytest.fixture
def make_pool(crew, dispatchers):
    """Make a pool as the server actor does, in this process."""

    def make(setup, actors=2, **numbers):
        policy = RetryPolicy(**numbers)
        dispatchers.append(Dispatcher(crew(actors).clients, share(setup), "cpu", policy))
        dispatchers[-1].wait_ready()
        return RayPool(setup, dispatchers[-1])

    return make


@pytest.fixture
def on_actors(make_pool, execution_for):
    """Run a trial whose server is this process: no time goes into starting a server actor."""

    def run(spec, actors=2, execution=None, **numbers):
        execution = execution or execution_for()
        with claimed(spec, execution) as store:
            worker = Worker(prepare(spec, execution.source))
            pool = make_pool(worker.setup, actors, **numbers)
            yield from run_with_pool(store, execution, worker, pool)

    return run


# --- waiting -------------------------------------------------------------------------------------


@pytest.fixture
def until():
    """Wait until something is the case; fail after some seconds."""

    def wait(condition, seconds=30.0):
        deadline = time.monotonic() + patient(seconds)
        while not condition():
            assert time.monotonic() < deadline, f"did not happen within {seconds} s"
            time.sleep(0.05)

    return wait


@pytest.fixture
def is_alive():
    """Say whether a process is there and not only waiting to be buried."""

    def look(pid):
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
        except (FileNotFoundError, ProcessLookupError):
            return False

    return look


# --- sweeps --------------------------------------------------------------------------------------


class Screen:
    """Remembers what a sweep says."""

    def __init__(self):
        self.said, self.events = [], []

    def say(self, text):
        self.said.append(text)

    def event(self, text):
        self.events.append(text)

    live = staticmethod(contextlib.nullcontext)

    @property
    def started(self):
        return sum(event.endswith(") starts") for event in self.events)


@pytest.fixture
def new_screen():
    """Make a screen that remembers what a sweep says."""
    return Screen


def _ends(ledger):
    """Return how each trial ended, and with which weights."""
    infos = {spec.trial_id: read_trial(ledger.place(spec)) for spec in ledger.specs}
    return {key: (i["status"], i["summary"]["weights_sha256"]) for key, i in infos.items()}


@pytest.fixture
def ends():
    """Return how each trial of a ledger ended, and with which weights."""
    return _ends


@pytest.fixture
def grid(tiny_spec):
    """Make the cells of a grid over methods and seeds."""
    return lambda methods, seeds: [
        tiny_spec(method, model="mlp", rounds=3, seed=seed) for seed in seeds for method in methods
    ]


@pytest.fixture
def expected(in_process):
    """Return how trials end in one process."""

    def find(specs):
        last = {spec.trial_id: in_process(spec)[-1] for spec in specs}
        return {key: ("finished", row["weights_sha256"]) for key, row in last.items()}

    return find
