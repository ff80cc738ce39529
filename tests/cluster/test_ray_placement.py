"""Who runs where: shares of GPUs, one actor a client, data that is mapped and not copied."""

import sys
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import ray
import torch
from ray.util.placement_group import placement_group, remove_placement_group

from fedgps_ray.cluster import crew as crews
from fedgps_ray.cluster.client import device_for
from fedgps_ray.cluster.parcels import open_parcel, wrap
from fedgps_ray.cluster.session import capacity, num_actors
from fedgps_ray.data.datasets import NO_SOURCE
from fedgps_ray.errors import UserError
from fedgps_ray.methods.fedgps import Message
from fedgps_ray.results.store import TrialStore
from fedgps_ray.rounds.setup import prepare
from fedgps_ray.rounds.worker import Asked, moved_to
from fedgps_ray.spec import ExecutionSpec
from fedgps_ray.tensors import Params
from tests.processes import patient

pytestmark = pytest.mark.ray

no_gpu = pytest.mark.skipif(
    torch.cuda.is_available(), reason="the message is for machines where PyTorch finds no GPU"
)
SHARE = ExecutionSpec(client_cpus=0.5, client_gpus=0.2)


def share(**changes):
    return SHARE.model_copy(update=changes)


def facts_of(clients):
    return ray.get([client.control.remote("facts") for client in clients])


# --- shares of GPUs ------------------------------------------------------------------------------


def test_ten_fifths_fill_two_gpus(ten):
    facts = facts_of(ten.clients)
    assert len({fact["pid"] for fact in facts}) == 10
    assert Counter(str(gpu) for fact in facts for gpu in fact["gpus"]) == {"0": 5, "1": 5}
    assert all(fact["visible_gpus"] == str(fact["gpus"][0]) for fact in facts)


def test_another_fifth_has_to_wait(ten):
    group = placement_group([{"GPU": 0.2}])
    try:
        assert not group.wait(timeout_seconds=patient(2))
    finally:
        remove_placement_group(group)


def test_actor_without_a_share_sees_no_gpu(shared_cluster, execution_for):
    execution = execution_for(actors=1, client_cpus=0.5)
    with crews.start(execution, clients=5, per_round=3) as started:
        (facts,) = facts_of(started.clients)
    assert (facts["gpus"], facts["visible_gpus"]) == ([], "")


@pytest.mark.parametrize(
    ("cpus", "gpus", "fit"),
    [
        (0.5, 0.2, 10),
        (1, 0.2, 6),  # six CPUs
        (0.1, 0.4, 4),  # two on each GPU: the fifths that are left do not add up
        (0.1, 0.6, 2),
        (0.1, 1, 2),
        (0.1, 2, 1),
        (0.1, 3, 0),
        (0.3, 0, 20),
        (7, 0, 0),
    ],
)
def test_how_many_actors_fit(cpus, gpus, fit, shared_cluster):
    assert capacity(share(client_cpus=cpus, client_gpus=gpus)) == fit


def test_one_actor_too_many_is_told_with_what_fits(shared_cluster):
    with pytest.raises(UserError) as problem:
        num_actors(share(actors=11), clients=20, per_round=10)
    assert "11 actors of 0.5 CPU and 0.2 GPU do not fit" in str(problem.value)
    assert "the cluster holds 10 (6 CPU, 2 GPU); use --actors 10" in str(problem.value)


@pytest.mark.parametrize(
    ("actors", "clients", "per_round", "started"),
    [
        ("auto", 10, 2, 10),  # one a client while they fit
        ("auto", 11, 4, 4),  # else no more than work at the same time
        ("auto", 100, 50, 10),  # nor than fit
        (3, 10, 10, 3),
        (10, 4, 4, 4),  # no more than clients
    ],
)
def test_how_many_actors_are_started(actors, clients, per_round, started, shared_cluster):
    assert num_actors(share(actors=actors), clients, per_round) == started


# --- devices -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "gpu_ids", "device"),
    [("cpu", [], "cpu"), ("cpu", [0], "cpu"), ("cuda", [0], "cuda"), ("cuda", ["1"], "cuda")],
)
def test_device_of_an_actor(wanted, gpu_ids, device, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert device_for(wanted, gpu_ids) == device


def test_an_actor_without_a_share_of_a_gpu_has_no_cuda(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with pytest.raises(UserError, match="given no share of a GPU; add --client-gpus"):
        device_for("cuda", [])


def test_an_actor_knows_its_share(crew):
    told = [client.call.remote("facts") for client in crew(2).clients]
    assert [fact["gpu_share"] for fact in ray.get(told)] == [0.2, 0.2]


@no_gpu
def test_a_share_of_gpus_that_are_not_there_is_told_at_once(shared_cluster):
    with pytest.raises(UserError, match="no node has room for an actor with 3 GPU"):
        num_actors(share(client_gpus=3.0), 5, 5)


@no_gpu
def test_share_of_a_gpu_that_pytorch_cannot_use_is_told(tiny_spec, follow, execution_for):
    trial = follow(tiny_spec("fedavg", device="cuda"), actors=1, execution=execution_for())
    with pytest.raises(UserError, match="given a share of a GPU, but PyTorch finds none") as error:
        list(trial)
    assert type(error.value) is UserError, "without Ray's traceback around it"


def test_what_an_actor_opens_can_go_to_any_device():
    message = Message(Params(torch.ones(3), torch.zeros(0)), torch.ones(3), None, 4.0)
    there = moved_to(open_parcel(wrap(message)).value, torch.device("meta"))
    assert type(there) is Message
    assert type(there.params) is Params
    assert {t.device.type for t in (*there.params, there.update)} == {"meta"}
    assert (there.prototypes, there.total) == (None, 4.0)


# --- one client an actor -------------------------------------------------------------------------


def test_actor_is_its_client(tiny_spec, on_actors, execution_for, dispatchers):
    spec, execution = tiny_spec("fedavg"), execution_for()
    list(on_actors(spec, actors=5, execution=execution))
    facts = facts_of(seat.handle for seat in dispatchers[-1].seats)
    assert [fact["name"] for fact in facts] == [f"client-{i}" for i in range(5)]
    table = pq.read_table(TrialStore(execution.out, spec).folder / "clients.parquet")
    rows = table.select(["client", "worker"]).to_pylist()
    assert len(rows) == spec.rounds * spec.per_round
    assert [row["worker"] for row in rows] == [f"client-{row['client']}" for row in rows]


# --- what an actor holds -------------------------------------------------------------------------


@pytest.fixture
def ask(tiny_spec, make_pool):
    """Put a question to every client of a trial whose data set is 600 KB."""
    data = {"name": "synthetic", "image_size": 10, "train_size": 2000, "test_size": 50}
    pool = make_pool(prepare(tiny_spec("fedavg", dataset=data), NO_SOURCE))
    return lambda question: pool.ask(Asked(0, question, None), {})


def test_actors_do_not_import_what_they_do_not_need(ask):
    def imported(local, memory, sent):
        return [name for name in ("torchvision", "matplotlib") if name in sys.modules]

    assert ask(imported) == [[]] * 5


def test_data_set_is_mapped_from_the_object_store(ask):
    def where(local, memory, sent):
        """Return what is mapped at the addresses of the training images and of the own index."""
        here = []
        for tensor in (local.data.examples.pixels, local.data.examples.labels, local.data.index):
            for line in Path("/proc/self/maps").read_text().splitlines():
                span, *_, name = line.split(maxsplit=5)
                first, last = (int(end, 16) for end in span.split("-"))
                if first <= tensor.data_ptr() < last:
                    here.append("plasma" in name)
        return here

    assert ask(where) == [[True, True, False]] * 5  # each actor copies only the lists of indices
