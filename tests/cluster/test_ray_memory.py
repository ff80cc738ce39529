"""Many clients with large memories: they spill to disk, and borrow what they all received."""

import contextlib
from pathlib import Path

import pytest
import ray
import torch

from fedgps_ray.cluster import crew as crews
from fedgps_ray.cluster.dispatch import Dispatcher, share
from fedgps_ray.cluster.parcels import Parcel
from fedgps_ray.cluster.policy import POLICY
from fedgps_ray.cluster.pool import RayPool
from fedgps_ray.data.datasets import NO_SOURCE
from fedgps_ray.rounds.loop import Snapshot, run
from fedgps_ray.rounds.selection import schedule
from fedgps_ray.rounds.setup import prepare
from fedgps_ray.rounds.worker import Worker
from fedgps_ray.spec import ExecutionSpec, trial_spec

pytestmark = [pytest.mark.ray, pytest.mark.slow]

STORE_BYTES = 2_000_000_000
MODEL_BYTES = 44_695_848  # ResNet-18 for ten classes: 11,173,962 weights of four bytes
BIG = {
    "dataset": {"name": "synthetic", "image_size": 8, "train_size": 1000, "test_size": 20},
    "partition": "iid",
    "model": "resnet18",
    "clients": 500,
    "sampling_rate": 0.02,
    "rounds": 3,
}
TWO = ExecutionSpec(actors=2, client_cpus=1)


@pytest.fixture(scope="module")
def two(own_cluster):
    """Start two actors where the object store is too small for what three rounds leave behind."""
    store = {"num_cpus": 2, "object_store_memory": STORE_BYTES, "include_dashboard": False}
    with own_cluster(address="local", **store), crews.start(TWO, 500, per_round=10) as started:
        yield started


def meets_again(spec):
    """Say whether a client of the first round takes part in the last, and not in between."""
    first, second, third = (set(picked) for picked in schedule(spec, [2] * spec.clients))
    return bool((first & third) - second)


@pytest.fixture
def big_spec(faulty_methods):
    """Make a trial in which a memory is needed again after the others have pushed it out."""

    def make(method):
        options = {**BIG, "method": {"name": method, "goal": False}}
        specs = (trial_spec(**options, seed=seed) for seed in range(100))
        return next(spec for spec in specs if meets_again(spec))

    return make


def spilled_bytes():
    session, sizes = Path(ray._private.worker._global_node.get_session_dir_path()), []
    for path in session.glob("ray_spilled_objects*/*"):
        with contextlib.suppress(FileNotFoundError):  # Ray has just deleted it
            sizes.append(path.stat().st_size)
    return sum(sizes)


@pytest.mark.parametrize("method", ["idle_fedgps", "idle_fedgps_cf"])
def test_large_memories_of_many_clients_spill_instead_of_failing(
    method, two, on_crew, big_spec, execution_for, in_process, numbers
):
    spec, spilled, rows = big_spec(method), [], []
    for event in on_crew(two, spec, execution_for(actors=2)):
        rows += [event] if isinstance(event, dict) else []
        spilled.append(spilled_bytes())
    assert numbers(rows) == numbers(in_process(spec))
    assert rows[-1]["metrics"]["met_again"] > 0
    assert max(spilled) > 10 * MODEL_BYTES


def test_memories_borrow_the_model_they_received(two, big_spec):
    worker = Worker(prepare(big_spec("idle_fedgps_cf"), NO_SOURCE))
    dispatcher = Dispatcher(two.clients, share(worker.setup), "cpu", POLICY)
    dispatcher.wait_ready()
    pool = RayPool(worker.setup, dispatcher)
    state = worker.spec.method.init(worker.initial(), worker.cohort())
    rounds = run(worker.spec, worker.cohort(), pool, Snapshot(0, state, {}))
    first, second = (next(rounds).snapshot.kept for _ in range(2))
    (lenders,) = {one.memory.lenders for one in first.values()}
    assert len(lenders) == 1, "all ten borrow from the same message"
    assert [own_bytes(one.memory) for one in first.values()] == [MODEL_BYTES] * 10  # the own update
    assert [own_bytes(one.velocity) for one in first.values()] == [MODEL_BYTES] * 10
    sitting_out = set(first) - set(schedule(worker.spec, [2] * BIG["clients"])[1])
    faded = [second[client].memory for client in sitting_out]
    assert len(faded) > 0
    assert [own_bytes(held) for held in faded] == [0] * len(faded)
    assert {held.lenders for held in faded} == {lenders}
    assert torch.equal(pool.fetch(faded[0]).received, state.params.weights)


def own_bytes(held):
    """Return the size of what a kept value does not borrow."""
    parcel = held.parcel if isinstance(held.parcel, Parcel) else ray.get(held.parcel)
    return sum(array.nbytes for array in parcel.arrays)
