"""The inside of a client actor: a worker, and the plans it carries out."""

import os
import traceback
from collections.abc import Sequence
from typing import Any, NamedTuple

import ray
import torch

from fedgps_ray.cluster.parcels import Opened, Parcel, loans_of, open_parcel, wrap
from fedgps_ray.data.datasets import Dataset
from fedgps_ray.errors import ClientFailed, UserError
from fedgps_ray.rounds.worker import Asked, Done, Job, Setup, Worker


class Slot(NamedTuple):
    """Where a call finds a kept value: right here, or among its arguments like its lenders."""

    parcel: Parcel | int
    lenders: tuple[int, ...]


class WorkPlan(NamedTuple):
    """One client's work; the message is a number among the arguments of the call."""

    client: int
    round: int
    message: int
    memory: Slot | None
    velocity: Slot | None


class TestPlan(NamedTuple):
    """Some batches of the test set, for the model among the arguments."""

    numbers: tuple[int, ...]
    params: int


class AnswerPlan(NamedTuple):
    """A question to one client; what is sent along is among the arguments."""

    client: int
    asked: Asked
    sent: int
    memory: Slot | None


class Report(NamedTuple):
    """A client's work done, with its tensors as parcels; kept ones may travel on their own."""

    done: Done
    upload: Parcel
    memory: Parcel | None
    velocity: Parcel | None
    keeps_memory: bool
    keeps_velocity: bool
    borrows: bool  # whether the memory holds tensors of the message


def device_for(wanted: str, gpu_ids: Sequence[Any]) -> str:
    """Return cuda for an actor that was given a share of a GPU, else cpu."""
    if wanted != "auto":
        return wanted
    if not gpu_ids:
        return "cpu"
    if not torch.cuda.is_available():
        raise UserError(
            "this actor was given a share of a GPU, but PyTorch finds none;"
            " install a CUDA build of PyTorch, or run with --client-gpus 0"
        )
    return "cuda"


class Client:
    """A worker in a process of its own; it keeps nothing between calls but the trial's data."""

    def __init__(self) -> None:
        self.name = ""
        self.worker: Worker | None = None

    def facts(self) -> dict[str, Any]:
        """Say where and what this actor is."""
        return {
            "name": self.name,
            "pid": os.getpid(),
            "node": ray.get_runtime_context().get_node_id(),
            "gpus": ray.get_gpu_ids(),
            "visible_gpus": os.environ.get("CUDA_VISIBLE_DEVICES"),
        }

    def setup(self, name: str, device: str, setup: Setup, data: Dataset) -> dict[str, Any]:
        """Make ready for a trial; whatever was before is gone."""
        whole = setup._replace(data=data)
        self.name = name
        self.worker = Worker(whole, device_for(device, ray.get_gpu_ids()), name)
        return self.facts()

    def do(self, plans: Sequence[Any], apart: bool, *arguments: Parcel) -> Any:
        """Carry out plans one after the other; apart: each kept value is returned on its own."""
        assert self.worker is not None
        torch.set_num_threads(self.worker.spec.threads)
        call = _Call(self.worker, arguments)
        results = [call.run(plan) for plan in plans]
        if not apart:
            return results
        kept = [part for report in results for part in (report.memory, report.velocity)]
        return [[r._replace(memory=None, velocity=None) for r in results], *kept]


class _Call:
    """One call of an actor: its arguments are opened when first needed."""

    def __init__(self, worker: Worker, arguments: Sequence[Parcel]) -> None:
        self.worker, self.arguments = worker, arguments
        self.opened: dict[int, Opened] = {}

    def run(self, plan: Any) -> Any:
        """Carry out one plan; an exception names the client and the round."""
        try:
            if isinstance(plan, WorkPlan):
                return self._work(plan)
            if isinstance(plan, TestPlan):
                return self.worker.tallies(self._open(plan.params).value, plan.numbers)
            return self._answer(plan)
        except Exception as problem:  # whatever a method raises has to name its client
            raise ClientFailed(
                f"{_named(plan)}: {problem}\n{traceback.format_exc()}".strip()
            ) from None

    def _open(self, argument: int) -> Opened:
        if argument not in self.opened:
            self.opened[argument] = open_parcel(self.arguments[argument])
        return self.opened[argument]

    def _kept(self, slot: Slot | None) -> Any:
        if slot is None:
            return None
        parcel = self.arguments[slot.parcel] if isinstance(slot.parcel, int) else slot.parcel
        return open_parcel(parcel, lambda which: self._open(slot.lenders[which]).tensors).value

    def _work(self, plan: WorkPlan) -> Report:
        message = self._open(plan.message)
        memory, velocity = self._kept(plan.memory), self._kept(plan.velocity)
        done = self.worker.work(Job(plan.client, plan.round, message.value, memory, velocity))
        kept = None if done.memory is None else wrap(done.memory, loans_of(message.tensors, 0))
        return Report(
            done._replace(upload=None, memory=None, velocity=None),
            wrap(done.upload),
            kept,
            None if done.velocity is None else wrap(done.velocity),
            done.memory is not None,
            done.velocity is not None,
            kept is not None and bool(kept.loans),
        )

    def _answer(self, plan: AnswerPlan) -> Parcel:
        asked = plan.asked._replace(sent=self._open(plan.sent).value)
        return wrap(self.worker.answer(asked, plan.client, self._kept(plan.memory)))


def _named(plan: Any) -> str:
    if isinstance(plan, WorkPlan):
        return f"client {plan.client} failed in round {plan.round + 1}"
    if isinstance(plan, AnswerPlan):
        return f"client {plan.client} failed to answer in round {plan.asked.round + 1}"
    return "testing the model failed"
