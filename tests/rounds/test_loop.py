"""The round loop with clients that are scripted instead of trained: every row by hand."""

import math
from typing import NamedTuple

import pytest
import torch

from fedgps_ray.methods import FedAvg
from fedgps_ray.methods.base import Cohort, Reply
from fedgps_ray.methods.fedavg import State
from fedgps_ray.rounds.loop import Diverged, Snapshot, run
from fedgps_ray.rounds.pool import InProcess
from fedgps_ray.rounds.selection import select
from fedgps_ray.spec import trial_spec
from fedgps_ray.tensors import Layout, Params, Update, sha256
from fedgps_ray.training.evaluate import Score
from fedgps_ray.training.local import Client

CLIENTS = tuple(Client(k, (10 * (k + 1), 0)) for k in range(4))  # 10, 20, 30 and 40 samples
START = Params(torch.zeros(3), torch.zeros(1))  # 16 bytes
BYTES = 16


class Memory(NamedTuple):
    visits: int
    faded: int


class Plain(FedAvg):
    """FedAvg, for which `trial_spec` does not need a name."""


class Fading(FedAvg):
    def fade(self, memory):
        return memory._replace(faded=memory.faded + 1)


class Asking(FedAvg):
    def measure(self, state, turn, ask):
        answers = ask(lambda local, memory, sent: 1.0, torch.zeros(100))
        return {"divergence": sum(answers), "spread": float(state.params.weights[0])}

    def deploy(self, state, turn, ask):
        answers = ask(lambda local, memory, sent: torch.full((5,), sent[0].item()), torch.ones(2))
        return Params(sum(answers), torch.zeros(0))


class Desk:
    """A worker whose client k always moves the weights by k + 1; loss and steps are scripted."""

    def __init__(self, clients=CLIENTS):
        self.clients, self.jobs, self.tested, self.events = clients, [], [], []

    def work(self, job):
        self.jobs.append(job)
        self.events.append(("work", job.round))
        k = job.client
        delta = torch.full((3,), k + 1.0)
        visits, faded = job.memory or (0, 0)
        return Reply(
            client=self.clients[k],
            upload=Update(delta, torch.full((1,), float(k))),
            memory=Memory(visits + 1, faded),
            velocity=torch.tensor(float(job.round)),
            loss=float(k),
            metrics={"drift": 2.0 * k},
            steps=k + 1,
            gradient_evaluations=2 * (k + 1),
            finite=True,
            update_norm=math.sqrt(3) * (k + 1),
            seconds=0.5,
            worker="desk",
        )

    def evaluate(self, params):
        self.tested.append(params)
        self.events.append(("test", len(self.tested) - 1))
        return Score(len(self.tested) / 100, 1.0, (0.02, None))

    def answer(self, asked, client, memory):
        return asked.question(None, memory, asked.sent)


def spec_of(method=None, **values):
    defaults = {"clients": 4, "sampling_rate": 0.5, "rounds": 3}
    return trial_spec(**{**defaults, "method": method or Plain(), **values})


def play(spec, desk=None, start=None):
    desk = desk or Desk()
    cohort = Cohort(desk.clients, spec.per_round, Layout((), ()))
    begin = start or Snapshot(0, spec.method.init(START, cohort), {})
    return list(run(spec, cohort, InProcess(desk), begin))


def without_seconds(row):
    return {key: value for key, value in row.items() if not key.endswith("_seconds")}


# --- rows ---------------------------------------------------------------------------------------


def test_a_round_of_all_four_clients():
    # the weights move by 1 to 4 with shares of 10 to 40 %: by .1 + .4 + .9 + 1.6 = 3;
    # the loss is 0 to 3 with the same shares: 0 + .2 + .6 + 1.2 = 2
    (finished,) = play(spec_of(sampling_rate=1.0, rounds=1))
    assert without_seconds(finished.row) == {
        "round": 1,
        "accuracy": 0.01,
        "loss": 1.0,
        "class_accuracy": [0.02, None],
        "worst_client_accuracy": 0.02,  # all clients hold the first class only
        "p10_client_accuracy": 0.02,
        "median_client_accuracy": 0.02,
        "train_loss": pytest.approx(2.0),
        "weights_sha256": sha256(torch.full((3,), 3.0)),
        "bytes_up": 4 * BYTES,
        "bytes_down": 4 * BYTES,
        "steps": 1 + 2 + 3 + 4,
        "gradient_evaluations": 20,
        "divergence": None,
        # squared norms 3 * (.1 + .2 * 4 + .3 * 9 + .4 * 16) over that of the mean, 3 * 3 ** 2
        "update_diversity": pytest.approx(10 / 9),
        "metrics": {"drift": 3.0},  # (0 + 2 + 4 + 6) / 4
    }
    assert all(finished.row[f"{name}_seconds"] >= 0 for name in ("train", "aggregate", "evaluate"))


def test_the_aggregated_model_is_the_state_and_is_what_is_tested():
    desk = Desk()
    *_, last = play(spec_of(sampling_rate=1.0, rounds=2), desk)
    assert torch.allclose(last.snapshot.state.params.weights, torch.full((3,), 6.0))
    assert torch.equal(desk.tested[1].weights, last.snapshot.state.params.weights)
    assert last.row["weights_sha256"] == sha256(last.snapshot.state.params.weights)


def test_client_rows_come_in_the_order_drawn():
    spec = spec_of(rounds=4)
    for finished in play(spec):
        number = finished.row["round"]
        picked = select(spec.seed, 4, 2, number - 1)
        assert [row["client"] for row in finished.clients] == picked
        for row in finished.clients:
            k = row["client"]
            assert row == {
                "round": number,
                "client": k,
                "samples": 10 * (k + 1),
                "steps": k + 1,
                "gradient_evaluations": 2 * (k + 1),
                "loss": float(k),
                "update_norm": math.sqrt(3) * (k + 1),
                "bytes_up": BYTES,
                "bytes_down": BYTES,
                "worker": "desk",
                "work_seconds": 0.5,
            }


def test_questions_are_paid_for_where_the_model_is_deployed_not_where_it_is_measured():
    (finished,) = play(spec_of(Asking(), rounds=1))
    row = finished.row
    assert row["bytes_down"] == 2 * BYTES + 4 * 8  # two floats to each of all four clients
    assert row["bytes_up"] == 2 * BYTES + 4 * 20  # five floats from each
    assert row["divergence"] == 4.0
    assert row["metrics"] == {"spread": 0.0, "drift": row["metrics"]["drift"]}


def test_the_server_measures_what_was_sent_and_tests_what_it_deploys():
    desk = Desk()
    first, second = play(spec_of(Asking(), rounds=2, sampling_rate=1.0), desk)
    assert first.row["metrics"]["spread"] == 0.0
    assert second.row["metrics"]["spread"] == pytest.approx(3.0)
    assert desk.tested[0].weights.tolist() == [4.0] * 5
    assert first.row["weights_sha256"] == sha256(first.snapshot.state.params.weights)


def test_a_round_is_tested_once_the_next_one_has_begun():
    class Eager(InProcess):
        def start(self, jobs):
            self.worker.events.append(("start", jobs[0].round))
            return super().start(jobs)

    spec, desk = spec_of(rounds=2, sampling_rate=0.25), Desk()
    cohort = Cohort(desk.clients, 1, Layout((), ()))
    list(run(spec, cohort, Eager(desk), Snapshot(0, State(START), {})))
    assert desk.events == [
        ("start", 0),
        ("work", 0),
        ("start", 1),
        ("test", 0),
        ("work", 1),
        ("test", 1),
    ]


def test_every_second_round_is_tested_and_the_last_always():
    rows = [finished.row for finished in play(spec_of(rounds=5, evaluate_every=2))]
    assert [row["accuracy"] for row in rows] == [None, 0.01, None, 0.02, 0.03]
    assert [row["loss"] is None for row in rows] == [True, False, True, False, False]
    assert all(row["weights_sha256"] for row in rows)


# --- what is kept -------------------------------------------------------------------------------


def test_a_client_gets_its_own_memory_and_momentum_back():
    spec, desk = spec_of(rounds=6), Desk()
    play(spec, desk)
    visits, last_round = {}, {}
    for job in desk.jobs:
        before = visits.get(job.client)
        assert job.memory == (None if before is None else Memory(before, 0))
        velocity = None if job.velocity is None else int(job.velocity)
        assert velocity == last_round.get(job.client)
        visits[job.client] = (before or 0) + 1
        last_round[job.client] = job.round


LONG_ABSENCES = [(k, t) for k in range(4) for t in range(6)]


def expected_fades(spec, rounds):
    """Count the times each client sat out a round right after one in which it took part."""
    picked = [set(select(spec.seed, 4, 2, t)) for t in range(rounds)]
    gone = [k for t in range(1, rounds) for k in picked[t - 1] - picked[t]]
    return {k: gone.count(k) for k in range(4)}


def test_a_client_that_sits_out_fades_once_however_long():
    spec = spec_of(Fading(), rounds=8)
    for finished in play(spec):
        expected = expected_fades(spec, finished.row["round"])
        faded = {k: kept.memory.faded for k, kept in finished.snapshot.kept.items()}
        assert faded == {k: expected[k] for k in faded}
    picked = [set(select(spec.seed, 4, 2, t)) for t in range(8)]
    assert any(k in picked[t] and k not in picked[t + 1] | picked[t + 2] for k, t in LONG_ABSENCES)
    assert max(expected.values()) > 1


def test_earlier_snapshots_are_not_changed_by_later_rounds():
    spec = spec_of(Fading(), rounds=6)
    finished = play(spec)
    for number, one in enumerate(finished, start=1):
        alone = play(spec_of(Fading(), rounds=number))[-1].snapshot
        assert {k: kept.memory for k, kept in one.snapshot.kept.items()} == {
            k: kept.memory for k, kept in alone.kept.items()
        }
        assert torch.equal(one.snapshot.state.params.weights, alone.state.params.weights)


@pytest.mark.parametrize("done", [1, 2, 3, 4, 5])
def test_going_on_from_a_snapshot_is_the_same_as_not_stopping(done):
    spec = spec_of(Fading(), rounds=5)
    whole = play(spec)
    rest = play(spec, start=whole[done - 1].snapshot)
    assert len(rest) == 5 - done
    for one, other in zip(whole[done:], rest, strict=True):
        assert one.clients == other.clients
        assert one.row["weights_sha256"] == other.row["weights_sha256"]
        assert {k: v.memory for k, v in one.snapshot.kept.items()} == {
            k: v.memory for k, v in other.snapshot.kept.items()
        }


# --- divergence ---------------------------------------------------------------------------------


class Broken(Desk):
    """Something is not finite from the second round on."""

    def __init__(self, where):
        super().__init__()
        self.where = where

    def work(self, job):
        done = super().work(job)
        if job.round < 1:
            return done
        if self.where == "upload":
            return done._replace(finite=False)
        if self.where == "sum":  # each is finite, their mean overflows only in the server
            return done._replace(upload=done.upload._replace(delta=torch.full((3,), math.inf)))
        return done

    def evaluate(self, params):
        score = super().evaluate(params)
        late = len(self.tested) > 1 and self.where == "test"
        return score._replace(loss=math.nan) if late else score


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ("upload", "the update of client {first} is not finite in round 2"),
        ("sum", "the aggregated model is not finite in round 2"),
        ("test", "the test loss is not finite in round 2"),
    ],
)
def test_a_number_that_is_not_finite_ends_the_trial_with_its_rows(where, words):
    spec, desk = spec_of(rounds=4), Broken(where)
    cohort = Cohort(desk.clients, 2, Layout((), ()))
    rows, trial = [], run(spec, cohort, InProcess(desk), Snapshot(0, State(START), {}))
    with pytest.raises(Diverged) as stop:
        rows.extend(finished.row for finished in trial)
    assert str(stop.value) == words.format(first=select(spec.seed, 4, 2, 1)[0])
    assert stop.value.row["round"] == 2
    assert [row["round"] for row in rows] == [1]
