"""Precisions and devices as settings: what they compute, and that trials repeat with them."""

import json
import os
import types

import pandas as pd
import pytest
import torch
from safetensors.torch import load_file

from fedgps_ray.data.datasets import NO_SOURCE
from fedgps_ray.errors import UserError
from fedgps_ray.methods import METHODS
from fedgps_ray.models import MODELS
from fedgps_ray.rounds.setup import prepare
from fedgps_ray.rounds.trial import run_trial
from fedgps_ray.rounds.worker import Worker
from fedgps_ray.spec import ExecutionSpec, trial_spec
from fedgps_ray.training import arithmetic

FASTER = {"ccvr": {"virtual_features": 20}}
CUDA = torch.device("cuda")


def tiny_spec(method="fedavg", **values):
    data = {"num_classes": 3, "image_size": 8, "channels": 1, "train_size": 60, "test_size": 15}
    defaults = {
        "dataset": {"name": "synthetic", **data},
        "partition": {"alpha": 0.5, "min_size": 6},
        "model": "convnet",
        "clients": 4,
        "sampling_rate": 0.5,
        "rounds": 3,
        "batch_size": 8,
        "surrogate": {"per_class": 4, "batch_size": 6},
    }
    options = {"name": method, **FASTER.get(method, {})}
    return trial_spec(method=options, **{**defaults, **values})


@pytest.fixture(scope="module", autouse=True)
def no_waiting_for_the_disk():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)
        yield


def run(spec, folder, rounds=None):
    events = run_trial(spec, ExecutionSpec(out=folder, actors=0, checkpoint_seconds=0))
    for _, _ in zip(range(10**6 if rounds is None else rounds + 1), events, strict=False):
        pass
    events.close()


def rows(folder):
    (path,) = folder.glob("trials/*/rounds.parquet")
    return pd.read_parquet(path)


# --- bf16 ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_in_bf16_every_method_trains_resumes_and_repeats(method, tmp_path):
    spec = tiny_spec(method, precision="bf16")
    run(spec, tmp_path / "whole")
    run(spec, tmp_path / "stopped", rounds=2)
    run(spec, tmp_path / "stopped")
    run(tiny_spec(method, rounds=1), tmp_path / "float32")
    whole, stopped = (rows(tmp_path / name) for name in ("whole", "stopped"))
    assert whole["weights_sha256"].tolist() == stopped["weights_sha256"].tolist()
    assert whole["loss"].tolist() == stopped["loss"].tolist()
    plain = rows(tmp_path / "float32")
    assert whole["weights_sha256"][0] != plain["weights_sha256"][0]
    assert whole["train_loss"][0] == pytest.approx(plain["train_loss"][0], rel=0.05)
    (model,) = tmp_path.glob("whole/trials/*/model.safetensors")
    assert {tensor.dtype for tensor in load_file(model).values()} == {torch.float32}


@pytest.mark.parametrize("name", MODELS)
def test_in_bf16_every_model_gives_features_and_logits_of_single_precision(name):
    size = {"num_classes": 3, "image_size": 32, "channels": 3, "train_size": 8, "test_size": 4}
    spec = tiny_spec(
        model=name, precision="bf16", dataset={"name": "synthetic", **size}, partition="iid"
    )
    worker = Worker(prepare(spec, NO_SOURCE))
    worker.initial()
    batch = next(worker.local(0, 0, None).examples())
    with worker.network.casting():
        products = (batch.x.flatten(1) @ batch.x.flatten(1).T).dtype
    features = worker.network.features(batch.x)
    logits = worker.network.head(features)
    assert products == torch.bfloat16
    assert {features.dtype, logits.dtype} == {torch.float32}
    # values of eight bits, widened: the last sixteen bits of each are zero
    assert not (logits.detach().view(torch.int32) & 0xFFFF).any()
    torch.autograd.backward(logits.square().sum())
    assert worker.network.grads.dtype == torch.float32
    assert worker.network.grads.count_nonzero() > 0.2 * len(worker.network.grads)


# --- settings -----------------------------------------------------------------------------------


def test_only_other_devices_and_precisions_change_a_trials_id():
    plain = tiny_spec()
    assert plain.trial_id == tiny_spec(device="cpu", precision="float32").trial_id
    assert not {"device", "precision", "deterministic"} & plain.identity.keys()
    others = [
        tiny_spec(precision="bf16"),
        tiny_spec(device="cuda"),
        tiny_spec(device="cuda", precision="tf32"),
        tiny_spec(device="cuda", deterministic=False),
    ]
    assert len({spec.trial_id for spec in (plain, *others)}) == 5


@pytest.mark.parametrize(
    ("values", "told"),
    [({"precision": "tf32"}, "a mode of GPUs"), ({"deterministic": False}, "is for device cuda")],
)
def test_what_needs_a_gpu_is_refused_for_the_cpu(values, told):
    with pytest.raises(UserError, match=told):
        tiny_spec(**values)


def test_trial_json_says_on_what_it_was_computed(tmp_path):
    run(tiny_spec(rounds=1), tmp_path)
    (path,) = tmp_path.glob("trials/*/trial.json")
    info = json.loads(path.read_text())
    assert info["computed_on"] == [{"device": "cpu"}]
    assert (info["spec"]["device"], info["spec"]["deterministic"]) == ("cpu", True)


# --- the settings of a process that uses a GPU --------------------------------------------------


@pytest.fixture
def flags(monkeypatch):
    """Let PyTorch's settings be undone, and return a function that reads them."""
    monkeypatch.delenv(arithmetic.WORKSPACE, raising=False)
    cuda, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    before = (cuda.allow_tf32, cudnn.allow_tf32, cudnn.deterministic, cudnn.benchmark)
    filled = torch.utils.deterministic.fill_uninitialized_memory
    yield lambda: {
        "tf32": (cuda.allow_tf32, cudnn.allow_tf32),
        "cudnn": (cudnn.deterministic, cudnn.benchmark),
        "algorithms": torch.are_deterministic_algorithms_enabled(),
        "workspace": os.environ.get(arithmetic.WORKSPACE),
    }
    torch.use_deterministic_algorithms(False)
    torch.utils.deterministic.fill_uninitialized_memory = filled
    cuda.allow_tf32, cudnn.allow_tf32, cudnn.deterministic, cudnn.benchmark = before


def test_float32_is_really_float32_and_repeats(flags):
    arithmetic.settle(CUDA, "float32", True)
    assert flags() == {
        "tf32": (False, False),
        "cudnn": (True, False),
        "algorithms": True,
        "workspace": ":4096:8",
    }


def test_tf32_and_speed_are_taken_back_by_the_next_trial_of_an_actor(flags):
    arithmetic.settle(CUDA, "tf32", False)
    fast = flags()
    assert (fast["tf32"], fast["cudnn"], fast["algorithms"]) == ((True, True), (False, True), False)
    assert fast["workspace"] == ":4096:8"  # CUDA reads it once: a later trial may need it
    arithmetic.settle(CUDA, "float32", True)
    assert (flags()["tf32"], flags()["algorithms"]) == ((False, False), True)


def test_the_cpu_needs_no_settings(flags):
    before = flags()
    arithmetic.settle(torch.device("cpu"), "float32", True)
    assert flags() == before


@pytest.mark.parametrize(("share", "limits"), [(0.25, [0.25]), (1.0, []), (2.0, []), (0.0, [])])
def test_a_share_of_a_gpu_is_a_limit_of_its_memory(share, limits, monkeypatch):
    told = []
    monkeypatch.setattr(
        torch.cuda, "set_per_process_memory_fraction", lambda part, device: told.append(part)
    )
    arithmetic.limit_memory(CUDA, share)
    arithmetic.limit_memory(torch.device("cpu"), share)
    assert told == limits


def test_a_gpu_is_told_by_its_name(monkeypatch):
    fake = types.SimpleNamespace(get_device_name=lambda device: "NVIDIA A100")
    monkeypatch.setattr(torch, "cuda", fake)
    told = arithmetic.facts(CUDA)
    assert told["device"] == "NVIDIA A100"
    assert told.keys() == {"device", "cuda", "tf32", "deterministic"}
