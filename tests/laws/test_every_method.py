"""What must hold for every method, whatever it does."""

import ast
import copy
import dataclasses
import inspect
import os
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from fedgps_ray import methods
from fedgps_ray.data.datasets import NO_SOURCE
from fedgps_ray.data.partition import class_counts
from fedgps_ray.methods import METHODS, about, title
from fedgps_ray.methods.base import About, Turn
from fedgps_ray.rounds.loop import Snapshot, run
from fedgps_ray.rounds.pool import NOTHING, InProcess, Kept
from fedgps_ray.rounds.selection import schedule
from fedgps_ray.rounds.trial import run_trial
from fedgps_ray.rounds.worker import Asked, Job, Worker, prepare
from fedgps_ray.spec import ExecutionSpec, trial_spec
from fedgps_ray.tensors import all_finite, leaves
from fedgps_ray.titles import TITLES

ROUNDS = 3
FASTER = {"ccvr": {"virtual_features": 20}}  # a quantity, not another way of working
FILES = sorted(Path(inspect.getfile(methods)).parent.glob("*.py"))


def tiny_spec(method, **values):
    """Four clients of which two take part, 8 x 8 images, a model with BatchNorm."""
    data = {"num_classes": 3, "image_size": 8, "channels": 1, "train_size": 60, "test_size": 15}
    defaults = {
        "dataset": {"name": "synthetic", **data},
        "partition": {"alpha": 0.5, "min_size": 6},
        "model": "convnet",
        "clients": 4,
        "sampling_rate": 0.5,
        "rounds": ROUNDS,
        "batch_size": 8,
        "surrogate": {"per_class": 4, "batch_size": 6},
    }
    options = {"name": method, **FASTER.get(method, {})}
    return trial_spec(method=options, **{**defaults, **values})


def hashes(folder):
    (path,) = folder.glob("trials/*/rounds.parquet")
    return pd.read_parquet(path)["weights_sha256"].tolist()


# --- runs ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module", autouse=True)
def no_waiting_for_the_disk():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)
        yield


@pytest.fixture(scope="module", params=METHODS)
def whole(request, tmp_path_factory):
    """Run a method without a stop; leave a copy of its folder as it was after each round."""
    spec, base = tiny_spec(request.param), tmp_path_factory.mktemp(request.param)
    execution = ExecutionSpec(out=base / "whole", checkpoint_seconds=0)
    for number, _ in enumerate(run_trial(spec, execution)):
        shutil.copytree(base / "whole", base / f"after {number}")
    return spec, base


@pytest.mark.parametrize("done", range(ROUNDS + 1))
def test_stopped_after_any_round_it_goes_on_as_if_it_had_not_been(whole, done):
    """Without a round done this is the law that two runs give the same weights."""
    spec, base = whole
    folder = base / f"after {done}"
    started, *rows = run_trial(spec, ExecutionSpec(out=folder))
    assert (started.rounds_done, started.problems) == (done, [])
    assert [row["round"] for row in rows] == list(range(done + 1, ROUNDS + 1))
    assert hashes(folder) == hashes(base / "whole")
    model, expected = (
        next(path.glob("trials/*/model.safetensors")).read_bytes()
        for path in (folder, base / "whole")
    )
    assert model == expected


def test_every_round_changes_the_weights(whole):
    found = hashes(whole[1] / "whole")
    assert len(set(found)) == ROUNDS


# --- values go in, values come out --------------------------------------------------------------


class Watched:
    """Plays rounds by hand and holds on to a copy of everything that must not change."""

    def __init__(self, spec):
        self.spec, self.method = spec, spec.method
        self.worker = Worker(prepare(spec, NO_SOURCE))
        self.pool, self.kept, self.watched = InProcess(self.worker), {}, []
        self.state = self.watch(self.method.init(self.worker.initial(), self.worker.cohort()))
        self.picked = schedule(spec, [client.num_examples for client in self.worker.clients])

    def watch(self, value):
        self.watched.append((value, copy.deepcopy(value)))
        return value

    def check(self, after):
        for value, before in self.watched:
            assert same(value, before), f"{type(value).__name__} was changed by {after}"

    def play(self, t):
        turn = Turn(t, tuple(self.worker.clients[k] for k in self.picked[t]), rng_of(t))
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
        self.finish(turn, replies)

    def finish(self, turn, replies):
        def ask(question, sent):
            answers = self.pool.ask(Asked(turn.round, question, self.watch(sent)), self.kept)
            return self.watch(answers)

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


def rng_of(t):
    return np.random.default_rng(t)


def same(left, right):
    """Equal to the last bit."""
    left, right = list(leaves(left)), list(leaves(right))
    return len(left) == len(right) and all(map(same_leaf, left, right))


def same_leaf(left, right):
    if isinstance(left, torch.Tensor):
        return left.dtype == right.dtype and torch.equal(left, right)
    return left == right


@pytest.mark.parametrize("name", METHODS)
def test_nothing_is_changed_in_place(name):
    game = Watched(tiny_spec(name, rounds=3))
    for t in range(3):
        game.play(t)
    assert len(game.watched) > 3 * 4


# --- hard data ----------------------------------------------------------------------------------


def hard(setup):
    """Share the data out so that batches of one, a client of one and missing classes occur."""
    labels = setup.data.y_train
    zeros, others = np.flatnonzero(labels == 0), np.flatnonzero(labels != 0)
    parts = (
        zeros[:9],  # one class only; batches of 8 and 1
        others[:1],  # one sample only
        others[1:18],  # lacks class 0; batches of 8, 8 and 1
        np.concatenate([zeros[9:], others[18:]]),
    )
    if setup.spec.clients == 1:
        parts = (others[:17],)
    counts = class_counts(parts, labels, setup.data.num_classes)
    return setup._replace(parts=parts, counts=counts)


@pytest.mark.parametrize("name", METHODS)
def test_it_survives_single_samples_and_missing_classes(name):
    spec = tiny_spec(name, sampling_rate=1.0, rounds=2, local_epochs=2)
    worker = Worker(hard(prepare(spec, NO_SOURCE)))
    state = spec.method.init(worker.initial(), worker.cohort())
    found = list(run(spec, worker.cohort(), InProcess(worker), Snapshot(0, state, {})))
    assert [finished.row["round"] for finished in found] == [1, 2]
    assert all_finite(spec.method.global_params(found[-1].snapshot.state))
    assert all(np.isfinite([one.row["loss"], one.row["train_loss"]]).all() for one in found)
    steps = {row["client"]: row["steps"] for row in found[0].clients}
    if spec.clients == 4:
        assert [steps[k] for k in range(3)] == [2 * 2, 2 * 1, 2 * 3]


# --- how a method is written --------------------------------------------------------------------


@pytest.mark.parametrize("name", METHODS)
def test_every_default_is_valid(name):
    kind = METHODS[name]
    defaults = dataclasses.asdict(kind())
    assert kind(**defaults) == kind()
    for preset in ("default", *kind.presets):
        spec = trial_spec(method={"name": name, "preset": preset})
        assert isinstance(spec.method, kind)


@pytest.mark.parametrize("name", METHODS)
def test_a_misspelt_hyperparameter_is_an_error(name):
    with pytest.raises(ValueError, match="no_such_option"):
        METHODS[name](no_such_option=1)


@pytest.mark.parametrize("name", METHODS)
def test_what_a_method_tells_about_itself(name):
    kind = METHODS[name]
    assert (kind.__doc__ or "").strip()
    assert "__doc__" in vars(kind)  # its own words, not its parent's
    assert isinstance(about(kind), About)


@pytest.mark.parametrize("name", TITLES)
def test_a_published_method_tells_all_and_has_its_published_name(name):
    assert all(about(METHODS[name]))
    assert title(METHODS[name]) == TITLES[name]


def tree_of(path):
    return ast.parse(path.read_text())


def imported(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_method_knows_neither_ray_nor_the_runtime(path):
    roots = {".".join(name.split(".")[:2]) for name in imported(tree_of(path))}
    rooms = {f"fedgps_ray.{room}" for room in ("rounds", "cluster", "spec", "results")}
    refused = {"ray", "random", *rooms}
    assert not refused & (roots | {root.partition(".")[0] for root in roots})


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_method_has_no_global_state(path):
    tree = tree_of(path)
    assert not [n for n in ast.walk(tree) if isinstance(n, ast.Global)]
    mutable = [
        target.id
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.List | ast.Dict | ast.Set)
        for target in node.targets
    ]
    assert mutable in ([], ["__all__"])


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_method_does_not_ask_for_a_name(path):
    names = {*METHODS, *(kind.__name__ for kind in METHODS.values())}
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Compare):
            found = {n.value for n in ast.walk(node) if isinstance(n, ast.Constant)}
            assert not names & {value for value in found if isinstance(value, str)}
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "isinstance":
            found = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
            assert not names & found


DRAWS = {"rand", "randn", "randint", "randperm", "normal", "bernoulli", "multinomial", "rand_like"}
DRAWS |= {"randn_like", "randint_like", "manual_seed", "seed", "dropout"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_method_draws_from_the_stream_it_is_given(path):
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner = ast.unparse(node.func.value)
            draws = node.func.attr in DRAWS and owner in ("torch", "F", "np.random")
            given = any(keyword.arg == "generator" for keyword in node.keywords)
            assert given or not draws, f"{ast.unparse(node)} reads a global generator"
