"""Actors without Ray: what a client actor returns, and who has to import PyTorch."""

import subprocess
import sys

import pytest
import torch
from ray.exceptions import ObjectLostError

from fedgps_ray import seeds
from fedgps_ray.cluster.client import ClientActor
from fedgps_ray.cluster.parcels import EvaluationJob, Parcel, Slot, open_parcel, wrap
from fedgps_ray.data.datasets import NO_SOURCE
from fedgps_ray.errors import ClientFailed
from fedgps_ray.methods.base import Turn
from fedgps_ray.rounds.setup import prepare
from fedgps_ray.rounds.worker import Job, Worker


@pytest.fixture
def worker(tiny_spec):
    """Make a worker for a method that keeps a memory and borrows the model it received."""
    return Worker(prepare(tiny_spec("fedgps_cf"), NO_SOURCE), name="worker-0")


@pytest.fixture
def message(worker):
    """Return a message as it comes out of a parcel."""
    turn = Turn(0, worker.clients[:1], seeds.stream(0, "server", 0))
    state = worker.spec.method.init(worker.initial(), worker.cohort())
    return open_parcel(wrap(worker.spec.method.send(state, turn)[0])).value


@pytest.fixture
def actor(worker):
    """Make a client actor that is set up."""
    made = ClientActor()
    made.worker = worker
    return made


def test_jobs_give_what_the_worker_gives(actor, worker, message):
    first = worker.work(Job(0, 0, message))
    second = worker.work(Job(0, 1, message, first.memory, first.velocity))
    (reply,) = actor.do([Job(0, 0, 0)], False, wrap(message))
    memory, velocity = Slot(reply.memory, (0,)), Slot(1, ())
    (again,) = actor.do([Job(0, 1, 0, memory, velocity)], False, wrap(message), reply.velocity)
    for plain, sent in ((first, reply), (second, again)):
        assert torch.equal(open_parcel(sent.upload).value.delta, plain.upload.delta)
        assert torch.equal(open_parcel(sent.velocity).value, plain.velocity)
        assert (sent.client, sent.loss, sent.steps) == (plain.client, plain.loss, plain.steps)
        assert sent.worker == "worker-0"


def test_what_is_kept_can_come_apart_and_leaves_only_its_loans(actor, message):
    (whole,) = actor.do([Job(0, 0, 0)], False, wrap(message))
    (reply,), memory, velocity = actor.do([Job(0, 0, 0)], True, wrap(message))
    assert whole.memory.loans, "the model that was received is borrowed"
    assert reply.memory == Parcel(None, [], whole.memory.loans)
    assert reply.velocity == Parcel(None, [], [])
    assert memory.skeleton == whole.memory.skeleton
    assert torch.equal(open_parcel(velocity).value, open_parcel(whole.velocity).value)


def test_pieces_of_a_test_add_up(actor, worker):
    params = worker.initial()
    tallies = actor.do([EvaluationJob((0,), 0), EvaluationJob((1, 2), 0)], False, wrap(params))
    assert [tally for piece in tallies for tally in piece] == worker.tallies(params, [0, 1, 2])


def test_exception_names_client_and_round(actor):
    with pytest.raises(ClientFailed, match="client 3 failed in round 5: "):
        actor.do([Job(3, 4, 0)], False, wrap("no message"))


@pytest.mark.parametrize(
    ("raised", "told"),
    [
        (TimeoutError("no answer"), ClientFailed),  # of a method that asks somebody else
        (ConnectionResetError("gone"), ClientFailed),
        (ObjectLostError("1", "owner", "stack"), ObjectLostError),
    ],
)
def test_only_what_ray_loses_is_no_fault_of_the_method(raised, told, actor, message, monkeypatch):
    def work(job):
        raise raised

    monkeypatch.setattr(actor.worker, "work", work)
    with pytest.raises(told):
        actor.do([Job(0, 0, 0)], False, wrap(message))


@pytest.mark.parametrize("owner", ["fedgps_ray.cluster.crew", "fedgps_ray.sweep.trainable"])
def test_owner_of_actors_does_not_import_pytorch(owner):
    program = f"import sys, {owner}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_a_call_sends_one_sum_however_many_clients_it_has(actor, worker, message):
    def arrays(clients):
        jobs = [Job(k, 0, 0, shares={"delta": 0.25, "buffers": 0.25}) for k in clients]
        replies = actor.do(jobs, False, wrap(message))
        assert [reply.sums is None for reply in replies] == [True] * (len(jobs) - 1) + [False]
        assert all(open_parcel(reply.upload).value.delta is None for reply in replies)
        assert all(reply.bytes_up > message.params.weights.nbytes for reply in replies)
        return {
            field: [p.nbytes for p in s.parts.values()] for field, s in replies[-1].sums.items()
        }

    weights, buffers = (8 * vector.numel() for vector in message.params)
    assert arrays([0, 1]) == arrays([0, 1, 2, 3]) == {"delta": [weights], "buffers": [buffers]}


def test_tests_and_questions_have_no_sums(actor, message):
    (tallies,) = actor.do([EvaluationJob((0,), 0)], False, wrap(message.params))
    assert len(tallies) == 1
