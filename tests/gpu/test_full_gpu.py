"""An actor whose share of a GPU is too small, without Ray: what it says, and who does its work."""

import types

import pytest
import torch

from fedgps_ray.cluster import client, dispatch
from fedgps_ray.cluster.dispatch import Dispatcher, Shared, Unit
from fedgps_ray.cluster.policy import POLICY
from fedgps_ray.errors import ClientFailed, GpuFull, UserError
from fedgps_ray.rounds.guard import _Guarded
from fedgps_ray.rounds.trial import run_trial
from fedgps_ray.rounds.worker import Job, Worker
from fedgps_ray.spec import ExecutionSpec, trial_spec


class Handle:
    """An actor that notes what it is called with; a reference is its number."""

    numbers = iter(range(10**6))

    def __init__(self):
        self.called = []
        self.call = self

    def options(self, **_):
        return self

    def remote(self, *arguments):
        self.called.append(arguments)
        return f"reference {next(self.numbers)}"


@pytest.fixture
def dispatcher(monkeypatch):
    """Make a dispatcher of three actors that are set up; what it gets is in `answers`."""
    answers = {}

    def get(reference):
        answer = answers.get(reference, {})
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(dispatch.ray, "get", get)
    made = Dispatcher([Handle() for _ in range(3)], Shared(3, None, None), "cuda", POLICY)
    made.answers = answers
    return made


def ready(dispatcher):
    for seat in dispatcher.seats:
        dispatcher._take(seat, seat.setting_up)
    return dispatcher


def submitted(dispatcher):
    units = [Unit(lambda arguments: None, 1.0, f"client {k}", own_actor=k) for k in range(3)]
    dispatcher.submit(units)
    return units


def fill(dispatcher, number):
    """Let the actor's call end for lack of memory."""
    seat = dispatcher.seats[number]
    (reference,) = seat.calls
    dispatcher.answers[reference] = GpuFull("out of GPU memory: share 0.2")
    dispatcher._take(seat, reference)


def test_the_others_do_the_work_of_an_actor_whose_gpu_is_full(dispatcher):
    units = submitted(ready(dispatcher))
    fill(dispatcher, 1)
    retired = dispatcher.seats[1]
    assert retired.handle.called[-1] == ("release",)
    assert not retired.is_ready
    dispatcher._hand_out_waiting()
    others = [dispatcher.seats[0], dispatcher.seats[2]]
    assert sum(unit is units[1] for s in others for c in s.calls.values() for unit in c.units) == 1
    assert units[1].deaths == 0, "no fault of the client"


def test_a_later_round_does_not_wait_for_it(dispatcher):
    submitted(ready(dispatcher))
    fill(dispatcher, 1)
    dispatcher._hand_out_waiting()
    later = submitted(dispatcher)
    assert [unit for _, unit in dispatcher.waiting] == [later[1]]
    dispatcher._hand_out_waiting()
    assert not dispatcher.waiting
    assert not dispatcher.seats[1].calls


def test_an_actor_may_be_full_before_it_has_begun(dispatcher):
    first, *others = dispatcher.seats
    dispatcher.answers[first.setting_up] = GpuFull("out of GPU memory")
    ready(dispatcher)
    assert first.is_retired
    assert all(seat.is_ready for seat in others)


def test_without_any_actor_left_the_trial_fails(dispatcher):
    submitted(ready(dispatcher))
    fill(dispatcher, 0)
    fill(dispatcher, 1)
    with pytest.raises(ClientFailed, match=r"out of GPU memory: share 0\.2"):
        fill(dispatcher, 2)


def test_the_message_names_share_batch_and_remedies(monkeypatch):
    monkeypatch.setattr(client, "gpu_share", lambda: 0.2)

    def work(job):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB\nmore")

    cpu = torch.device("cpu")
    worker = types.SimpleNamespace(spec=trial_spec(batch_size=48), work=work, device=cpu)
    with pytest.raises(GpuFull) as error:
        client._Call(worker, [client.wrap(None)]).run(Job(0, 0, 0))
    told = str(error.value)
    for part in ("share is 0.2 of a GPU", "48 examples", "--client-gpus", "batch_size", "2.00 GiB"):
        assert part in told
    assert "more" not in told


def test_it_is_no_fault_of_a_method_from_outside():
    def work(*_):
        raise torch.OutOfMemoryError("CUDA out of memory")

    method = _Guarded(types.SimpleNamespace(work=work), "mine.py:Mine")
    with pytest.raises(torch.OutOfMemoryError):
        method.work(None, None, None)


def test_a_full_gpu_without_ray_is_told_with_what_to_change(monkeypatch, tmp_path):
    def full(self, job):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB\nmore")

    monkeypatch.setattr(Worker, "work", full)
    spec = trial_spec(dataset="digits", model="mlp", rounds=1, batch_size=16)
    with pytest.raises(UserError, match=r"a batch has 16 .* \(CUDA out of memory\. Tried .*GiB\)"):
        list(run_trial(spec, ExecutionSpec(out=tmp_path, actors=0)))
