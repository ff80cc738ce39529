"""No symbolic link leads out of a results folder: nothing outside is emptied, moved or deleted."""

import json
import os
import shutil

import pytest
import torch

from fedgps_ray.errors import UserError
from fedgps_ray.loggers import following
from fedgps_ray.references import Code, Found
from fedgps_ray.results import code, files
from fedgps_ray.results.mirror import Mirror
from fedgps_ray.results.moves import aside
from fedgps_ray.results.store import TrialStore
from fedgps_ray.rounds.checkpoint import Saver, load
from fedgps_ray.rounds.loop import Snapshot
from fedgps_ray.rounds.trial import run_trial
from fedgps_ray.spec import ExecutionSpec, trial_spec
from fedgps_ray.sweep.ledger import Ledger
from fedgps_ray.sweep.state import State

SPEC = trial_spec(
    method="fedavg",
    model="mlp",
    dataset={"name": "synthetic", "image_size": 8, "train_size": 40, "test_size": 20},
    partition="iid",
    clients=2,
    rounds=1,
)


@pytest.fixture
def outside(tmp_path):
    """Return a folder of somebody's own, with files that look like ours."""
    folder = tmp_path / "outside"
    folder.mkdir()
    for name in (
        "thesis.txt",
        "round-000001.json",
        "weights.safetensors",
        ".lock",
        "trial.json",
        ".a.part",
    ):
        (folder / name).write_text(f"precious {name}")
    return folder


@pytest.fixture
def untouched(outside):
    """Check at the end that all outside is as it was."""
    before = content(outside)
    yield
    assert content(outside) == before


def content(folder):
    return {path.name: path.read_text() for path in folder.iterdir() if path.is_file()}


@pytest.fixture
def results(tmp_path):
    folder = tmp_path / "results"
    folder.mkdir()
    return folder


def test_a_lock_that_is_a_link_is_refused(results, outside, untouched):
    (results / ".lock").symlink_to(outside / "thesis.txt")
    with pytest.raises(UserError, match=r"\.lock is a symbolic link"), files.lock(results):
        pass
    assert not files.is_locked(results)


def test_a_lock_is_not_emptied(results):
    (results / ".lock").write_text("somebody's")
    with files.lock(results):
        pass
    assert (results / ".lock").read_text() == "somebody's"


def test_a_lock_that_is_a_pipe_does_not_hang(results):
    os.mkfifo(results / ".lock")
    with pytest.raises(UserError, match="is not a file"), files.lock(results):
        pass


@pytest.mark.parametrize("place", ["trials", "trials/ID"])
def test_a_trials_folder_that_is_a_link_is_refused(results, outside, untouched, place):
    link = results / place.replace("ID", SPEC.trial_id)
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(outside)
    with pytest.raises(UserError, match="is a symbolic link"):
        list(run_trial(SPEC, ExecutionSpec(out=results, actors=0)))
    assert sorted(path.name for path in outside.iterdir()) == sorted(content(outside))


def test_checkpoints_behind_a_link_are_neither_read_nor_written(results, outside, untouched):
    (results / "checkpoint").symlink_to(outside)
    with pytest.raises(UserError, match="checkpoint is a symbolic link"):
        load(results / "checkpoint", list)
    with pytest.raises(UserError, match="checkpoint is a symbolic link"):
        Saver(results / "checkpoint", lambda handle: handle).save(Snapshot(2, torch.zeros(2), {}))


def test_a_finished_file_that_is_a_link_is_replaced_itself(results, outside, untouched):
    (results / "live.json").symlink_to(outside / "thesis.txt")
    (results / ".live.json.part").symlink_to(outside / "thesis.txt")
    State("x", 1, 1).save(results)
    assert not (results / "live.json").is_symlink()


@pytest.mark.parametrize("place", ["trials", "trials/ID"])
def test_a_damaged_trial_behind_a_link_is_not_moved(tmp_path, results, place):
    store = TrialStore(tmp_path / "theirs", SPEC)
    store.open(ExecutionSpec(out=tmp_path / "theirs"))
    name = place.replace("ID", SPEC.trial_id)
    (results / name).parent.mkdir(exist_ok=True)
    (results / name).symlink_to(tmp_path / "theirs" / name)
    with pytest.raises(UserError, match="is a symbolic link"):
        aside(results / "trials" / SPEC.trial_id, results / "quarantine")
    assert (store.folder / "trial.json").exists()


def test_a_quarantine_that_is_a_link_is_refused(results, outside, untouched):
    store = TrialStore(results, SPEC)
    store.open(ExecutionSpec(out=results))
    (store.folder / "trial.json").write_text("{")
    (results / "quarantine").symlink_to(outside)
    with pytest.raises(UserError, match="quarantine is a symbolic link"):
        Ledger(results, [SPEC]).quarantine()
    assert store.folder.exists()


def test_a_quarantine_may_lack_a_number(results):
    store = TrialStore(results, SPEC)
    store.open(ExecutionSpec(out=results))
    (store.folder / "trial.json").write_text("{")
    (results / "quarantine" / f"{SPEC.trial_id}-2").mkdir(parents=True)
    assert [path.name for path in Ledger(results, [SPEC]).quarantine()] == [f"{SPEC.trial_id}-1"]


def test_a_link_is_not_uploaded(results, outside, untouched, tmp_path):
    store = TrialStore(results, SPEC)
    store.open(ExecutionSpec(out=results))
    (store.folder / "model.safetensors").symlink_to(outside / "thesis.txt")
    with pytest.raises(UserError, match="is a symbolic link"):
        Mirror((tmp_path / "bucket").as_uri()).put(results, f"trials/{SPEC.trial_id}")
    assert not (tmp_path / "bucket" / "trials" / SPEC.trial_id / "model.safetensors").exists()


@pytest.mark.parametrize("place", ["trials", "trials/ID", "trials/.ID.fetched"])
def test_a_download_does_not_go_through_a_link(results, outside, untouched, tmp_path, place):
    there = tmp_path / "there"
    store = TrialStore(there, SPEC)
    store.open(ExecutionSpec(out=there))
    link = results / place.replace("ID", SPEC.trial_id)
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(outside)
    with pytest.raises(UserError, match="is a symbolic link"):
        Mirror(there.as_uri()).fetch(results, f"trials/{SPEC.trial_id}")


def test_finished_trials_with_links_are_not_borrowed(results, outside, untouched, tmp_path):
    other = tmp_path / "other"
    list(run_trial(SPEC, ExecutionSpec(out=other, actors=0)))
    (other / "trials" / SPEC.trial_id / "notes.txt").symlink_to(outside / "thesis.txt")
    with pytest.raises(UserError, match="is a symbolic link"):
        Ledger(results, [SPEC]).borrow([other])


def test_a_trial_with_a_pipe_in_it_is_not_borrowed(results, tmp_path):
    other = tmp_path / "other"
    list(run_trial(SPEC, ExecutionSpec(out=other, actors=0)))
    os.mkfifo(other / "trials" / SPEC.trial_id / "pipe")
    with pytest.raises(UserError, match="pipe cannot be copied"):
        Ledger(results, [SPEC]).borrow([other])


def test_a_trial_folder_deleted_in_mid_run_is_told_and_stays_deleted(results):
    spec = trial_spec(**{**SPEC.model_dump(mode="json"), "rounds": 50})
    events = run_trial(spec, ExecutionSpec(out=results, actors=0, checkpoint_seconds=0))
    next(events), next(events)
    folder = results / "trials" / spec.trial_id
    shutil.rmtree(folder)
    with pytest.raises(UserError, match="was deleted or moved while"):
        list(events)
    assert not folder.exists()


def test_a_pipe_in_place_of_trial_json_does_not_hang(results):
    store = TrialStore(results, SPEC)
    store.make()
    os.mkfifo(store.folder / "trial.json")
    with pytest.raises(UserError, match="is damaged"):
        store.ended()


def test_a_manifest_names_no_file_elsewhere(results, outside, untouched):
    saver = Saver(results / "checkpoint", lambda handle: handle)
    saver.save(Snapshot(1, torch.zeros(2), {}))
    path = results / "checkpoint" / "round-000001.json"
    manifest = json.loads(path.read_text())
    manifest["files"] = {"../../outside/weights.safetensors": "0" * 64}
    files.write_json(path, manifest)
    read, problems = load(results / "checkpoint", list)
    assert read is None
    assert "names a file '../../outside" in problems[0]


@pytest.mark.parametrize("name", ["code", "code/0123456789ab", "code/0123456789ab/inner"])
def test_code_is_not_kept_behind_a_link(results, outside, untouched, name):
    link = results / name
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(outside)
    found = Found(Code("m.py:M", "inner/m.py:M", "0123456789ab" * 5), {"inner/m.py": "M = 1"})
    with pytest.raises(UserError, match="is a symbolic link"):
        code.keep(results, [found])
    assert sorted(path.name for path in outside.rglob("*.py")) == []


@pytest.mark.parametrize("name", ["logs", "logs/csv", "logs/csv/own.csv"])
def test_logs_are_not_written_behind_a_link(results, outside, untouched, name):
    link = results / name
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(outside / "thesis.txt" if name.endswith(".csv") else outside)
    with (
        pytest.raises(UserError, match="is a symbolic link"),
        following(["csv"], results, print),
    ):
        pass
    assert not (outside / "csv").exists()


def test_drafts_are_not_removed_behind_a_link(results, outside, untouched):
    trial = results / "trials" / SPEC.trial_id
    trial.mkdir(parents=True)
    (trial / "checkpoint").symlink_to(outside)
    with pytest.raises(UserError, match="symbolic link"):
        list(run_trial(SPEC, ExecutionSpec(out=results, actors=0)))


def test_a_folder_named_like_a_draft_is_left_alone(results):
    (results / "trials" / SPEC.trial_id / ".q.part").mkdir(parents=True)
    assert list(run_trial(SPEC, ExecutionSpec(out=results, actors=0)))


def test_a_log_that_is_a_hard_link_is_refused(results, outside, untouched):
    (results / "logs" / "csv").mkdir(parents=True)
    os.link(outside / "thesis.txt", results / "logs" / "csv" / "own.csv")
    with pytest.raises(UserError, match="second name"), following(["csv"], results, print):
        pass


def test_code_is_not_looked_for_behind_a_link(results, outside):
    asked = Code("m.py:M", "m.py:M", "0" * 64)
    (results / "code").symlink_to(outside)
    with pytest.raises(UserError, match="symbolic link"):
        code._kept(asked, [results])
