"""compile = true: which batches meet compiled code, and that trials repeat with it."""

import importlib.util
import shutil
import sysconfig

import pandas as pd
import pytest
import torch
from torch import nn

from fedgps_ray.data.datasets import NO_SOURCE
from fedgps_ray.errors import UserError
from fedgps_ray.models import Outside
from fedgps_ray.rounds.setup import prepare
from fedgps_ray.rounds.trial import run_trial
from fedgps_ray.rounds.worker import Job, Worker
from fedgps_ray.spec import ExecutionSpec, trial_spec
from fedgps_ray.training import compiled

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
BATCH, NOISE = 8, 6


def tiny_spec(method="fedavg", **values):
    data = {"num_classes": 3, "image_size": 8, "channels": 1, "train_size": 60, "test_size": 15}
    defaults = {
        "dataset": {"name": "synthetic", **data},
        "partition": {"alpha": 0.5, "min_size": 6},
        "model": "convnet",
        "clients": 4,
        "rounds": 3,
        "batch_size": BATCH,
        "surrogate": {"per_class": 4, "batch_size": NOISE},
        "compile": True,
    }
    return trial_spec(method=method, **{**defaults, **values})


@pytest.fixture
def seen(monkeypatch):
    """Let nothing be compiled; return the sizes of the batches that would have met the code."""
    sizes = []

    def compile_(part, **_):
        def code(x):
            sizes.append(len(x))
            return part(x)

        return code

    monkeypatch.setattr(torch, "compile", compile_)
    monkeypatch.setattr(compiled, "check_compiler", lambda device: None)
    return sizes


@pytest.mark.parametrize(
    ("method", "rows"), [("fedavg", BATCH), ("fedasam", BATCH), ("fedgps", BATCH + NOISE)]
)
def test_steps_on_full_batches_meet_compiled_code(method, rows, seen):
    worker = Worker(prepare(tiny_spec(method), NO_SOURCE))
    state = worker.spec.method.init(worker.initial(), worker.cohort())
    client = max(worker.clients, key=lambda one: one.num_examples)
    turn = type("Turn", (), {"clients": [client], "round": 0, "rng": None})
    (message,) = worker.spec.method.send(state, turn)
    reply = worker.work(Job(client.id, 0, message))
    full = client.num_examples // BATCH
    assert full >= 1
    assert set(seen) == {rows}
    assert len(seen) == full * (reply.gradient_evaluations // reply.steps)


def test_neither_tests_nor_short_batches_meet_it(seen):
    worker = Worker(prepare(tiny_spec(), NO_SOURCE))
    worker.initial()
    network, x = worker.network, torch.randn(BATCH, 1, 8, 8)
    network.model.train()
    network.features(x[:-1])
    with torch.no_grad():
        network.features(x)
    network.model.eval()
    network.features(x)
    assert seen == []
    network.model.train()
    network.features(x)
    assert seen == [BATCH]


# --- the setting --------------------------------------------------------------------------------


def test_it_is_part_of_the_id_and_off_by_default():
    plain = tiny_spec(compile=False)
    assert "compile" not in plain.identity
    assert tiny_spec().trial_id != plain.trial_id


def test_models_from_outside_are_refused():
    with pytest.raises(UserError, match="compile: is for built-in models only"):
        tiny_spec(model=Outside(nn.Flatten, "net.py:Net"))


# --- the compiler -------------------------------------------------------------------------------


def test_without_a_compiler_the_first_step_says_what_to_install(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    worker = Worker(prepare(tiny_spec(), NO_SOURCE))
    worker.initial()
    worker.network.model.train()
    with pytest.raises(UserError, match=r"no C\+\+ compiler no-such-compiler .*install g\+\+"):
        worker.network.features(torch.randn(BATCH, 1, 8, 8))


def test_without_pythons_header_files_too(monkeypatch, tmp_path):
    monkeypatch.setenv("CXX", "true")
    monkeypatch.setattr(sysconfig, "get_path", lambda _: str(tmp_path))
    with pytest.raises(UserError, match=r"header files .*python3-dev"):
        compiled.check_compiler(CPU)
    (tmp_path / "Python.h").touch()
    compiled.check_compiler(CPU)


def test_a_gpu_needs_triton(monkeypatch, tmp_path):
    monkeypatch.setenv("CXX", "true")
    monkeypatch.setattr(sysconfig, "get_path", lambda _: str(tmp_path))
    (tmp_path / "Python.h").touch()
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(UserError, match=r"Triton .*pip install triton"):
        compiled.check_compiler(CUDA)


# --- compiled for real --------------------------------------------------------------------------


def hashes(spec, folder, rounds=None):
    """Run a trial, or its first rounds; return the hashes and losses of those that are done."""
    events = run_trial(spec, ExecutionSpec(out=folder, actors=0, checkpoint_seconds=0))
    for _, _ in zip(range(10**6 if rounds is None else rounds + 1), events, strict=False):
        pass
    events.close()
    rows = pd.read_parquet(folder / "trials" / spec.trial_id / "rounds.parquet")
    return rows[["weights_sha256", "train_loss"]].values.tolist()


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("method", ["fedavg", "fedgps"])
def test_compiled_trials_repeat_and_resume(method, tmp_path, monkeypatch):
    made, really = [], torch.compile
    monkeypatch.setattr(torch, "compile", lambda *a, **k: made.append(k) or really(*a, **k))
    spec = tiny_spec(method)
    whole = hashes(spec, tmp_path / "whole")
    hashes(spec, tmp_path / "stopped", rounds=2)
    assert hashes(spec, tmp_path / "stopped") == whole
    assert len(made) == 3  # once for each start
    plain = hashes(tiny_spec(method, compile=False), tmp_path / "plain")
    assert whole[0][1] == pytest.approx(plain[0][1], rel=1e-4)
