"""What clients keep is let go of once it is in a checkpoint, and nothing else changes."""

import json

import pytest
import torch

from fedgps_ray.rounds import checkpoint
from fedgps_ray.rounds import trial as trial_module
from fedgps_ray.rounds.checkpoint import Saver
from fedgps_ray.rounds.loop import Snapshot
from fedgps_ray.rounds.pool import Kept
from fedgps_ray.rounds.trial import run_trial
from fedgps_ray.spec import ExecutionSpec, trial_spec

DATA = {"name": "synthetic", "num_classes": 3, "image_size": 8, "channels": 1}
SMALL = {
    "dataset": {**DATA, "train_size": 60, "test_size": 15},
    "partition": {"alpha": 0.5, "min_size": 6},
    "model": "mlp",
    "clients": 4,
    "rounds": 4,
    "batch_size": 8,
    "surrogate": {"per_class": 4, "batch_size": 6},
    "optimizer": {"client_momentum": "persist"},
}
METHODS = ("fedavg", "scaffold", "fedgps", "fedgps_cf", "fedlesam", "nucfl")


@pytest.fixture
def eager(monkeypatch):
    """Write a checkpoint after each round, and map whatever it holds."""
    monkeypatch.setattr(trial_module, "MOST_UNSAVED", -1)
    monkeypatch.setattr(checkpoint, "WORTH_MAPPING", 0)


def hashes(out, method, rounds=4):
    """Run some rounds of a trial; return the hash of each."""
    trial = run_trial(trial_spec(method=method, **SMALL), ExecutionSpec(out=out))
    next(trial)
    rows = [next(trial)["weights_sha256"] for _ in range(rounds)]
    trial.close()
    return rows


@pytest.mark.parametrize("method", METHODS)
def test_mapped_values_train_to_the_same_bits(method, tmp_path, eager, monkeypatch):
    mapped = hashes(tmp_path / "mapped", method)
    monkeypatch.setattr(checkpoint, "_let_go", lambda *_: None)
    assert mapped == hashes(tmp_path / "plain", method)


@pytest.mark.parametrize("method", ["scaffold", "fedgps_cf"])
def test_a_trial_that_let_go_is_resumed_to_the_same_bits(method, tmp_path, eager):
    whole = hashes(tmp_path / "whole", method)
    begun = hashes(tmp_path / "parts", method, rounds=2)
    trial = run_trial(trial_spec(method=method, **SMALL), ExecutionSpec(out=tmp_path / "parts"))
    assert next(trial).rounds_done >= 2
    rest = [row["weights_sha256"] for row in trial]
    assert rest
    assert (begun + rest)[-1] == whole[-1]
    assert whole[-len(rest) :] == rest


def test_much_that_is_kept_is_saved_before_its_time(tmp_path, monkeypatch):
    monkeypatch.setattr(trial_module, "MOST_UNSAVED", 20_000)
    saved = []
    monkeypatch.setattr(
        Saver, "save", lambda self, snapshot, rows=None: saved.append(snapshot.rounds_done)
    )
    hashes(tmp_path, "fedavg", rounds=3)
    assert saved[:2] == [1, 2]  # an mlp and its momentum are larger than the limit


def lies_in(tensor, path):
    """Say whether a tensor's memory is a part of a file."""
    with open("/proc/self/maps") as maps:
        ranges = [line.split()[0].split("-") for line in maps if line.rstrip().endswith(str(path))]
    return any(int(start, 16) <= tensor.data_ptr() < int(end, 16) for start, end in ranges)


def saver_of(folder):
    folder.mkdir(exist_ok=True)
    return Saver(folder, lambda value: value, lets_go=True)


def test_large_tensors_of_clients_lie_in_their_files_afterwards(tmp_path):
    own, shared, small = torch.rand(300_000), torch.rand(400_000), torch.rand(10)
    before = [tensor.clone() for tensor in (own, shared, small)]
    kept = {1: Kept([own, small], shared), 2: Kept(None, shared)}
    state = torch.rand(500_000)
    place = state.data_ptr()
    saver_of(tmp_path / "checkpoint").save(Snapshot(1, state, kept))
    for tensor, copy in zip((own, shared, small), before, strict=True):
        assert torch.equal(tensor, copy)
    (path,) = (tmp_path / "checkpoint").glob("client-*.safetensors")
    assert lies_in(own, path)
    assert lies_in(shared, path)
    assert not lies_in(small, path)
    assert state.data_ptr() == place


def test_what_is_mapped_is_not_written_again(tmp_path):
    saver, own = saver_of(tmp_path / "checkpoint"), torch.rand(300_000)
    kept = {1: Kept(own, None)}
    saver.save(Snapshot(1, None, kept))
    (path,) = (tmp_path / "checkpoint").glob("client-*.safetensors")
    written = path.stat().st_mtime_ns
    for rounds_done in (2, 3, 4):
        kept = {**kept, 2: Kept(torch.rand(300_000), None)}
        saver.save(Snapshot(rounds_done, None, kept))
    assert path.stat().st_mtime_ns == written
    assert len(list((tmp_path / "checkpoint").glob("client-2-*"))) == 2  # of two checkpoints
    manifest = json.loads((tmp_path / "checkpoint" / "round-000004.json").read_text())
    assert path.name in manifest["files"]


def test_a_file_that_is_deleted_lasts_as_long_as_it_is_mapped(tmp_path):
    saver, own = saver_of(tmp_path / "checkpoint"), torch.ones(300_000)
    saver.save(Snapshot(1, None, {1: Kept(own, None)}))
    for path in (tmp_path / "checkpoint").iterdir():
        path.unlink()
    assert float(own.sum()) == 300_000
