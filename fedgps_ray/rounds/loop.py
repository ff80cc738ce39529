"""The round loop: a generator of finished rounds that knows Method and Pool, not Ray."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from fedgps_ray import seeds
from fedgps_ray.methods.averages import Replies, averaged
from fedgps_ray.methods.base import Ask, Cohort, Method, Question, Reply, State, Turn
from fedgps_ray.rounds.guard import guarded
from fedgps_ray.rounds.measures import UNTESTED, label_counts, scores, update_diversity
from fedgps_ray.rounds.pool import NOTHING, Kept, Pool
from fedgps_ray.rounds.selection import schedule
from fedgps_ray.rounds.worker import Asked, Job
from fedgps_ray.spec import TrialSpec
from fedgps_ray.tensors import all_finite, logical, num_bytes, sha256
from fedgps_ray.training.evaluate import Score

Row = dict[str, Any]


class Snapshot(NamedTuple):
    """Everything the rest of a trial depends on, after a number of rounds."""

    rounds_done: int
    state: State
    kept: dict[int, Kept]


class Finished(NamedTuple):
    """A round: its row, its clients' rows, and the state of the trial after it."""

    row: Row
    clients: list[Row]
    snapshot: Snapshot


class Diverged(Exception):
    """A number became infinite or undefined: a result of the trial, not a fault of the program."""

    def __init__(self, row: Row, what: str) -> None:
        super().__init__(f"{what} is not finite in round {row['round']}")
        self.row = row


def run(spec: TrialSpec, cohort: Cohort, pool: Pool, start: Snapshot) -> Iterator[Finished]:
    """Yield round after round; a round is tested while the clients already work on the next."""
    picked = schedule(spec, [client.num_examples for client in cohort.clients])
    last_present = picked[start.rounds_done - 1] if start.rounds_done else []
    loop = _Loop(guarded(spec.method), cohort, pool, start, last_present)
    pending: Callable[[], Finished] | None = None
    for t in range(start.rounds_done, spec.rounds):
        clients = tuple(cohort.clients[k] for k in picked[t])
        turn = Turn(t, clients, seeds.stream(spec.seed, "server", t))
        results = loop.send(turn)
        if pending is not None:
            yield _checked(pending())
        tested = (t + 1) % spec.evaluate_every == 0 or t + 1 == spec.rounds
        pending = loop.merge(turn, results, tested)
    if pending is not None:
        yield _checked(pending())


def _checked(finished: Finished) -> Finished:
    loss = finished.row["loss"]
    if loss is not None and not math.isfinite(loss):
        raise Diverged({**finished.row, **UNTESTED, "loss": loss}, "the test loss")
    return finished


class _Loop:
    """The server's side of a trial: state and kept values, replaced round by round."""

    def __init__(
        self,
        method: Method,
        cohort: Cohort,
        pool: Pool,
        start: Snapshot,
        last_present: Sequence[int],
    ) -> None:
        self.method, self.cohort, self.pool = method, cohort, pool
        self.state, self.kept = start.state, start.kept
        self.last_present = set(last_present)
        self.counts = label_counts(cohort.clients)
        self.began, self.bytes_down = 0.0, [0]

    def send(self, turn: Turn) -> Callable[[], Replies]:
        """Start the clients of a round."""
        self.began = time.perf_counter()
        messages = self.method.send(self.state, turn)
        self.bytes_down = _sizes(messages)
        shares = averaged(self.method, turn.clients)
        jobs = [
            Job(
                client.id,
                turn.round,
                message,
                *self.kept.get(client.id, NOTHING),
                shares={field: each[place] for field, each in shares.items()},
            )
            for place, (client, message) in enumerate(zip(turn.clients, messages, strict=True))
        ]
        return self.pool.start(jobs)

    def merge(
        self, turn: Turn, results: Callable[[], Replies], tested: bool
    ) -> Callable[[], Finished]:
        """Wait for the clients, form the next state, start its test if there is one."""
        began, bytes_down = self.began, self.bytes_down
        replies = results()
        trained = time.perf_counter()
        clients = [
            _client_row(turn, reply, down) for reply, down in zip(replies, bytes_down, strict=True)
        ]
        _refuse_infinite(turn, replies)
        self._keep(replies)
        measured = self.method.measure(self.state, turn, self._ask(turn, {}))
        self.state = self._merged(turn, replies)
        weights = self.method.global_params(self.state).weights
        asked = dict.fromkeys(SUMMED, 0)
        score = self._start_test(turn, asked) if tested else _untested
        row = {
            "round": turn.round + 1,
            "train_loss": _mean_loss(replies),
            "weights_sha256": sha256(logical(weights, self.cohort.layout.weights)),
            **{key: asked[key] + sum(c[key] for c in clients) for key in SUMMED},
            "divergence": measured.pop("divergence", None),
            "update_diversity": update_diversity(replies),
            "metrics": _metrics(measured, replies),
            "train_seconds": trained - began,
            "aggregate_seconds": time.perf_counter() - trained,
        }
        return self._finish(row, clients, score)

    def _start_test(self, turn: Turn, bill: dict[str, int]) -> Callable[[], Score | None]:
        params = self.method.deploy(self.state, turn, self._ask(turn, bill))
        return self.pool.start_evaluation(params)

    def _merged(self, turn: Turn, replies: Sequence[Reply]) -> State:
        state = self.method.merge(self.state, replies)
        if not all_finite(self.method.global_params(state)):
            raise Diverged({"round": turn.round + 1}, "the aggregated model")
        return state

    def _keep(self, replies: Sequence[Reply]) -> None:
        """Take over the kept values; clients that sit out for the first time keep less."""
        present = {reply.client.id: Kept(reply.memory, reply.velocity) for reply in replies}
        faded = {k: self._fade(self.kept[k]) for k in self.last_present - set(present)}
        self.kept = {**self.kept, **faded, **present}
        self.last_present = set(present)

    def _fade(self, kept: Kept) -> Kept:
        if kept.memory is None:
            return kept
        return kept._replace(memory=self.pool.revise(kept.memory, self.method.fade))

    def _ask(self, turn: Turn, bill: dict[str, int]) -> Ask:
        """Return a function that asks all clients and adds the bytes to the bill."""

        def ask(question: Question, sent: object) -> list[Any]:
            answers = self.pool.ask(Asked(turn.round, question, sent), self.kept)
            down = num_bytes(sent) * len(answers)
            bill["bytes_down"] = bill.get("bytes_down", 0) + down
            bill["bytes_up"] = bill.get("bytes_up", 0) + num_bytes(answers)
            return answers

        return ask

    def _finish(
        self, row: Row, clients: list[Row], score: Callable[[], Score | None]
    ) -> Callable[[], Finished]:
        snapshot = Snapshot(row["round"], self.state, self.kept)

        def finish() -> Finished:
            began = time.perf_counter()
            tested = score()
            seconds = time.perf_counter() - began
            told = scores(tested, self.counts)
            return Finished({**row, **told, "evaluate_seconds": seconds}, clients, snapshot)

        return finish


def _untested() -> None:
    return None


SUMMED = ("bytes_up", "bytes_down", "steps", "gradient_evaluations")


def _sizes(messages: Sequence[object]) -> list[int]:
    """Return the bytes of each message; the same object is counted once."""
    known: dict[int, int] = {}
    for message in messages:
        if id(message) not in known:
            known[id(message)] = num_bytes(message)
    return [known[id(message)] for message in messages]


def _client_row(turn: Turn, reply: Reply, bytes_down: int) -> Row:
    return {
        "round": turn.round + 1,
        "client": reply.client.id,
        "samples": reply.client.num_examples,
        "steps": reply.steps,
        "gradient_evaluations": reply.gradient_evaluations,
        "loss": reply.loss,
        "update_norm": reply.update_norm,
        "bytes_up": reply.bytes_up,
        "bytes_down": bytes_down,
        "worker": reply.worker,
        "work_seconds": reply.seconds,
    }


def _refuse_infinite(turn: Turn, replies: Sequence[Reply]) -> None:
    for reply in replies:
        if not reply.finite:
            raise Diverged({"round": turn.round + 1}, f"the update of client {reply.client.id}")


def _mean_loss(replies: Sequence[Reply]) -> float:
    samples = [reply.client.num_examples for reply in replies]
    losses = [reply.loss for reply in replies]
    return sum(n * loss for n, loss in zip(samples, losses, strict=True)) / sum(samples)


def _metrics(measured: dict[str, float], replies: Sequence[Reply]) -> dict[str, float]:
    """Return the method's own figures: of the server, and of the clients as plain means."""
    told: dict[str, list[float]] = {}
    for reply in replies:
        for name, value in reply.metrics.items():
            told.setdefault(name, []).append(value)
    return {**measured, **{name: sum(values) / len(values) for name, values in told.items()}}
