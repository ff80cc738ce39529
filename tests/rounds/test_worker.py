"""One client's work: its random streams, its momentum, and that nothing it is given changes."""

import copy
import math

import numpy as np
import pytest
import torch

from fedgps_ray.data.datasets import NO_SOURCE, Source, npz_spec
from fedgps_ray.methods.base import Turn
from fedgps_ray.methods.fedgps import Memory
from fedgps_ray.rounds.setup import clients_of, prepare
from fedgps_ray.rounds.worker import Asked, Job, Worker, moved_to
from fedgps_ray.spec import trial_spec
from fedgps_ray.tensors import Params, leaves, views

DATA = {
    "name": "synthetic",
    "num_classes": 3,
    "image_size": 8,
    "channels": 1,
    "train_size": 60,
    "test_size": 30,
}


def spec_of(**values):
    defaults = {
        "dataset": DATA,
        "partition": "iid",
        "model": "mlp",
        "method": "fedavg",
        "clients": 3,
        "batch_size": 8,
        "augment": "crop",
        "surrogate": {"per_class": 4, "batch_size": 6},
    }
    return trial_spec(**{**defaults, **values})


def worker_of(**values):
    return Worker(prepare(spec_of(**values), NO_SOURCE))


def first_job(worker, client=0, round_index=0, velocity=None):
    method = worker.spec.method
    state = method.init(worker.initial(), worker.cohort())
    turn = Turn(round_index, (worker.clients[client],), np.random.default_rng(0))
    (message,) = method.send(state, turn)
    return Job(client, round_index, message, None, velocity)


def tensors(value):
    return [leaf for leaf in leaves(value) if isinstance(leaf, torch.Tensor)]


def bit_equal(left, right):
    left, right = tensors(left), tensors(right)
    return len(left) == len(right) and all(map(torch.equal, left, right))


# --- streams ------------------------------------------------------------------------------------


def draws(local):
    """Return the first number of each of the client's random streams."""
    rngs = (local.data.order_rng, local.data.augment_rng, local.noise_set().rng)
    return tuple(rng.random() for rng in rngs)


def test_streams_differ_by_client_round_purpose_and_use():
    worker = worker_of(method="fedgps")
    numbers = [
        draw
        for client in range(3)
        for round_index in range(3)
        for purpose in ("train", "ask")
        for draw in draws(worker.local(client, round_index, None, purpose))
    ]
    assert len(set(numbers)) == 3 * 3 * 2 * 3


def test_streams_differ_by_seed_and_not_by_worker():
    one, other = worker_of(method="fedgps"), worker_of(method="fedgps", seed=1)
    again = worker_of(method="fedgps")
    assert draws(one.local(1, 2, None)) == draws(again.local(1, 2, None))
    assert not set(draws(one.local(1, 2, None))) & set(draws(other.local(1, 2, None)))


def test_a_client_sees_its_own_examples_only():
    worker = worker_of(partition={"alpha": 0.1, "min_size": 5})
    for client, counts in enumerate(worker.setup.counts):
        labels = torch.cat([batch.y for batch in worker.local(client, 0, None).batches()])
        assert torch.bincount(labels, minlength=3).tolist() == counts.tolist()
    assert worker.setup.counts.sum() == 60
    assert [c.num_examples for c in clients_of(worker.setup)] == worker.setup.counts.sum(1).tolist()


# --- a job --------------------------------------------------------------------------------------


def test_a_reply_tells_how_far_the_client_moved_the_weights():
    worker = worker_of()
    reply = worker.work(first_job(worker, client=1))
    assert reply.update_norm == pytest.approx(
        reply.upload.delta.double().pow(2).sum().sqrt().item()
    )


@pytest.mark.parametrize("method", ["fedavg", "fedgps"])
def test_the_same_job_twice_gives_the_same_bits(method):
    worker = worker_of(method=method, model="convnet")
    job = first_job(worker, client=1)
    once = worker.work(job)
    worker.work(first_job(worker, client=2, round_index=3))
    worker.evaluate(worker.initial())
    twice = worker.work(job)
    elsewhere = Worker(worker.setup, name="other").work(job)
    for other in (twice, elsewhere):
        assert bit_equal(once, other)
        assert once.metrics == other.metrics
        assert (once.steps, once.client) == (other.steps, other.client)
    assert (once.worker, elsewhere.worker) == ("in-process", "other")


@pytest.mark.parametrize("method", ["fedavg", "fedgps"])
def test_a_job_is_unchanged_by_the_work(method):
    worker = worker_of(method=method, model="convnet")
    job = first_job(worker, velocity=torch.ones_like(worker.network.weights))
    if method == "fedgps":
        update = torch.linspace(-1, 1, worker.network.weights.numel())
        message = job.message._replace(update=update)
        job = job._replace(message=message, memory=Memory(-1, 0.5, update / 3))
    before = copy.deepcopy(job)
    done = worker.work(job)
    assert bit_equal(before, job)
    given = {t.data_ptr() for t in tensors(job) if t.numel()}
    live = {worker.network.weights.data_ptr(), worker.network.buffers.data_ptr()}
    kept = {t.data_ptr() for t in tensors((done.upload, done.memory, done.velocity)) if t.numel()}
    assert not kept & (given | live)  # nothing returned will change with the next job


def test_steps_and_passes_are_counted():
    # 20 examples a client in batches of 8: three steps an epoch; FedASAM would take two passes
    worker = worker_of(local_epochs=2)
    done = worker.work(first_job(worker))
    assert (done.steps, done.gradient_evaluations) == (6, 6)
    assert done.finite
    assert done.seconds > 0


def test_an_upload_that_is_not_finite_is_marked():
    worker = worker_of()
    job = first_job(worker)
    broken = job.message.params._replace(weights=job.message.params.weights * math.inf)
    assert not worker.work(job._replace(message=job.message._replace(params=broken))).finite


def test_momentum_persists():
    worker = worker_of()
    first = worker.work(first_job(worker))
    assert first.velocity is not None
    kept = worker.work(first_job(worker, velocity=first.velocity))
    assert not bit_equal(first.upload, kept.upload)
    # velocity 0 is the same as none: the first step's velocity is the gradient itself
    zero = worker.work(first_job(worker, velocity=torch.zeros_like(first.velocity)))
    assert bit_equal(first.upload, zero.upload)


def test_momentum_is_reset():
    worker = worker_of(optimizer={"client_momentum": "reset"})
    first = worker.work(first_job(worker))
    assert first.velocity is None
    given = worker.work(first_job(worker, velocity=torch.ones_like(worker.network.weights)))
    assert bit_equal(first.upload, given.upload)


def test_the_learning_rate_decays_by_round():
    worker = worker_of(optimizer={"lr": 0.5, "lr_decay": 0.1})
    rates = [worker.local(0, t, None).lr for t in (0, 1, 3)]
    assert rates == pytest.approx([0.5, 0.05, 0.0005])


# --- model and test set -------------------------------------------------------------------------


def test_the_initial_model_depends_on_the_seed_that_the_spec_names():
    def initial(**values):
        return worker_of(**values).initial().weights

    assert torch.equal(initial(seed=1), initial(seed=1, scenario=2))
    assert not torch.equal(initial(seed=1), initial(seed=2))
    by_partition = {"init_seed": "partition"}
    assert torch.equal(initial(seed=1, **by_partition), initial(seed=2, **by_partition))
    assert not torch.equal(initial(**by_partition), initial(scenario=2, **by_partition))


def test_the_initial_model_is_the_same_whatever_was_done_before():
    worker = worker_of()
    first = worker.initial()
    worker.work(first_job(worker))
    assert bit_equal(first, worker.initial())


def constant_model(worker, biases):
    """Return weights that give these logits for every image."""
    params = worker.initial()
    weights = torch.zeros_like(params.weights)
    named = views(weights, worker.network.layout.weights)
    named["head.bias"].copy_(torch.tensor(biases))
    return Params(weights, params.buffers)


@pytest.mark.parametrize(
    ("eval_logits", "accuracy", "loss"),
    [
        # six outputs; 10 test images of each of three classes; the fourth output is the highest
        ("all", 0.0, math.log(math.e**2 + math.e + 4) - 1 / 3),
        ("real", 1 / 3, math.log(math.e + 2) - 1 / 3),
    ],
)
def test_surrogate_outputs_win_unless_only_the_real_ones_may(eval_logits, accuracy, loss):
    worker = worker_of(method="fedgps", eval_logits=eval_logits)
    score = worker.evaluate(constant_model(worker, [1.0, 0.0, 0.0, 2.0, 0.0, 0.0]))
    assert score.accuracy == pytest.approx(accuracy)
    assert score.loss == pytest.approx(loss, rel=1e-6)


def test_a_test_leaves_the_statistics_alone():
    worker = worker_of(model="convnet")
    params = worker.initial()
    before = copy.deepcopy(params)
    assert worker.evaluate(params) == worker.evaluate(params)
    assert bit_equal(before, params)


def test_precision_is_that_of_the_spec():
    worker = worker_of(precision="float64", model="convnet")
    assert {t.dtype for t in tensors(worker.initial())} == {torch.float64}
    done = worker.work(first_job(worker))
    assert {t.dtype for t in tensors(done)} == {torch.float64}


# --- questions, surrogate sets, devices ---------------------------------------------------------


def test_a_question_gets_client_memory_and_what_is_sent():
    worker = worker_of()

    def question(local, memory, sent):
        return local.client.id, local.round, memory, sent, local.data.order_rng.random()

    *facts, draw = worker.answer(Asked(4, question, "sent"), 2, "memory")
    assert facts == [2, 4, "memory", "sent"]
    assert draw == worker.local(2, 4, None, "ask").data.order_rng.random()


def test_only_methods_that_want_it_get_a_surrogate_set():
    assert prepare(spec_of(), NO_SOURCE).surrogate is None
    pixels, labels = prepare(spec_of(method="fedgps"), NO_SOURCE).surrogate
    assert pixels.shape == (12, 8, 8, 1)
    assert labels.tolist() == [0] * 4 + [1] * 4 + [2] * 4
    with pytest.raises(RuntimeError, match="without a surrogate set"):
        worker_of().local(0, 0, None).noise()


def test_a_surrogate_set_from_a_file(tmp_path):
    path = tmp_path / "noise.npz"
    np.savez(path, x=np.full((5, 8, 8, 1), 7, np.uint8), y=np.array([0, 1, 2, 0, 1]))
    named = npz_spec(path)
    surrogate = {"kind": "file", "file": named.file, "sha256": named.sha256}
    spec = spec_of(method="fedgps", surrogate=surrogate)
    setup = prepare(spec, Source(files={named.sha256: str(path)}))
    assert setup.surrogate[0].shape == (5, 8, 8, 1)
    assert setup.surrogate[1].tolist() == [0, 1, 2, 0, 1]


def test_moving_keeps_the_structure():
    value = (Memory(3, 0.5, torch.ones(2)), [torch.zeros(1), "text", None], (1, {"a": 2.0}))
    there = moved_to(value, torch.device("meta"))
    assert isinstance(there[0], Memory)
    assert (there[0].round, there[0].share, there[0].model) == (3, 0.5, None)
    assert there[0].delta.device.type == "meta"
    assert there[0].delta.shape == (2,)
    assert isinstance(there[1], list)
    assert there[1][0].device.type == "meta"
    assert there[1][1:] == ["text", None]
    assert there[2] == (1, {"a": 2.0})
    assert value[0].delta.device.type == "cpu"


def test_tensors_in_a_dict_are_moved_too():
    there = moved_to({"a": torch.ones(2), "b": [torch.zeros(1)]}, torch.device("meta"))
    assert there["a"].device.type == "meta"
    assert there["b"][0].device.type == "meta"
