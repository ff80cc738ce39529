"""What a pool is, and the pool that works in this process."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from fedgps_ray.identity import Table
from fedgps_ray.methods.averages import Replies
from fedgps_ray.methods.base import Memory
from fedgps_ray.rounds.collect import Sums, collected, take_out
from fedgps_ray.rounds.worker import Asked, Handle, Job, Worker
from fedgps_ray.tensors import Params
from fedgps_ray.training import arithmetic
from fedgps_ray.training.evaluate import Score


class Kept(NamedTuple):
    """A client's memory and momentum between two participations."""

    memory: Handle | None
    velocity: Handle | None


NOTHING = Kept(None, None)


class Pool(Protocol):
    """Carries out the work of a round; what it returns does not depend on how."""

    keeps_here: bool
    """Whether what clients keep lies in this process's own memory."""

    def start(self, jobs: Sequence[Job]) -> Callable[[], Replies]:
        """Begin a round; the function returned waits for the replies, in the order of the jobs.

        Memory and momentum are handles, in the jobs and in the replies.
        """

    def start_evaluation(self, params: Params) -> Callable[[], Score]:
        """Begin to test a model; the function returned waits for the score."""

    def ask(self, asked: Asked, kept: dict[int, Kept]) -> list[Any]:
        """Put a question to every client; answers come in client order."""

    def fetch(self, handle: Handle) -> object:
        """Return the value behind a handle."""

    def store(self, values: Sequence[object]) -> list[Handle]:
        """Keep values and return their handles."""

    def revise(self, handle: Handle, change: Callable[[Memory], Memory]) -> Handle:
        """Return a handle of the changed value, or the same one if nothing changed."""

    def devices(self) -> list[Table]:
        """Say on what kinds of devices it computes, and with which settings."""


class InProcess:
    """One worker in this process; clients work one after the other when the results are wanted."""

    keeps_here = True

    def __init__(self, worker: Worker) -> None:
        self.worker = worker

    def start(self, jobs: Sequence[Job]) -> Callable[[], Replies]:
        """Return the function that does the work."""

        def results() -> Replies:
            sums: Sums = {}
            replies = [take_out(self.worker.work(job), job.shares, sums) for job in jobs]
            return collected(jobs, replies, sums)

        return results

    def start_evaluation(self, params: Params) -> Callable[[], Score]:
        """Return the function that tests."""
        return lambda: self.worker.evaluate(params)

    def ask(self, asked: Asked, kept: dict[int, Kept]) -> list[Any]:
        """Ask one client after the other."""
        return [
            self.worker.answer(asked, client.id, kept.get(client.id, NOTHING).memory)
            for client in self.worker.clients
        ]

    def fetch(self, handle: Handle) -> object:
        """Return the value, which is its own handle."""
        return handle

    def store(self, values: Sequence[object]) -> list[Handle]:
        """Return the values, which are their own handles."""
        return list(values)

    def revise(self, handle: Handle, change: Callable[[Memory], Memory]) -> Handle:
        """Return the changed value."""
        return change(handle)

    def devices(self) -> list[Table]:
        """Return the device of the worker."""
        return [arithmetic.facts(self.worker.device)]
