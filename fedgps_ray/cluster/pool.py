"""The pool that spreads a round over client actors; kept values lie in Ray's object store."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import ray
from torch import Tensor

from fedgps_ray.cluster.dispatch import Arguments, Dispatcher, Unit
from fedgps_ray.cluster.parcels import (
    WORTH_LENDING,
    AnswerJob,
    EvaluationJob,
    Key,
    Opened,
    Parcel,
    Slot,
    key,
    open_parcel,
    wrap,
)
from fedgps_ray.cluster.session import Reference
from fedgps_ray.data.batches import PLAIN_BATCH
from fedgps_ray.identity import Table
from fedgps_ray.methods.averages import Replies
from fedgps_ray.methods.base import Memory, Reply
from fedgps_ray.rounds.collect import Sums, collected, join
from fedgps_ray.rounds.pool import NOTHING, Kept
from fedgps_ray.rounds.setup import Setup
from fedgps_ray.rounds.worker import Asked, Handle, Job
from fedgps_ray.tensors import Params, leaves, num_bytes
from fedgps_ray.training.evaluate import Score, score

APART_BYTES = 1_000_000  # a larger kept value is an object of its own, a smaller one travels along
TEST_COST = 1 / 3  # of an image against training on it: a forward pass, no backward pass
FIRST_GUESS = 1e-3  # seconds per image, until something was measured
Lent = dict[Key, tuple[Reference, int]]  # where a tensor is: in which parcel, at which place


class Held(NamedTuple):
    """A kept value at the server: the parcel if it is small, else a reference; and its lenders."""

    parcel: Parcel | Reference
    lenders: tuple[Reference, ...] = ()


class RayPool:
    """Spreads work over client actors; what comes out does not depend on who did what."""

    keeps_here = False  # but in the object store, which moves to disk what it has no room for

    def __init__(self, setup: Setup, dispatcher: Dispatcher) -> None:
        self.dispatcher = dispatcher
        self.sizes = [len(part) for part in setup.parts]
        self.one_each = len(dispatcher.seats) == setup.spec.clients
        self.num_batches = -(-len(setup.data.y_test) // PLAIN_BATCH)
        self.seconds: dict[int, float] = {}
        self.pace = FIRST_GUESS
        self.planned_test: list[Unit] = []

    # --- the pool's interface -------------------------------------------------------------------

    def start(self, jobs: Sequence[Job]) -> Callable[[], Replies]:
        """Begin a round; the test of the last one goes out with it."""
        stored = {id(job.message): job.message for job in jobs}
        references = {which: ray.put(wrap(message)) for which, message in stored.items()}
        apart = num_bytes(jobs[0].message) >= APART_BYTES
        messages = [references[id(job.message)] for job in jobs]
        units = [
            self._work_unit(job._replace(message=message), apart)
            for job, message in zip(jobs, messages, strict=True)
        ]
        self._submit_test()
        self.dispatcher.submit(units)

        def results() -> Replies:
            self.dispatcher.wait(units)
            replies = [_opened(u, m) for u, m in zip(units, messages, strict=True)]
            self._learn(replies)
            return collected(jobs, replies, _joined(replies))

        return results

    def start_evaluation(self, params: Params) -> Callable[[], Score]:
        """Plan a test; it goes out with the next round's work, or when its score is wanted."""
        reference = ray.put(wrap(params))
        size = max(1, self.num_batches // (4 * len(self.dispatcher.seats)))
        starts = range(0, self.num_batches, size)
        pieces = [tuple(range(i, min(i + size, self.num_batches))) for i in starts]
        self.planned_test = units = [self._test_unit(piece, reference) for piece in pieces]

        def result() -> Score:
            self._submit_test()
            self.dispatcher.wait(units)
            return score([tally for unit in units for tally in unit.result])

        return result

    def ask(self, asked: Asked, kept: dict[int, Kept]) -> list[Any]:
        """Put a question to every client."""
        sent = ray.put(wrap(asked.sent))
        units = [
            self._answer_unit(client, asked, sent, kept.get(client, NOTHING).memory)
            for client in range(len(self.sizes))
        ]
        self.dispatcher.submit(units)
        self.dispatcher.wait(units)
        return [open_parcel(unit.result).value for unit in units]

    def fetch(self, handle: Handle) -> object:
        """Return the value behind a handle, mapped where it is."""
        return _open(handle)[0].value

    def store(self, values: Sequence[object]) -> list[Handle]:
        """Keep values; a large tensor that several of them share is kept once."""
        seen: set[Key] = set()
        lent: Lent = {}
        for tensor in (leaf for value in values for leaf in leaves(value)):
            if isinstance(tensor, Tensor) and tensor.nbytes >= WORTH_LENDING:
                if key(tensor) in seen and key(tensor) not in lent:
                    lent[key(tensor)] = (ray.put(wrap(tensor)), 0)
                seen.add(key(tensor))
        return [None if value is None else _hold(value, lent) for value in values]

    def revise(self, handle: Handle, change: Callable[[Memory], Memory]) -> Handle:
        """Change a kept value; what it borrows stays borrowed."""
        opened, lent = _open(handle)
        changed = change(opened.value)
        return handle if changed is opened.value else _hold(changed, lent)

    def devices(self) -> list[Table]:
        """Return the kinds of devices of the actors."""
        kinds = (seat.facts.get("computes_on") for seat in self.dispatcher.seats)
        return [dict(kind) for kind in sorted({tuple(f.items()) for f in kinds if f})]

    # --- units of work --------------------------------------------------------------------------

    def _work_unit(self, job: Job, apart: bool) -> Unit:
        def on_wire(arguments: Arguments) -> Job:
            message = arguments.add(job.message)
            memory, velocity = _slot(job.memory, arguments), _slot(job.velocity, arguments)
            return job._replace(message=message, memory=memory, velocity=velocity)

        cost = self.seconds.get(job.client, self.sizes[job.client] * self.pace)
        return Unit(on_wire, cost, f"client {job.client}", self._own(job.client), apart)

    def _test_unit(self, numbers: tuple[int, ...], params: Reference) -> Unit:
        cost = TEST_COST * PLAIN_BATCH * len(numbers) * self.pace
        return Unit(lambda arguments: EvaluationJob(numbers, arguments.add(params)), cost, "test")

    def _answer_unit(self, client: int, asked: Asked, sent: Reference, memory: Held | None) -> Unit:
        bare = asked._replace(sent=None)

        def on_wire(arguments: Arguments) -> AnswerJob:
            return AnswerJob(client, bare, arguments.add(sent), _slot(memory, arguments))

        cost = TEST_COST * self.sizes[client] * self.pace
        return Unit(on_wire, cost, f"client {client}", self._own(client))

    def _own(self, client: int) -> int | None:
        return client if self.one_each else None

    def _learn(self, replies: Sequence[Reply]) -> None:
        """Note how long each client took, and what an image takes on average."""
        self.seconds.update({reply.client.id: reply.seconds for reply in replies})
        images = sum(self.sizes[reply.client.id] for reply in replies)
        self.pace = sum(reply.seconds for reply in replies) / max(1, images)

    def _submit_test(self) -> None:
        units, self.planned_test = self.planned_test, []
        self.dispatcher.submit(units)


def _opened(unit: Unit, message: Reference) -> Reply:
    """Return a reply with its upload opened; what the client keeps stays closed."""
    reply, *apart = unit.result if unit.apart else (unit.result, None, None)

    def held(parcel: Parcel | None, own: Reference | None) -> Held | None:
        if parcel is None:
            return None
        return Held(parcel if own is None else own, (message,) if parcel.loans else ())

    opened: Reply = reply._replace(
        upload=open_parcel(reply.upload).value,
        memory=held(reply.memory, apart[0]),
        velocity=held(reply.velocity, apart[1]),
    )
    return opened


def _joined(replies: Sequence[Reply]) -> Sums:
    """Return the sums of all calls; whoever formed which part, the bits are the same."""
    sums: Sums = {}
    for reply in replies:
        join(sums, reply.sums or {})
    return sums


def _slot(held: Held | None, arguments: Arguments) -> Slot | None:
    """Put what a kept value needs among the arguments of a call."""
    if held is None:
        return None
    lenders = tuple(arguments.add(reference) for reference in held.lenders)
    parcel = held.parcel
    return Slot(parcel if isinstance(parcel, Parcel) else arguments.add(parcel), lenders)


def _open(held: Held) -> tuple[Opened, Lent]:
    """Return a kept value, and what it borrows."""
    parcel = held.parcel if isinstance(held.parcel, Parcel) else ray.get(held.parcel)
    lenders = [open_parcel(ray.get(reference)).tensors for reference in held.lenders]
    lent = {
        key(lenders[which][index]): (held.lenders[which], index) for which, index in parcel.loans
    }
    return open_parcel(parcel, lambda which: lenders[which]), lent


def _hold(value: object, lent: Lent) -> Held:
    """Keep a value, borrowing what is lent."""
    lenders = list(dict.fromkeys(reference for reference, _ in lent.values()))
    parcel = wrap(value, {k: (lenders.index(ref), index) for k, (ref, index) in lent.items()})
    used = sorted({which for which, _ in parcel.loans})
    parcel = parcel._replace(loans=[(used.index(which), index) for which, index in parcel.loans])
    large = sum(array.nbytes for array in parcel.arrays) >= APART_BYTES
    return Held(ray.put(parcel) if large else parcel, tuple(lenders[which] for which in used))
