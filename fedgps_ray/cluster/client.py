"""The actor that does the work of clients; it runs in a process of its own, inside a Host."""

import gc
import os
import traceback
from collections.abc import Sequence
from typing import Any

import ray
import torch
from ray.exceptions import RayError

from fedgps_ray.cluster.losses import is_loss
from fedgps_ray.cluster.parcels import (
    AnswerJob,
    AnyJob,
    EvaluationJob,
    Leaving,
    Opened,
    Parcel,
    Slot,
    loans_of,
    open_parcel,
    wrap,
)
from fedgps_ray.data.datasets import Dataset
from fedgps_ray.errors import ClientFailed, GpuFull, UserError, first_line
from fedgps_ray.identity import Table
from fedgps_ray.methods.base import Reply
from fedgps_ray.rounds.collect import Sums, take_out
from fedgps_ray.rounds.setup import Setup
from fedgps_ray.rounds.worker import Job, Worker
from fedgps_ray.spec import TrialSpec
from fedgps_ray.training import arithmetic


class ClientActor:
    """Does the work of any client; between calls it keeps nothing but the trial's data."""

    def __init__(self) -> None:
        self.name = ""
        self.worker: Worker | None = None

    def facts(self) -> Table:
        """Say where and what this actor is."""
        computes_on = {} if self.worker is None else arithmetic.facts(self.worker.device)
        return {
            "name": self.name,
            "computes_on": computes_on,
            "pid": os.getpid(),
            "node": ray.get_runtime_context().get_node_id(),
            "gpus": ray.get_gpu_ids(),
            "gpu_share": gpu_share(),
            "visible_gpus": os.environ.get("CUDA_VISIBLE_DEVICES"),
        }

    def ping(self) -> None:
        """Answer, also while working: a process that does not is hung."""

    def setup(self, name: str, device: str, setup: Setup, data: Dataset) -> Table:
        """Make ready for a trial; whatever was before is gone."""
        self.name = name
        whole, kind = setup._replace(data=data), device_for(device, ray.get_gpu_ids())
        arithmetic.limit_memory(torch.device(kind), gpu_share())
        try:
            self.worker = Worker(whole, kind, name)
        except torch.OutOfMemoryError as problem:
            raise out_of_memory(setup.spec, problem) from None
        return self.facts()

    def release(self) -> None:
        """Let go of the trial and of its memory."""
        self.worker = None
        gc.collect()
        if torch.cuda.is_initialized():
            torch.cuda.empty_cache()

    def do(self, jobs: Sequence[AnyJob], apart: bool, *arguments: Parcel) -> list[Any]:
        """Do jobs one after the other; apart: each kept value is returned on its own."""
        assert self.worker is not None
        torch.set_num_threads(self.worker.spec.threads)
        call = _Call(self.worker, arguments)
        results = call.with_sums([call.run(job) for job in jobs])
        if not apart:
            return results
        kept = [part for reply in results for part in (reply.memory, reply.velocity)]
        return [[_without_kept(reply) for reply in results], *kept]


class _Call:
    """One call of a client actor: its arguments are opened when first needed."""

    def __init__(self, worker: Worker, arguments: Sequence[Parcel]) -> None:
        self.worker, self.arguments = worker, arguments
        self.opened: dict[int, Opened] = {}
        self.sums: Sums = {}

    def run(self, job: AnyJob) -> Any:
        """Do one job; an exception names the client and the round."""
        try:
            if isinstance(job, Job):
                return self._work(job)
            if isinstance(job, EvaluationJob):
                return self.worker.tallies(self._open(job.params).value, job.numbers)
            return self._answer(job)
        except torch.OutOfMemoryError as problem:
            raise out_of_memory(self.worker.spec, problem) from None
        except UserError:  # says by itself what is wrong, and where
            raise
        except Exception as problem:  # whatever a method raises has to name its client
            if isinstance(problem, RayError) and is_loss(problem):
                raise  # a broken connection of the operating system is the method's own here
            raise ClientFailed(
                f"{_named(job)}: {problem}\n{traceback.format_exc()}".strip()
            ) from None

    def with_sums(self, results: list[Any]) -> list[Any]:
        """Send the sums of all clients of the call along with the last reply."""
        if self.sums:
            last = max(i for i, result in enumerate(results) if isinstance(result, Reply))
            results[last] = results[last]._replace(sums=self.sums)
        return results

    def _open(self, argument: int) -> Opened:
        if argument not in self.opened:
            parcel = self.arguments[argument]
            self.opened[argument] = open_parcel(parcel, device=self.worker.device)
        return self.opened[argument]

    def _kept(self, slot: Slot | None) -> Any:
        if slot is None:
            return None
        parcel = self.arguments[slot.parcel] if isinstance(slot.parcel, int) else slot.parcel
        return open_parcel(
            parcel, lambda which: self._open(slot.lenders[which]).tensors, self.worker.device
        ).value

    def _work(self, job: Job) -> Reply:
        message = self._open(job.message)
        memory, velocity = self._kept(job.memory), self._kept(job.velocity)
        whole = job._replace(message=message.value, memory=memory, velocity=velocity)
        reply = take_out(self.worker.work(whole), job.shares, self.sums)
        bring, lent = Leaving(), loans_of(message.tensors, 0)  # an update is often kept too
        return reply._replace(
            upload=wrap(reply.upload, bring=bring),
            memory=None if reply.memory is None else wrap(reply.memory, lent, bring),
            velocity=None if reply.velocity is None else wrap(reply.velocity, bring=bring),
        )

    def _answer(self, job: AnswerJob) -> Parcel:
        asked = job.asked._replace(sent=self._open(job.sent).value)
        return wrap(self.worker.answer(asked, job.client, self._kept(job.memory)))


def _without_kept(reply: Reply) -> Reply:
    """Leave of the kept values only what they borrow."""
    memory, velocity = (
        None if part is None else part._replace(skeleton=None, arrays=[])
        for part in (reply.memory, reply.velocity)
    )
    return reply._replace(memory=memory, velocity=velocity)


def _named(job: AnyJob) -> str:
    if isinstance(job, Job):
        return f"client {job.client} failed in round {job.round + 1}"
    if isinstance(job, AnswerJob):
        return f"client {job.client} failed to answer in round {job.asked.round + 1}"
    return "testing the model failed"


def device_for(wanted: str, gpu_ids: Sequence[int | str]) -> str:
    """Return the device of a trial if this actor has it; cuda needs a share of a GPU."""
    if wanted == "cuda" and not gpu_ids:
        raise UserError(
            "device cuda: this actor was given no share of a GPU; add --client-gpus, such as 0.25"
        )
    if wanted == "cuda" and not torch.cuda.is_available():
        raise UserError(
            "this actor was given a share of a GPU, but PyTorch finds none;"
            " install a CUDA build of PyTorch, or run with --device cpu"
        )
    return wanted


def gpu_share() -> float:
    """Return how much of a GPU this actor was given."""
    return float(ray.get_runtime_context().get_assigned_resources().get("GPU", 0))


def out_of_memory(spec: TrialSpec, problem: Exception) -> GpuFull:
    """Return the error of an actor whose share of a GPU does not hold what a trial needs."""
    return GpuFull(
        f"out of GPU memory: this actor's share is {gpu_share():g} of a GPU and a batch has"
        f" {spec.batch_size} examples; give actors a larger share (--client-gpus), or use a smaller"
        f" batch_size or model, or precision bf16 ({first_line(problem)})"
    )
