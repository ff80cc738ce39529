"""What must hold for every method, whatever it does: the laws that `verify` and the tests check."""

import copy
import itertools
import os
import pickle
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import torch

from fedgps_ray.data.datasets import NO_SOURCE
from fedgps_ray.data.partition import class_counts
from fedgps_ray.identity import Settings, Table
from fedgps_ray.loading import load
from fedgps_ray.methods.averages import Replies
from fedgps_ray.methods.base import Method, Question, Reply, Turn
from fedgps_ray.rounds.collect import Sums, collected, join, take_out
from fedgps_ray.rounds.loop import Finished, Snapshot, run
from fedgps_ray.rounds.packing import pack, unpack
from fedgps_ray.rounds.pool import NOTHING, InProcess, Kept
from fedgps_ray.rounds.selection import schedule
from fedgps_ray.rounds.setup import Setup, prepare
from fedgps_ray.rounds.trial import run_trial
from fedgps_ray.rounds.worker import Asked, Job, Worker, moved_to
from fedgps_ray.spec import ExecutionSpec, TrialSpec, method_name, trial_spec
from fedgps_ray.tensors import all_finite, leaves, num_bytes
from fedgps_ray.tools.verify import trials
from fedgps_ray.tools.verify.check import Check, Value

ROUNDS = 3
WORKERS = (1, 2, 3)
TINY: Table = {**trials.TINY, "clients": 4, "sampling_rate": 0.5, "rounds": ROUNDS}
META = torch.device("meta")
HOLDS = "yes"


def tiny_spec(method: object, **settings: object) -> TrialSpec:
    """Return a trial of a second: four clients of which two take part, 8 x 8 images."""
    return trial_spec(method=method, **{**TINY, **settings})


def checks(method: Method, on_ray: bool = False) -> list[Check]:
    """Return the laws as checks of one method."""
    spec = tiny_spec(method)
    laws: dict[str, Callable[[TrialSpec], str]] = {
        "is pickled and comes back equal": pickles,
        "nothing is changed in place": inputs_stay,
        "nothing is kept in self": keeps_nothing,
        "same weights with 1, 2 and 3 workers": any_workers,
        "exact resume after every round": resumes,
        "every round changes the weights": moves,
        "its values are written and read back": packs,
        "its values move to another device": moves_device,
        "all that is sent is counted in bytes": counts_bytes,
        "survives single samples and missing classes": survives,
    }
    if on_ray:
        laws["same weights on 2 Ray actors"] = on_actors
    return [Check(method_name(method), claim, _both(law, spec)) for claim, law in laws.items()]


def _both(law: Callable[[TrialSpec], str], spec: TrialSpec) -> Callable[[], tuple[Value, Value]]:
    return lambda: (HOLDS, law(spec) or HOLDS)


# Each law returns what breaks it, or nothing.


def pickles(spec: TrialSpec) -> str:
    """A method travels to other processes."""
    back = pickle.loads(pickle.dumps(spec))
    return "" if back == spec and back.trial_id == spec.trial_id else "another one comes back"


# --- runs -----------------------------------------------------------------------------------------


def hashes(finished: Sequence[Finished]) -> list[str]:
    """Return the digest of the weights after each round."""
    return [done.row["weights_sha256"] for done in finished]


def played(spec: TrialSpec, workers: int = 1) -> list[Finished]:
    """Run a trial on several workers of this process, which share nothing."""
    team = [Worker(prepare(_copied(spec), NO_SOURCE), name=f"{k}") for k in range(workers)]
    first = team[0]
    state = spec.method.init(first.initial(), first.cohort())
    return list(run(spec, first.cohort(), Team(team), Snapshot(0, state, {})))


def _copied(spec: TrialSpec) -> TrialSpec:
    copied: TrialSpec = pickle.loads(pickle.dumps(spec))
    return copied


class Team(InProcess):
    """Several workers that take turns, the last one first; values reach them as copies."""

    def __init__(self, workers: Sequence[Worker]) -> None:
        super().__init__(workers[0])
        self.workers = workers

    def start(self, jobs: Sequence[Job]) -> Callable[[], Replies]:
        """Return the function that does the work, last job first; each worker has its own sums."""

        def results() -> Replies:
            own: list[Sums] = [{} for _ in self.workers]
            turns = itertools.cycle(reversed(list(zip(self.workers, own, strict=True))))
            replies = [
                take_out(worker.work(_sent(job)), job.shares, sums)
                for job, (worker, sums) in zip(reversed(jobs), turns, strict=False)
            ]
            total: Sums = {}
            for sums in own:
                join(total, sums)
            return collected(jobs, replies[::-1], total)

        return results


def _sent(job: Job) -> Job:
    return Job(job.client, job.round, *(there_and_back(part) for part in job[2:]))


def there_and_back(value: object) -> Any:
    """Return a value as it comes out of a file or of another process."""
    tensors: list[torch.Tensor] = []

    def place(tensor: torch.Tensor) -> int:
        tensors.append(tensor.detach().clone())
        return len(tensors) - 1

    return unpack(pack(value, place), tensors.__getitem__)


def any_workers(spec: TrialSpec) -> str:
    """The bits do not depend on who did what."""
    digests = {number: hashes(played(spec, number)) for number in WORKERS}
    differing = [str(number) for number in WORKERS if digests[number] != digests[1]]
    return f"other weights with {', '.join(differing)} workers" if differing else ""


def moves(spec: TrialSpec) -> str:
    """A method that does nothing is none."""
    return "" if len(set(hashes(played(spec)))) == spec.rounds else "weights stay the same"


def stored_hashes(folder: Path) -> list[str]:
    """Return the digests of the only trial of a folder."""
    (path,) = folder.glob("trials/*/rounds.parquet")
    digests: list[str] = pq.read_table(path, columns=["weights_sha256"])[0].to_pylist()
    return digests


def record(spec: TrialSpec, base: Path) -> None:
    """Run a trial without a stop, and leave a copy of its folder as it was after each round."""
    execution = ExecutionSpec(out=base / "whole", checkpoint_seconds=0)
    for number, _ in enumerate(run_trial(spec, execution)):
        shutil.copytree(base / "whole", base / f"after {number}")


def continued(spec: TrialSpec, base: Path, done: int) -> str:
    """Go on from the copy after some rounds; say in what it differs from the whole."""
    folder = base / f"after {done}"
    started, *rows = run_trial(_copied(spec), ExecutionSpec(out=folder))
    assert not isinstance(started, dict)
    problems = getattr(started, "problems", [])
    if problems or getattr(started, "rounds_done", None) != done:
        return f"after round {done} its checkpoint cannot be used: {', '.join(problems)}"
    if len(rows) != spec.rounds - done or stored_hashes(folder) != stored_hashes(base / "whole"):
        return f"other weights when resumed after round {done}"
    models = [next(f.glob("trials/*/model.safetensors")) for f in (folder, base / "whole")]
    same = models[0].read_bytes() == models[1].read_bytes()
    return "" if same else f"another model when resumed after round {done}"


def resumes(spec: TrialSpec) -> str:
    """Stopped after any round, it goes on as if it had not been."""
    with tempfile.TemporaryDirectory() as name:
        record(spec, Path(name))
        problems = [continued(spec, Path(name), done) for done in range(spec.rounds + 1)]
    return next(filter(None, problems), "")


def on_actors(spec: TrialSpec) -> str:
    """Ray changes no bit."""
    run_on_ray = load("fedgps_ray.cluster.crew:run_on_ray")
    with tempfile.TemporaryDirectory() as name:
        actors = min(2, os.cpu_count() or 1)
        execution = ExecutionSpec(out=Path(name), actors=actors)
        for _ in run_on_ray(spec, execution):
            pass
        same = stored_hashes(Path(name)) == hashes(played(spec))
    return "" if same else "other weights on actors"


# --- values go in, values come out ----------------------------------------------------------------


class Changed(Exception):
    """A value that must not change was changed."""


class Watched:
    """Plays rounds by hand and holds on to a copy of everything that must not change."""

    def __init__(self, spec: TrialSpec) -> None:
        self.spec, self.method = spec, spec.method
        self.worker = Worker(prepare(spec, NO_SOURCE))
        self.pool, self.kept = InProcess(self.worker), dict[int, Kept]()
        self.watched: list[tuple[Any, Any]] = []
        self.state = self.watch(self.method.init(self.worker.initial(), self.worker.cohort()))
        self.picked = schedule(spec, [client.num_examples for client in self.worker.clients])

    def watch(self, value: object) -> Any:
        """Hold on to a value."""
        self.watched.append((value, copy.deepcopy(value)))
        return value

    def check(self, after: str) -> None:
        """Compare all values with what they were."""
        for value, before in self.watched:
            if not same(value, before):
                raise Changed(f"{type(value).__name__} was changed by {after}")

    def play(self, t: int) -> None:
        """Play a round."""
        clients = tuple(self.worker.clients[k] for k in self.picked[t])
        turn = Turn(t, clients, np.random.default_rng(t))
        messages = self.watch(list(self.method.send(self.state, turn)))
        self.check("send")
        jobs = [
            Job(client.id, t, message, *self.kept.get(client.id, NOTHING))
            for client, message in zip(turn.clients, messages, strict=True)
        ]
        replies = self.watch(self.pool.start(jobs)())
        self.check("work")
        for reply in replies:
            self.kept[reply.client.id] = Kept(reply.memory, reply.velocity)
        self._finish(turn, replies)

    def _finish(self, turn: Turn, replies: Sequence[Reply]) -> None:
        def ask(question: Question, sent: object) -> list[Any]:
            answers = self.pool.ask(Asked(turn.round, question, self.watch(sent)), self.kept)
            self.watch(answers)
            return answers

        self.method.measure(self.state, turn, ask)
        self.check("measure")
        self.state = self.watch(self.method.merge(self.state, replies))
        self.check("merge")
        self.watch(self.method.deploy(self.state, turn, ask))
        self.check("deploy")
        self.watch(self.method.global_params(self.state))
        for kept in self.kept.values():
            if kept.memory is not None:
                self.method.fade(kept.memory)
        self.check("fade")


def same(left: object, right: object) -> bool:
    """Say whether two values are equal to the last bit."""
    lefts, rights = list(leaves(left)), list(leaves(right))
    return len(lefts) == len(rights) and all(map(_same_leaf, lefts, rights))


def _same_leaf(left: object, right: object) -> bool:
    if isinstance(left, torch.Tensor) and isinstance(right, torch.Tensor):
        return left.dtype == right.dtype and torch.equal(left, right)
    return bool(left == right)


def inputs_stay(spec: TrialSpec) -> str:
    """Values go in, values come out."""
    game = Watched(spec)
    try:
        for t in range(spec.rounds):
            game.play(t)
    except Changed as change:
        return str(change)
    return ""


def keeps_nothing(spec: TrialSpec) -> str:
    """A method's object is the same after the trial as before it."""
    spec = _copied(spec)
    before = copy.deepcopy(_own(spec.method))
    trials.rounds_of(Worker(prepare(spec, NO_SOURCE)))
    after = _own(spec.method)
    changed = [key for key in {**before, **after} if not _equal(before, after, key)]
    return f"self.{changed[0]} was changed" if changed else ""


def _own(method: object) -> Table:
    """Return what an object holds, and what its class holds that can change."""
    of_class = {k: v for k, v in vars(type(method)).items() if isinstance(v, list | dict | set)}
    shared = {k: v for k, v in of_class.items() if not k.startswith("__")}
    return {**shared, **getattr(method, "__dict__", {})}


def _equal(before: Settings, after: Settings, key: str) -> bool:
    return key in before and key in after and same(before[key], after[key])


# --- what leaves the process ----------------------------------------------------------------------


def values_of(spec: TrialSpec) -> Iterator[tuple[str, object]]:
    """Yield all kinds of values of a method by name, from a trial."""
    worker = Worker(prepare(spec, NO_SOURCE))
    method, pool = spec.method, InProcess(worker)
    state = method.init(worker.initial(), worker.cohort())
    for t in range(2):
        turn = Turn(t, worker.clients, np.random.default_rng(t))
        messages = list(method.send(state, turn))
        jobs = [Job(c.id, t, m) for c, m in zip(turn.clients, messages, strict=True)]
        replies = pool.start(jobs)()
        yield "state", state
        yield from (("message", message) for message in messages)
        yield from (("upload", reply.upload) for reply in replies)
        yield from (("memory", reply.memory) for reply in replies)
        state = method.merge(state, replies)


def packs(spec: TrialSpec) -> str:
    """Checkpoints and other processes get what was meant."""
    for name, value in values_of(spec):
        back = there_and_back(value)
        if type(back) is not type(value) or not same(back, value):
            return f"another {name} comes back"
    return ""


def moves_device(spec: TrialSpec) -> str:
    """On a GPU every tensor is found and moved, and no structure is lost."""
    for name, value in values_of(spec):
        there = moved_to(value, META)
        tensors = [leaf for leaf in leaves(there) if isinstance(leaf, torch.Tensor)]
        if type(there) is not type(value) or not all(tensor.is_meta for tensor in tensors):
            return f"a tensor of the {name} does not move"
    return ""


def counts_bytes(spec: TrialSpec) -> str:
    """What is counted is what travels: arrays, and 8 bytes for each number."""
    for name, value in values_of(spec):
        sent: list[int] = []
        skeleton = pack(value, lambda tensor, sent=sent: sent.append(tensor.nbytes))  # type: ignore[misc]
        if num_bytes(value) != sum(sent) + 8 * _numbers(skeleton):
            return f"the {name} has {sum(sent)} bytes of tensors, {num_bytes(value)} are counted"
    return ""


def _numbers(skeleton: object) -> int:
    if isinstance(skeleton, dict):
        return sum(_numbers(part) for part in skeleton.values())
    if isinstance(skeleton, list):
        return sum(map(_numbers, skeleton))
    return int(isinstance(skeleton, int | float))


# --- hard data ------------------------------------------------------------------------------------


def hard(setup: Setup) -> Setup:
    """Share the data out so that batches of one, a client of one and missing classes occur."""
    labels = setup.data.y_train
    zeros, others = np.flatnonzero(labels == 0), np.flatnonzero(labels != 0)
    parts: tuple[Any, ...] = (
        zeros[:9],  # one class only; batches of 8 and 1
        others[:1],  # one sample only
        others[1:18],  # lacks class 0; batches of 8, 8 and 1
        np.concatenate([zeros[9:], others[18:]]),
    )
    if setup.spec.clients == 1:
        parts = (others[:17],)
    counts = class_counts(parts, labels, setup.data.num_classes)
    return setup._replace(parts=parts, counts=counts)


def on_hard_data(spec: TrialSpec) -> list[Finished]:
    """Run two rounds of two epochs on hard data, with all clients."""
    settings = {**spec.model_dump(), "sampling_rate": 1.0, "rounds": 2, "local_epochs": 2}
    spec = trial_spec(**settings | {"method": spec.method})
    return trials.rounds_of(Worker(hard(prepare(spec, NO_SOURCE))))


def survives(spec: TrialSpec) -> str:
    """Skewed data has batches of one and clients without a class."""
    rounds = on_hard_data(spec)
    losses = [one.row[key] for one in rounds for key in ("loss", "train_loss")]
    finite = all_finite(spec.method.global_params(rounds[-1].snapshot.state))
    return "" if len(rounds) == 2 and finite and np.isfinite(losses).all() else "not finite"
