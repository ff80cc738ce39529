"""One trial from its spec to a complete folder, with and without stops on the way."""

import json
import math
import os
import shutil
import subprocess
import sys
import textwrap

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file

from fedgps_ray.data.datasets import NO_SOURCE
from fedgps_ray.errors import CannotWrite, Lost, Stopped, UserError
from fedgps_ray.methods import FedAvg
from fedgps_ray.results import checkpoints, files
from fedgps_ray.results.read import check, read_trial
from fedgps_ray.results.store import RowHash, TrialStore
from fedgps_ray.rounds import trial as trial_module
from fedgps_ray.rounds.pool import InProcess
from fedgps_ray.rounds.setup import prepare
from fedgps_ray.rounds.trial import claimed, run_trial, run_with_pool
from fedgps_ray.rounds.worker import Worker
from fedgps_ray.spec import ExecutionSpec, TrialSpec, trial_spec
from fedgps_ray.tensors import sha256, views

SMALL = {
    "dataset": {
        "name": "synthetic",
        "num_classes": 3,
        "image_size": 8,
        "channels": 1,
        "train_size": 60,
        "test_size": 15,
    },
    "partition": {"alpha": 0.5, "min_size": 6},
    "model": "mlp",
    "clients": 4,
    "rounds": 4,
    "batch_size": 8,
    "surrogate": {"per_class": 4, "batch_size": 6},
}


def spec_of(method="fedgps_cf", **values):
    return trial_spec(method=method, **{**SMALL, **values})


def folder_of(spec, out):
    return TrialStore(out, spec).folder


def rows_of(spec, out, **execution):
    """Run a trial as far as it goes and return its rows."""
    _, *rows = run_trial(spec, ExecutionSpec(out=out, **execution))
    return rows


def stopped_after(spec, out, rounds, **execution):
    trial = run_trial(spec, ExecutionSpec(out=out, **execution))
    for _ in range(rounds + 1):
        next(trial)
    trial.close()


def read(spec, out, name="rounds"):
    return pd.read_parquet(folder_of(spec, out) / f"{name}.parquet")


def without_seconds(frame):
    kept = frame[[name for name in frame if not name.endswith("_seconds")]]
    return kept.astype({"metrics": str}) if "metrics" in kept else kept


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A trial that ran without a stop."""
    out = tmp_path_factory.mktemp("whole")
    return out, rows_of(spec_of(), out)


# --- the end ------------------------------------------------------------------------------------


def test_a_finished_folder_is_complete(whole):
    out, rows = whole
    folder = folder_of(spec_of(), out)
    assert names(folder) == [
        ".lock",
        "clients.parquet",
        "model.safetensors",
        "partition.parquet",
        "rounds.parquet",
        "trial.json",
    ]
    info = read_trial(folder)
    assert info["status"] == "finished"
    assert info["summary"]["rounds_done"] == 4
    assert info["summary"]["weights_sha256"] == rows[-1]["weights_sha256"]
    assert len(info["partition_sha256"]) == 64
    assert TrialSpec(**info["spec"]) == spec_of()


def test_rows_on_disk_are_the_rows_told(whole):
    out, rows = whole
    frame = read(spec_of(), out)
    assert frame["round"].tolist() == [1, 2, 3, 4]
    assert frame["weights_sha256"].tolist() == [row["weights_sha256"] for row in rows]
    assert frame["accuracy"].tolist() == [row["accuracy"] for row in rows]
    clients = read(spec_of(), out, "clients")
    sums = clients.groupby("round")[["steps", "bytes_up", "gradient_evaluations"]].sum()
    assert sums["steps"].tolist() == frame["steps"].tolist()
    assert sums["bytes_up"].tolist() == frame["bytes_up"].tolist()
    assert sums["gradient_evaluations"].tolist() == frame["gradient_evaluations"].tolist()


def test_the_partition_on_disk_is_the_one_trained_on(whole):
    out, _ = whole
    frame = read(spec_of(), out, "partition")
    counts = frame.pivot(index="client", columns="class", values="count").to_numpy()
    assert np.array_equal(counts, prepare(spec_of(), NO_SOURCE).counts)


def test_the_model_is_left_tensor_by_tensor(whole):
    out, rows = whole
    tensors = load_file(folder_of(spec_of(), out) / "model.safetensors")
    network = Worker(prepare(spec_of(), NO_SOURCE)).network
    assert set(tensors) == {piece.name for piece in network.layout.weights}
    flat = torch.empty_like(network.weights)
    for name, view in views(flat, network.layout.weights).items():
        view.copy_(tensors[name])
    assert sha256(flat) == rows[-1]["weights_sha256"]


def test_statistics_are_left_with_the_model(tmp_path):
    spec = spec_of("fedavg", model="convnet", rounds=1)
    rows_of(spec, tmp_path)
    tensors = load_file(folder_of(spec, tmp_path) / "model.safetensors")
    assert any(name.endswith("running_mean") for name in tensors)


def test_twice_the_same_spec_gives_the_same_files(whole, tmp_path):
    out, _ = whole
    rows_of(spec_of(), tmp_path, checkpoint_seconds=0)
    for name in ("rounds", "clients", "partition"):
        left, right = (without_seconds(read(spec_of(), where, name)) for where in (out, tmp_path))
        pd.testing.assert_frame_equal(left, right, check_exact=True)
    first, second = (folder_of(spec_of(), where) / "model.safetensors" for where in (out, tmp_path))
    assert first.read_bytes() == second.read_bytes()


def test_another_seed_gives_other_weights(whole, tmp_path):
    _, rows = whole
    others = rows_of(spec_of(seed=1, rounds=1), tmp_path)
    assert others[0]["weights_sha256"] != rows[0]["weights_sha256"]


# --- not again ----------------------------------------------------------------------------------


def test_a_finished_trial_is_not_run_again(whole):
    out, _ = whole
    folder = folder_of(spec_of(), out)
    before = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    started, *rows = run_trial(spec_of(), ExecutionSpec(out=out))
    assert (started.rounds_done, started.problems, rows) == (4, [], [])
    after = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    assert {**before, ".lock": 0} == {**after, ".lock": 0}


def test_anew_discards_everything(tmp_path):
    spec = spec_of(rounds=2)
    stopped_after(spec, tmp_path, 1)
    folder = folder_of(spec, tmp_path)
    (folder / "trial.json").write_text("damaged")
    (folder / "model.safetensors").write_text("old")
    started, *rows = run_trial(spec, ExecutionSpec(out=tmp_path), start_over=True)
    assert started.rounds_done == 0
    assert [row["round"] for row in rows] == [1, 2]
    assert read_trial(folder)["status"] == "finished"
    again, *rows = run_trial(spec, ExecutionSpec(out=tmp_path), start_over=True)
    assert again.rounds_done == 0
    assert len(rows) == 2


# --- stops --------------------------------------------------------------------------------------


def test_an_interrupted_trial_says_so_and_keeps_a_checkpoint(tmp_path):
    spec = spec_of()
    stopped_after(spec, tmp_path, 2)
    info = read_trial(folder_of(spec, tmp_path))
    assert info["status"] == "interrupted"
    assert info["summary"]["rounds_done"] == 2
    assert read(spec, tmp_path)["round"].tolist() == [1, 2]
    assert "round-000002.json" in names(folder_of(spec, tmp_path) / "checkpoint")


@pytest.mark.parametrize("done", [1, 2, 3, 4])
def test_an_interrupted_trial_ends_as_if_it_had_not_been(whole, tmp_path, done):
    out, _ = whole
    spec = spec_of()
    stopped_after(spec, tmp_path, done)
    started, *rows = run_trial(spec, ExecutionSpec(out=tmp_path))
    assert (started.rounds_done, started.problems) == (done, [])
    assert [row["round"] for row in rows] == list(range(done + 1, 5))
    for name in ("rounds", "clients"):
        left, right = (without_seconds(read(spec, where, name)) for where in (out, tmp_path))
        pd.testing.assert_frame_equal(left, right, check_exact=True)
    assert read_trial(folder_of(spec, tmp_path))["status"] == "finished"
    kept = [path.name for path in folder_of(spec, tmp_path).glob("checkpoint/*.json")]
    assert kept == ([f"round-{done:06d}.json"] if done < 4 else [])


def test_starting_over_discards_nothing_before_the_trial_is_ready(whole, tmp_path, monkeypatch):
    spec = spec_of()
    shutil.copytree(whole[0], tmp_path, dirs_exist_ok=True)
    events = run_trial(spec, ExecutionSpec(out=tmp_path), start_over=True)

    def fail(*_):
        raise UserError("no such data set")

    with monkeypatch.context() as patch:
        patch.setattr(trial_module, "prepare", fail)
        with pytest.raises(UserError, match="no such"):
            next(events)
    assert read_trial(folder_of(spec, tmp_path))["status"] == "finished"
    assert check(folder_of(spec, tmp_path), full=True) == []


def test_a_trial_that_was_cut_off_as_it_started_over_can_be_continued(whole, tmp_path, monkeypatch):
    spec = spec_of()
    shutil.copytree(whole[0], tmp_path, dirs_exist_ok=True)

    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(trial_module, "_empty", killed)
        with pytest.raises(KeyboardInterrupt):
            list(run_trial(spec, ExecutionSpec(out=tmp_path), start_over=True))
    assert read_trial(folder_of(spec, tmp_path))["status"] == "new"
    assert check(folder_of(spec, tmp_path), full=True) == []
    rows_of(spec, tmp_path)
    assert read(spec, tmp_path)["weights_sha256"].equals(read(spec, whole[0])["weights_sha256"])


def test_ctrl_c_while_a_round_is_taken_in_keeps_the_rounds_before_it(tmp_path, monkeypatch):
    spec = spec_of("fedavg")
    trial = run_trial(spec, ExecutionSpec(out=tmp_path))
    for _ in range(3):
        next(trial)

    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(RowHash, "add", interrupted)
        with pytest.raises(KeyboardInterrupt):
            list(trial)
    started, *_ = run_trial(spec, ExecutionSpec(out=tmp_path))
    assert (started.rounds_done, started.problems) == (2, [])


def test_interrupted_again_and_again(whole, tmp_path):
    out, _ = whole
    spec = spec_of()
    for _ in range(4):
        stopped_after(spec, tmp_path, 1)
    rows_of(spec, tmp_path)
    assert read(spec, tmp_path)["weights_sha256"].equals(read(spec, out)["weights_sha256"])


def test_ctrl_c_inside_a_round_keeps_the_rounds_before(tmp_path, monkeypatch):
    spec, calls = spec_of("fedavg"), []
    real = Worker.work

    def interrupted(self, job):
        calls.append(job)
        if len(calls) == 6:  # in the third round
            raise KeyboardInterrupt
        return real(self, job)

    with monkeypatch.context() as patched:
        patched.setattr(Worker, "work", interrupted)
        with pytest.raises(KeyboardInterrupt):
            rows_of(spec, tmp_path)
    assert read_trial(folder_of(spec, tmp_path))["status"] == "interrupted"
    started, *_ = run_trial(spec, ExecutionSpec(out=tmp_path))
    assert started.rounds_done == 2


@pytest.mark.parametrize(
    ("raised", "told"), [(KeyboardInterrupt, KeyboardInterrupt), (MemoryError, UserError)]
)
@pytest.mark.parametrize("where", ["flush", "_write_model"])
def test_what_is_cut_off_at_the_end_has_not_ended(
    where, raised, told, whole, tmp_path, monkeypatch
):
    def cut_off(*_):
        raise raised

    owner = TrialStore if where == "flush" else trial_module._Trial
    spec = spec_of()
    events = run_trial(spec, ExecutionSpec(out=tmp_path, checkpoint_seconds=0))
    for _ in range(1 + spec.rounds):
        next(events)
    with monkeypatch.context() as patch:
        patch.setattr(owner, where, cut_off)
        with pytest.raises(told):
            next(events)
    assert read_trial(folder_of(spec, tmp_path))["status"] == "interrupted"
    rows_of(spec, tmp_path)
    assert read_trial(folder_of(spec, tmp_path))["status"] == "finished"
    pd.testing.assert_frame_equal(
        *(without_seconds(read(spec, out)) for out in (tmp_path, whole[0]))
    )


def test_a_failure_is_raised_and_the_trial_can_go_on(tmp_path, monkeypatch):
    spec = spec_of("fedavg")
    real = FedAvg.merge

    def failing(self, state, replies):
        if failing.left == 0:
            raise RuntimeError("a bug")
        failing.left -= 1
        return real(self, state, replies)

    failing.left = 2
    with monkeypatch.context() as patched:
        patched.setattr(FedAvg, "merge", failing)
        with pytest.raises(RuntimeError, match="a bug"):
            rows_of(spec, tmp_path)
    assert read_trial(folder_of(spec, tmp_path))["status"] == "failed"
    started, *_ = run_trial(spec, ExecutionSpec(out=tmp_path))
    assert started.rounds_done == 2
    assert read_trial(folder_of(spec, tmp_path))["status"] == "finished"


def killed_copies(spec, base):
    """Yield a copy of the folder as a kill would leave it: at each write of a file."""
    copies = []
    real = files.write

    def copying(path, fill, durable=True):
        real(path, fill, durable)
        copies.append(base / f"copy {len(copies)}")
        shutil.copytree(base / "whole", copies[-1])

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(files, "write", copying)
        patched.setattr(os, "fsync", lambda handle: None)
        rows_of(spec, base / "whole", checkpoint_seconds=0)
    return copies


def test_killed_at_any_write_it_goes_on_to_the_same_end(tmp_path):
    spec = spec_of("fedavg", rounds=2)
    copies = killed_copies(spec, tmp_path)
    expected = without_seconds(read(spec, tmp_path / "whole"))
    assert len(copies) > 10
    for copy in copies:
        saved = max((int(p.stem[-6:]) for p in copy.glob("trials/*/checkpoint/*.json")), default=0)
        started, *_ = run_trial(spec, ExecutionSpec(out=copy))
        assert started.problems == []
        assert started.rounds_done >= saved
        pd.testing.assert_frame_equal(without_seconds(read(spec, copy)), expected)
        assert read_trial(folder_of(spec, copy))["status"] == "finished"


def test_killed_between_the_last_word_and_the_clean_up_nothing_is_lost(tmp_path, monkeypatch):
    def kill(*args, **kwargs):
        raise SystemExit("killed")

    spec = spec_of("fedavg", rounds=2)
    with monkeypatch.context() as patched:
        patched.setattr(TrialStore, "remove_checkpoints", kill)
        with pytest.raises(SystemExit):
            rows_of(spec, tmp_path, checkpoint_seconds=0)
    folder = folder_of(spec, tmp_path)
    assert read_trial(folder)["status"] == "finished"
    assert check(folder, full=True) == []


def test_of_an_ended_trial_the_checkpoint_before_its_last_round_is_kept_and_sealed(tmp_path):
    spec = spec_of("scaffold")
    rows_of(spec, tmp_path, checkpoint_seconds=0)
    folder = folder_of(spec, tmp_path)
    there = {f"checkpoint/{path.name}" for path in (folder / "checkpoint").iterdir()}
    assert "checkpoint/round-000003.json" in there
    assert there == {name for name in read_trial(folder)["files"] if name.startswith("checkpoint")}
    state = folder / "checkpoint" / "state-000003.safetensors"
    state.write_bytes(state.read_bytes()[:-1] + b"?")
    assert [str(state) in problem for problem in check(folder)] == [True]


@pytest.mark.parametrize("limit", ["MOST_FILES", "MOST_BYTES"])
def test_no_checkpoint_is_kept_that_takes_much_room(tmp_path, monkeypatch, limit):
    monkeypatch.setattr(checkpoints, limit, 1)
    monkeypatch.setattr(checkpoints, "MOST_MODELS", 1)
    spec = spec_of("scaffold")
    rows_of(spec, tmp_path, checkpoint_seconds=0)
    assert "checkpoint" not in names(folder_of(spec, tmp_path))
    assert check(folder_of(spec, tmp_path), full=True) == []


def test_a_truncated_checkpoint_costs_one_round_and_is_told(whole, tmp_path):
    out, _ = whole
    spec = spec_of()
    stopped_after(spec, tmp_path, 3, checkpoint_seconds=0)
    path = folder_of(spec, tmp_path) / "checkpoint" / "state-000003.safetensors"
    path.write_bytes(path.read_bytes()[:50])
    started, *rows = run_trial(spec, ExecutionSpec(out=tmp_path))
    assert started.rounds_done == 2
    assert "round-000003.json is damaged (state-000003.safetensors was" in started.problems[0]
    assert [row["round"] for row in rows] == [3, 4]
    assert read(spec, tmp_path)["weights_sha256"].equals(read(spec, out)["weights_sha256"])


@pytest.mark.parametrize("value", [2.5, ["a"]])
def test_a_checkpoint_that_no_work_fits_is_told_and_can_be_deleted(value, tmp_path):
    spec = spec_of("scaffold", sampling_rate=1.0)
    undisturbed = [row["weights_sha256"] for row in rows_of(spec, tmp_path / "whole")]
    stopped_after(spec, tmp_path, 2, checkpoint_seconds=0)
    folder = folder_of(spec, tmp_path) / "checkpoint"
    path = folder / "round-000002.json"
    manifest = json.loads(path.read_text())
    kept = {
        key: value if key.endswith("memory") else skeleton
        for key, skeleton in manifest["kept"].items()
    }
    files.write_json(path, {**manifest, "kept": kept})  # with a seal of its own
    with pytest.raises(UserError, match=f"after round 2 and cannot go on .Attr.*delete {folder}"):
        rows_of(spec, tmp_path)
    shutil.rmtree(folder)
    assert [row["weights_sha256"] for row in rows_of(spec, tmp_path)] == undisturbed


@pytest.mark.parametrize("name", ["rounds.parquet", "clients.parquet"])
def test_lost_rows_mean_a_new_start_and_are_told(whole, tmp_path, name):
    out, _ = whole
    spec = spec_of()
    stopped_after(spec, tmp_path, 2)
    (folder_of(spec, tmp_path) / name).write_bytes(b"PAR1")
    started, *rows = run_trial(spec, ExecutionSpec(out=tmp_path))
    assert started.rounds_done == 0
    assert "rows of finished rounds are missing" in started.problems[0]
    assert len(rows) == 4
    assert read(spec, tmp_path)["weights_sha256"].equals(read(spec, out)["weights_sha256"])


# --- divergence ---------------------------------------------------------------------------------


def test_a_diverged_trial_is_a_result(tmp_path):
    spec = spec_of("fedavg", optimizer={"lr": 1e30})
    rows = rows_of(spec, tmp_path)
    info = read_trial(folder_of(spec, tmp_path))
    assert info["status"] == "diverged"
    assert "is not finite in round 1" in info["diverged"]
    assert [row["round"] for row in rows] == [1]
    frame = read(spec, tmp_path)
    assert frame["round"].tolist() == [1]
    assert frame["accuracy"].isna().all()
    assert "checkpoint" not in names(folder_of(spec, tmp_path))
    _, *again = run_trial(spec, ExecutionSpec(out=tmp_path))
    assert again == []


@pytest.mark.parametrize("where", ["_write", "note"])
def test_ctrl_c_while_a_divergence_is_written_loses_nothing(where, tmp_path, monkeypatch):
    spec = spec_of("fedavg", optimizer={"lr": 1e30})
    real, cut_off = getattr(TrialStore, where), []

    def interrupted(self, *values, **facts):
        if self.rows and not cut_off:
            cut_off.append(True)
            raise KeyboardInterrupt
        return real(self, *values, **facts)

    with monkeypatch.context() as patch:
        patch.setattr(TrialStore, where, interrupted)
        with pytest.raises(KeyboardInterrupt):
            rows_of(spec, tmp_path)
    assert read_trial(folder_of(spec, tmp_path))["status"] != "diverged"
    assert check(folder_of(spec, tmp_path), full=True) == [], "nothing is damaged"
    rows_of(spec, tmp_path)
    assert "is not finite in round 1" in read_trial(folder_of(spec, tmp_path))["diverged"]
    assert read(spec, tmp_path)["round"].tolist() == [1]


def test_rows_before_the_divergence_are_kept(tmp_path, monkeypatch):
    spec = spec_of("fedavg")
    real = FedAvg.work

    def exploding(self, local, message, memory):
        work = real(self, local, message, memory)
        factor = math.inf if local.round == 2 else 1.0
        return work._replace(upload=work.upload._replace(delta=work.upload.delta * factor))

    monkeypatch.setattr(FedAvg, "work", exploding)
    rows_of(spec, tmp_path)
    frame = read(spec, tmp_path)
    assert frame["round"].tolist() == [1, 2, 3]
    assert frame["accuracy"].notna().tolist() == [True, True, False]
    info = read_trial(folder_of(spec, tmp_path))
    assert (info["status"], info["summary"]["rounds_done"]) == ("diverged", 2)
    tensors = load_file(folder_of(spec, tmp_path) / "model.safetensors")
    assert all(tensor.isfinite().all() for tensor in tensors.values())


@pytest.mark.parametrize(
    ("raised", "status"),
    [
        (Stopped(), "interrupted"),
        (Lost("no actors"), "interrupted"),
        (BrokenPipeError("named as a loss by the caller"), "interrupted"),
        (RuntimeError("a bug"), "failed"),
    ],
)
def test_what_is_lost_around_a_trial_does_not_fail_it(raised, status, tmp_path):
    class Losing(InProcess):
        def start(self, jobs):
            if jobs[0].round == 2:
                raise raised
            return super().start(jobs)

    spec, execution = spec_of("fedavg"), ExecutionSpec(out=tmp_path)
    worker = Worker(prepare(spec, NO_SOURCE))

    def is_loss(problem):
        return isinstance(problem, BrokenPipeError)

    with claimed(spec, execution) as store, pytest.raises(type(raised)):
        list(run_with_pool(store, execution, worker, Losing(worker), is_loss))
    info = read_trial(folder_of(spec, tmp_path))
    assert (info["status"], "error" in info) == (status, status == "failed")
    started, *_ = run_trial(spec, execution)
    assert started.rounds_done >= 1


# --- refusals -----------------------------------------------------------------------------------


def test_a_trial_that_cannot_be_made_ready_leaves_none_behind(tmp_path):
    spec = spec_of(clients=50)
    with pytest.raises(UserError, match="50 clients with at least 6 samples each need 300"):
        rows_of(spec, tmp_path)
    assert not list(tmp_path.glob("trials/*/trial.json"))


def test_a_second_run_in_this_process_is_refused(tmp_path):
    spec = spec_of("fedavg")
    trial = run_trial(spec, ExecutionSpec(out=tmp_path))
    next(trial)
    with pytest.raises(UserError, match="is in use by another process"):
        rows_of(spec, tmp_path)
    trial.close()


def test_a_second_process_is_refused_until_the_first_ends(tmp_path):
    spec = spec_of("fedavg", rounds=1)
    folder = folder_of(spec, tmp_path)
    program = """
        import pathlib, sys
        from fedgps_ray.results import files
        with files.lock(pathlib.Path(sys.argv[1])):
            print("held", flush=True)
            sys.stdin.read()
    """
    command = [sys.executable, "-c", textwrap.dedent(program), str(folder)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(UserError, match=f"{spec.trial_id} is in use by another process"):
            rows_of(spec, tmp_path)
        holder.communicate()
    assert len(rows_of(spec, tmp_path)) == 1


def test_a_folder_of_another_spec_is_not_touched(tmp_path):
    spec, other = spec_of("fedavg"), spec_of("fedavg", rounds=9)
    stopped_after(spec, tmp_path, 1)
    path = folder_of(spec, tmp_path) / "trial.json"
    info = json.loads(path.read_text())
    files.write_json(path, {**info, "spec": other.model_dump(mode="json")})
    before = {p.name: p.read_bytes() for p in path.parent.iterdir() if p.is_file()}
    with pytest.raises(UserError, match="belongs to another spec"):
        rows_of(spec, tmp_path)
    assert {p.name: p.read_bytes() for p in path.parent.iterdir() if p.is_file()} == before


def test_full_disk_interrupts_the_trial_and_names_the_path(tmp_path, monkeypatch):
    spec = spec_of("fedavg")
    write, full = files.write, []

    def no_space(path, fill, durable=True):
        if full and path.suffix == ".safetensors":
            raise CannotWrite(f"cannot write {path}: No space left on device")
        write(path, fill)

    monkeypatch.setattr(files, "write", no_space)
    trial = run_trial(spec, ExecutionSpec(out=tmp_path, actors=0, checkpoint_seconds=0))
    rows = [next(trial) for _ in range(3)][1:]
    full.append(True)
    with pytest.raises(UserError, match=r"cannot write .*checkpoint.*No space left"):
        list(trial)
    folder = TrialStore(tmp_path, spec).folder
    info = read_trial(folder)
    assert info["status"] == "interrupted", "plain resume continues it"
    assert len(pd.read_parquet(folder / "rounds.parquet")) >= len(rows)
    full.clear()
    again = list(run_trial(spec, ExecutionSpec(out=tmp_path, actors=0)))
    whole = list(run_trial(spec, ExecutionSpec(out=tmp_path / "other", actors=0)))
    assert again[-1]["weights_sha256"] == whole[-1]["weights_sha256"]
    assert again[0].rounds_done >= 2


def test_a_trial_whose_folder_was_replaced_leaves_the_new_one_alone(tmp_path):
    spec, out = spec_of("fedavg"), tmp_path / "here"
    execution = ExecutionSpec(out=out, actors=0, checkpoint_seconds=0)
    first = run_trial(spec, execution)
    next(first), next(first)
    out.rename(tmp_path / "elsewhere")
    second = run_trial(spec, execution)
    next(second), next(second)
    before = names(folder_of(spec, out))
    with pytest.raises(CannotWrite, match="deleted or moved"):
        list(first)
    assert names(folder_of(spec, out)) == before
    list(second)
    assert check(folder_of(spec, out), full=True) == []


def test_what_a_killed_process_was_writing_is_removed(tmp_path):
    spec = spec_of("fedavg")
    stopped_after(spec, tmp_path, 1)
    folder = folder_of(spec, tmp_path)
    rests = [folder / ".rounds.parquet.ab.part", folder / "checkpoint" / ".state.ab.part"]
    for rest in rests:
        rest.write_text("half")
    trial = run_trial(spec, ExecutionSpec(out=tmp_path, actors=0))
    next(trial)
    assert not any(rest.exists() for rest in rests)
    trial.close()


def test_a_setting_that_is_too_large_is_told(tmp_path):
    with pytest.raises(UserError, match="a setting is too large"):
        list(
            run_trial(
                spec_of("fedavg", optimizer={"lr": 1e308}), ExecutionSpec(out=tmp_path, actors=0)
            )
        )
