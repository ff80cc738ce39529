"""Every method, model and question on a device that is not the CPU, and what goes over to it."""

import itertools
import os

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file

from fedgps_ray.cluster.client import _Call
from fedgps_ray.cluster.parcels import WORTH_LENDING, open_parcel, wrap
from fedgps_ray.data.datasets import NO_SOURCE
from fedgps_ray.methods import METHODS
from fedgps_ray.methods.averages import averaged
from fedgps_ray.methods.base import Turn
from fedgps_ray.methods.ccvr import Query, class_moments
from fedgps_ray.methods.fedgps import Prototypes, feature_distance
from fedgps_ray.models import MODELS
from fedgps_ray.rounds.collect import collected, take_out
from fedgps_ray.rounds.pool import InProcess
from fedgps_ray.rounds.setup import prepare
from fedgps_ray.rounds.trial import claimed, run_with_pool
from fedgps_ray.rounds.worker import Asked, Job, Worker
from fedgps_ray.spec import ExecutionSpec, trial_spec
from tests.gpu.pretend import DEVICE, OnDevice, counted, pretend

ROUNDS = 3
FASTER = {"ccvr": {"virtual_features": 20}}
READS_PER_CLIENT = 10
# its learning rate is a tensor on the device, which is multiplied and rounded in another order
ROUNDED_OTHERWISE = ("delta_sgd",)
VARIANTS = {
    "nucfl of head updates": {"name": "nucfl", "compare": "head_updates"},
    "fedgps with divergence": {"name": "fedgps", "divergence_every": 1},
    "fedgps with a final pass": {"name": "fedgps", "proto_source": "final_pass"},
    "delta_sgd with momentum": {"name": "delta_sgd", "amplify_first": True},
    "ccvr with variances": {"name": "ccvr", "covariance": "diagonal", "virtual_features": 20},
}
ALL = {name: {"name": name, **FASTER.get(name, {})} for name in METHODS} | VARIANTS


def tiny_spec(method, **values):
    data = {"num_classes": 3, "image_size": 8, "channels": 1, "train_size": 60, "test_size": 15}
    defaults = {
        "dataset": {"name": "synthetic", **data},
        "partition": {"alpha": 0.5, "min_size": 6},
        "model": "convnet",
        "augment": "flip_crop",
        "clients": 4,
        "sampling_rate": 0.5,
        "rounds": ROUNDS,
        "batch_size": 8,
        "surrogate": {"per_class": 4, "batch_size": 6},
    }
    return trial_spec(method=method, **{**defaults, **values})


def worker_of(spec, device=DEVICE):
    return Worker(prepare(spec, NO_SOURCE), str(device))


@pytest.fixture(scope="module", autouse=True)
def no_waiting_for_the_disk():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)
        yield


def trial(spec, folder, device, rounds=None):
    """Run a trial in this process, or its first rounds; each is followed by a checkpoint."""
    execution = ExecutionSpec(out=folder, actors=0, checkpoint_seconds=0)
    with claimed(spec, execution) as store:
        worker = worker_of(spec, device)
        events = run_with_pool(store, execution, worker, InProcess(worker))
        started, *_ = itertools.islice(events, None if rounds is None else rounds + 1)
        events.close()
    return started


def results(folder):
    (found,) = folder.glob("trials/*")
    rows = pd.read_parquet(found / "rounds.parquet")
    model = load_file(found / "model.safetensors")
    return rows, model


# --- numbers ------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ALL)
def test_stopped_and_resumed_on_the_device_a_trial_ends_as_on_the_cpu(method, tmp_path):
    spec = tiny_spec(ALL[method])
    trial(spec, tmp_path / "cpu", "cpu")
    with pretend() as traffic:
        trial(spec, tmp_path / "device", DEVICE, rounds=2)
        assert trial(spec, tmp_path / "device", DEVICE).rounds_done == 2
    assert traffic.kernels > 500
    (expected, model), (found, model_there) = (
        results(tmp_path / where) for where in ("cpu", "device")
    )
    if spec.method.name in ROUNDED_OTHERWISE:
        assert model.keys() == model_there.keys()
        for name, tensor in model.items():
            torch.testing.assert_close(model_there[name], tensor, rtol=1e-3, atol=1e-5)
        return
    for column in ("weights_sha256", "accuracy", "loss", "train_loss", "divergence"):
        pd.testing.assert_series_equal(found[column], expected[column])


# the pretended device cannot change the strides of a parameter that exists; CUDA can
@pytest.mark.filterwarnings("ignore:grad and param do not obey the gradient layout contract")
@pytest.mark.parametrize("method", ["fedgps_cf", "fedmr"])
def test_weights_that_lie_channels_last_are_resumed_too(method, tmp_path):
    """The layout follows the spec's device, so this is how a trial lies in a GPU's memory."""
    spec = tiny_spec(method, device="cuda")
    trial(spec, tmp_path / "cpu", "cpu")
    with pretend():
        trial(spec, tmp_path / "device", DEVICE, rounds=2)
        trial(spec, tmp_path / "device", DEVICE)
    (expected, _), (found, _) = (results(tmp_path / where) for where in ("cpu", "device"))
    assert found["weights_sha256"].tolist() == expected["weights_sha256"].tolist()


@pytest.mark.parametrize("name", MODELS)
def test_every_model_trains_and_is_tested_on_the_device(name, tmp_path):
    size = {"num_classes": 3, "image_size": 32, "channels": 3, "train_size": 8, "test_size": 4}
    spec = tiny_spec(
        "fedavg",
        model=name,
        rounds=1,
        clients=2,
        dataset={"name": "synthetic", **size},
        partition="iid",
    )
    with pretend():
        worker = worker_of(spec)
        message = first_message(worker)
        reply = worker.work(Job(0, 0, message))
        score = worker.evaluate(message.params)
    assert reply.finite
    assert score.loss > 0
    assert isinstance(reply.upload.delta, OnDevice)


def first_message(worker):
    method = worker.spec.method
    state = method.init(worker.initial(), worker.cohort())
    return method.send(state, turn_of(worker, 0))[0]


def turn_of(worker, index):
    return Turn(index, worker.clients, np.random.default_rng(index))


# --- traffic ------------------------------------------------------------------------------------


def played(method, batch_size=8, device=DEVICE):
    """Return the traffic of each client's work in the second round of two, and their steps."""
    spec = tiny_spec(ALL[method], batch_size=batch_size, sampling_rate=1.0, partition="iid")
    worker = worker_of(spec, device)
    shares = averaged(spec.method, worker.clients)
    kept, seen, steps = {}, [], []
    state = spec.method.init(worker.initial(), worker.cohort())
    for t in range(2):
        jobs, replies, sums = [], [], {}
        for place, message in enumerate(spec.method.send(state, turn_of(worker, t))):
            own = {field: each[place] for field, each in shares.items()}
            jobs.append(Job(place, t, message, *kept.get(place, (None, None)), own))
            with counted() as traffic:
                replies.append(take_out(worker.work(jobs[-1]), own, sums))
            seen.append(traffic)
            steps.append(replies[-1].steps)
        kept = {r.client.id: (r.memory, r.velocity) for r in replies}
        state = spec.method.merge(state, collected(jobs, replies, sums))
    return seen[len(worker.clients) :], steps[len(worker.clients) :]


@pytest.mark.parametrize("method", [name for name in ALL if name != "centralized"])
def test_the_host_does_not_wait_in_a_training_step(method):
    """Three times the steps: not one read and not one copy more."""
    with pretend():
        few, steps = played(method, batch_size=8)
        many, more_steps = played(method, batch_size=3)
    assert all(more >= 2 * n for n, more in zip(steps, more_steps, strict=True))
    for one, other in zip(few, many, strict=True):
        assert one.reads == other.reads
        assert one.copies == other.copies
        assert one.num_reads < READS_PER_CLIENT
        assert one.num_copies <= 2  # order and augmentation of an epoch, and its noise


def test_a_test_is_read_at_its_end_not_batch_by_batch():
    spec = tiny_spec("fedavg", dataset={**tiny_spec("fedavg").dataset.__dict__, "test_size": 900})
    with pretend():
        worker = worker_of(spec)
        params = worker.initial()
        with counted() as traffic:
            worker.evaluate(params)
    assert worker.num_test_batches == 4
    assert traffic.reads == {"tolist": 2}  # all losses, all counts
    assert traffic.num_copies == 0


@pytest.mark.parametrize("question", ["moments", "distance"])
def test_a_question_costs_few_reads(question):
    method = "ccvr" if question == "moments" else "fedgps"
    with pretend():
        worker = worker_of(tiny_spec(method))
        params = worker.initial()
        dim = worker.network.layout.head_weight.shape[1]
        known = Prototypes(torch.zeros(3, dim, device=DEVICE), torch.ones(3, device=DEVICE) > 0)
        asked = {
            "moments": Asked(0, class_moments, Query(params, None, "full")),
            "distance": Asked(0, feature_distance, (known, params)),
        }[question]
        with counted() as traffic:
            assert worker.answer(asked, 0, None) is not None
    assert traffic.num_reads <= 2


# --- between processes --------------------------------------------------------------------------


def call(method, jobs=2):
    """Return the replies of one call of a client actor, its traffic, and the size of the model."""
    spec = tiny_spec(ALL[method], model="cnn")
    with pretend():
        worker = worker_of(spec)
        arguments = [wrap(first_message(worker))]
        with counted() as traffic:
            running = _Call(worker, arguments)
            replies = [running.run(Job(k, 0, 0)) for k in range(jobs)]
        model_bytes = worker.network.weights.nbytes
    assert model_bytes > WORTH_LENDING
    return replies, traffic, model_bytes, arguments


@pytest.mark.parametrize("method", ["fedavg", "fedgps", "fedgps_cf", "fedlesam"])
def test_a_message_goes_over_once_a_call(method):
    _, one, model_bytes, _ = call(method, jobs=1)
    _, three, _, _ = call(method, jobs=3)
    assert three.bytes_in - one.bytes_in < model_bytes / 10


def test_an_update_that_is_kept_too_leaves_once():
    replies, traffic, model_bytes, _ = call("fedgps", jobs=1)
    (reply,) = replies
    assert reply.memory.arrays
    assert reply.memory.arrays[0] is reply.upload.arrays[0]
    assert 2 * model_bytes <= traffic.bytes_out < 2.2 * model_bytes  # the update, the momentum


def test_what_a_client_keeps_of_the_message_is_lent_not_copied():
    replies, traffic, model_bytes, arguments = call("fedgps_cf", jobs=1)
    (reply,) = replies
    assert reply.memory.loans
    assert 2 * model_bytes <= traffic.bytes_out < 2.2 * model_bytes
    lenders = open_parcel(arguments[0]).tensors
    memory = open_parcel(reply.memory, lambda which: lenders).value
    assert torch.equal(memory.received, open_parcel(arguments[0]).value.params.weights)


# --- the device itself --------------------------------------------------------------------------


def test_mixed_devices_are_an_error():
    with pretend(), pytest.raises(RuntimeError, match="on the CPU and on the device"):
        torch.ones(2).to(DEVICE) + torch.ones(2)


def test_traffic_is_counted():
    with pretend() as traffic:
        there = torch.arange(4.0).to(DEVICE)
        assert float((there * 2).sum()) == 12
        assert (there + there)[there > 1].cpu().tolist() == [4, 6]
    assert traffic.copies == {"aten._to_copy.default": 1}
    assert traffic.reads == {
        "aten._local_scalar_dense.default": 1,
        "aten.index.Tensor": 1,
        "aten._to_copy.default": 1,
    }
