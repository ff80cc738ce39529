"""The commands as a user gives them: what they print, leave behind and exit with."""

import dataclasses
import fcntl
import json
import os
import shlex
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest

from fedgps_ray import cli
from fedgps_ray.cli.commands.trials import kept_here
from fedgps_ray.data.datasets import DATASETS
from fedgps_ray.errors import ClientFailed
from fedgps_ray.methods import METHODS, FedAvg
from fedgps_ray.models import MODELS
from fedgps_ray.results import files
from fedgps_ray.rounds import worker
from fedgps_ray.spec import ExecutionSpec, trial_spec
from tests.processes import patient, start

COMMANDS = [c.name or c.callback.__name__ for c in cli.app.registered_commands]
PROGRAM = str(Path(sys.executable).with_name("fedgps-ray"))
QUICK = [
    *("--dataset", "synthetic", "--set", "dataset.num_classes=3", "--set", "dataset.image_size=8"),
    *("--set", "dataset.channels=1", "--set", "dataset.train_size=60"),
    *("--set", "dataset.test_size=15", "--set", "partition.min_size=5", "--clients", "4"),
]
TRAIN = [*QUICK, "--model", "mlp", "--method", "fedavg", "--batch-size", "8", "--actors", "0"]
RUN = ["run", *TRAIN, "--rounds", "3"]


class Result(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self):
        return json.loads(self.out)


@pytest.fixture
def fedgps(monkeypatch, capsys, tmp_path):
    """Give a command in a fresh folder, in this process."""
    monkeypatch.chdir(tmp_path)
    # these commands end before they need Ray, or run without it
    monkeypatch.setattr("fedgps_ray.cluster.session.start_early", lambda address: None)
    before = signal.getsignal(signal.SIGTERM)

    def call(*args):
        monkeypatch.setattr(sys, "argv", ["fedgps-ray", *map(str, args)])
        code = 0
        try:
            cli.main()
        except SystemExit as end:
            code = end.code or 0
        result = Result(code, *capsys.readouterr())
        assert "\x1b" not in result.out + result.err
        assert "Traceback" not in result.out + result.err
        return result

    yield call
    signal.signal(signal.SIGTERM, before)


def trial_folder(out="runs/default"):
    (folder,) = Path(out).glob("trials/*")
    return folder


def words_of(text):
    """Take a message out of the box and the line breaks it is shown in."""
    return " ".join(text.replace("│", " ").split())


# --- help ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", COMMANDS)
def test_help_shows_an_example(fedgps, command):
    result = fedgps(command, "--help")
    assert result.code == 0
    assert f"Example: fedgps-ray {command}" in words_of(result.out)


def test_help_lists_every_command(fedgps):
    result = fedgps("--help")
    assert result.code == 0
    assert [name for name in COMMANDS if name not in result.out] == []


def test_an_unknown_command_is_bad_usage(fedgps):
    result = fedgps("rum")
    assert result.code == 2
    assert "No such command 'rum'" in result.err


# --- run ----------------------------------------------------------------------------------------


def test_a_short_trial_stays_in_this_process_and_says_so(fedgps):
    done = fedgps(*(part for part in RUN if part not in ("--actors", "0")))
    assert done.code == 0
    assert "less than Ray takes to start: staying in this process" in done.err
    assert done.out.split()[:2] == ["status", "finished"]


@pytest.mark.parametrize(
    ("settings", "execution"),
    [
        ({"rounds": 100_000}, {}),
        ({"model": "resnet18", "rounds": 200, "dataset": "cifar10"}, {}),
        ({}, {"actors": 2}),
        ({}, {"client_gpus": 0.5}),
        ({}, {"address": "127.0.0.1:6379"}),
    ],
)
def test_other_trials_go_to_ray(settings, execution):
    spec = trial_spec(**{"model": "mlp", "method": "fedavg", "rounds": 2, **settings})
    wanted = ExecutionSpec(**execution)
    assert kept_here(spec, wanted) == wanted


def test_run_tells_each_round_and_the_end(fedgps):
    result = fedgps(*RUN)
    assert result.code == 0
    for number in (1, 2, 3):
        assert f"FedAvg  round {number}/3  accuracy " in result.err
    info = json.loads((trial_folder() / "trial.json").read_text())
    said = dict(line.split("  ", 1) for line in result.out.splitlines() if "  " in line)
    said = {key: value.strip() for key, value in said.items()}
    assert said["status"] == "finished"
    assert said["weights"] == info["summary"]["weights_sha256"]
    assert said["results"] == str(trial_folder())
    assert said["rounds"] == "3"


def test_run_as_json_prints_nothing_else(fedgps):
    result = fedgps(*RUN, "--json")
    assert result.code == 0
    assert result.json["status"] == "finished"
    assert result.json == json.loads((trial_folder() / "trial.json").read_text())


def test_options_reach_the_spec(fedgps):
    result = fedgps(
        *("run", *QUICK, "--model", "mlp", "--method", "fedgps", "--preset", "official"),
        *("--sampling-rate", "0.75", "--rounds", "1", "--local-epochs", "2", "--batch-size", "16"),
        *("--lr", "0.25", "--partition", "dirichlet", "--alpha", "0.7", "--scenario", "3"),
        *("--seed", "5", "--set", "method.rho=0.3", "--set", "optimizer.momentum=0"),
        *("--set", "surrogate.per_class=4", "--set", "eval_logits=real"),
        *("--actors", "0", "--out", "elsewhere", "--checkpoint-seconds", "7", "--json"),
    )
    spec, execution = result.json["spec"], result.json["execution"]
    assert spec["dataset"]["image_size"] == 8
    assert (spec["model"], spec["clients"], spec["rounds"]) == ("mlp", 4, 1)
    assert (spec["sampling_rate"], spec["local_epochs"], spec["batch_size"]) == (0.75, 2, 16)
    assert (spec["method"]["name"], spec["method"]["rho"]) == ("fedgps", 0.3)
    assert spec["method"]["single_sample_weight"] == "feature_dim"
    assert (spec["optimizer"]["lr"], spec["optimizer"]["momentum"]) == (0.25, 0.0)
    assert (spec["partition"]["alpha"], spec["scenario"], spec["seed"]) == (0.7, 3, 5)
    assert (spec["surrogate"]["per_class"], spec["eval_logits"]) == (4, "real")
    assert (execution["actors"], execution["checkpoint_seconds"]) == (0, 7.0)
    assert execution["out"] == "elsewhere"


def test_a_finished_trial_is_shown_not_run(fedgps):
    first = fedgps(*RUN, "--json")
    again = fedgps(*RUN, "--json")
    assert again.code == 0
    assert again.json == first.json
    assert first.json["trial_id"] in again.err
    assert "--restart" in again.err
    assert "round 1/3" not in again.err


@pytest.mark.parametrize(("option", "notes"), [("--restart", 0), ("--anew", 1)])
def test_a_finished_trial_can_be_restarted(fedgps, option, notes):
    first = fedgps(*RUN, "--json")
    again = fedgps(*RUN, option, "--json")
    assert "round 3/3" in again.err
    assert again.err.count("--anew is now called --restart") == notes
    shas = [result.json["summary"]["weights_sha256"] for result in (first, again)]
    assert shas[0] == shas[1]


def test_a_diverged_trial_is_a_result(fedgps):
    result = fedgps(*RUN, "--lr", "1e30")
    assert result.code == 0
    assert "round 1/3  diverged" in result.err
    assert "status diverged: the update of client" in words_of(result.out)
    assert "best accuracy - last" in words_of(result.out)


def test_rounds_that_are_not_tested_say_so(fedgps):
    result = fedgps(*RUN, "--set", "evaluate_every=2")
    first, second = [line for line in result.err.splitlines() if "/3" in line][:2]
    assert "not tested" in first
    assert "best" not in first
    assert "accuracy" in second
    assert "best" in second
    assert "diverged" not in result.err


def test_own_images(fedgps, tmp_path):
    npz(tmp_path / "own.npz")
    result = fedgps(*TRAINED_ON, tmp_path / "own.npz", "--json")
    assert result.code == 0
    assert result.json["spec"]["dataset"]["file"] == "own.npz"
    frame = pd.read_parquet(trial_folder() / "rounds.parquet")
    assert frame["dataset"].unique().tolist() == ["own"]


@pytest.mark.skipif(
    not (Path(__file__).parents[3] / "shared" / "data" / "cifar10_small.npz").exists(),
    reason="real images: cifar10_small.npz is optional and not part of the project",
)
def test_real_images_by_path(fedgps):
    path = Path(__file__).parents[3] / "shared" / "data" / "cifar10_small.npz"
    result = fedgps("partition", "--dataset", path, "--clients", "10", "--json")
    counts = np.array(result.json["counts"])
    assert counts.sum(axis=0).tolist() == [1000] * 10


# --- stops and resume ---------------------------------------------------------------------------


def test_resume_continues_every_open_trial(fedgps, monkeypatch):
    expected = [fedgps(*RUN, "--seed", seed, "--out", "whole", "--json").json for seed in (0, 1)]
    for seed in (0, 1):
        with monkeypatch.context() as patched:
            patched.setattr(worker.Worker, "work", interrupting(after=3))
            assert fedgps(*RUN, "--seed", seed).code == 130
    fedgps(*RUN, "--seed", 2)
    result = fedgps("resume", "runs/default", "--json")
    assert result.code == 0
    resumed = {info["trial_id"]: info for info in map(json.loads, result.out.splitlines())}
    assert {i: info["status"] for i, info in resumed.items()} == {
        info["trial_id"]: "finished" for info in expected
    }
    for info in expected:
        found = resumed[info["trial_id"]]["summary"]["weights_sha256"]
        assert found == info["summary"]["weights_sha256"]
    assert result.err.count("continuing after round 1") == 2


def interrupting(after):
    """Return a `work` that is interrupted at its so-manieth call."""
    real, calls = worker.Worker.work, []

    def work(self, job):
        calls.append(job)
        if len(calls) == after:
            raise KeyboardInterrupt
        return real(self, job)

    return work


def test_an_interrupted_trial_prints_a_command_that_continues_it(fedgps, monkeypatch):
    expected = fedgps(*RUN, "--out", "whole", "--json").json["summary"]["weights_sha256"]
    with monkeypatch.context() as patched:
        patched.setattr(worker.Worker, "work", interrupting(after=5))
        stopped = fedgps(*RUN, "--out", "with a space")
    assert stopped.code == 130
    program, *command = shlex.split(stopped.err.partition("to continue: ")[2])
    assert program == "fedgps-ray"
    assert "to continue: fedgps-ray resume 'with a space'" in fedgps("status", "with a space").out
    resumed = fedgps(*command, "--json")
    assert "continuing after round 2" in resumed.err
    assert "to continue" not in fedgps("status", "with a space").out
    assert resumed.json["summary"]["weights_sha256"] == expected


def test_the_run_command_continues_too(fedgps, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(worker.Worker, "work", interrupting(after=5))
        fedgps(*RUN)
    result = fedgps(*RUN, "--json")
    assert "continuing after round 2" in result.err
    assert result.json["status"] == "finished"


def test_interrupted_before_anything_was_begun(fedgps, monkeypatch):
    def stop(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr("fedgps_ray.rounds.trial.prepare", stop)
    result = fedgps(*RUN)
    assert result.code == 130
    assert "interrupted; to continue: the same command" in result.err


def test_a_trial_that_fails_does_not_keep_resume_from_the_others(fedgps, monkeypatch):
    for seed in (0, 1):
        with monkeypatch.context() as patched:
            patched.setattr(worker.Worker, "work", interrupting(after=3))
            fedgps(*RUN, "--seed", seed)
    bad, good = sorted(path.name for path in Path("runs/default/trials").iterdir())
    real = worker.Worker.work

    def work(self, job):
        if self.spec.trial_id == bad:
            raise RuntimeError("broken")
        return real(self, job)

    monkeypatch.setattr(worker.Worker, "work", work)
    result = fedgps("resume", "runs/default", "--json")
    assert result.code == 1
    assert f"{bad} failed: the trial was continued" in result.err
    assert f"1 of 2 trials failed: {bad}" in result.err
    assert (result.json["trial_id"], result.json["status"]) == (good, "finished")


def test_resume_with_nothing_to_do(fedgps):
    fedgps(*RUN)
    result = fedgps("resume", "runs/default", "--json")
    assert (result.code, result.out) == (0, "")
    assert "all 1 trials of runs/default have ended; nothing to do" in result.err


def test_a_truncated_checkpoint_is_told_and_made_up_for(fedgps, monkeypatch):
    expected = fedgps(*RUN, "--out", "whole", "--json").json["summary"]["weights_sha256"]
    with monkeypatch.context() as patched:
        patched.setattr(worker.Worker, "work", interrupting(after=5))
        fedgps(*RUN, "--checkpoint-seconds", "0")
    newest = trial_folder() / "checkpoint" / "state-000002.safetensors"
    newest.write_bytes(newest.read_bytes()[:-100])
    result = fedgps("resume", trial_folder(), "--json")
    assert result.code == 0
    assert "note: checkpoint round-000002.json is damaged (state-000002.safet" in result.err
    assert "continuing after round 1" in result.err
    assert result.json["summary"]["weights_sha256"] == expected


def test_a_failed_client_is_told_with_exit_code_1(fedgps, monkeypatch):
    def fail(self, job):
        raise ClientFailed(f"client {job.client} in round 1: [out of luck]")

    monkeypatch.setattr(worker.Worker, "work", fail)
    result = fedgps(*RUN)
    assert result.code == 1
    assert "failed: client" in result.err
    assert "[out of luck]" in result.err
    assert json.loads((trial_folder() / "trial.json").read_text())["status"] == "failed"


# --- partition, lists, report -------------------------------------------------------------------


def test_partition_shows_and_writes_a_picture(fedgps):
    result = fedgps("partition", *QUICK, "--alpha", "0.5")
    assert result.code == 0
    picture = Path("partition-synthetic-dirichlet-4-1.png")
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert str(picture) in words_of(result.out)
    assert "sha256" in result.out


def test_partition_as_json(fedgps):
    result = fedgps(
        *("partition", *QUICK[:-4], "--partition", "classes", "--classes-per-client", "1"),
        *("--clients", "9", "--set", "clients=3", "--png", "here.png", "--json"),
    )
    assert result.code == 0
    assert np.array(result.json["counts"]).tolist() == np.diag([20, 20, 20]).tolist()
    assert result.json["png"] == "here.png"
    assert Path("here.png").exists()
    assert len(result.json["sha256"]) == 64


def test_partition_is_the_one_a_trial_gets(fedgps):
    fedgps(*RUN)
    shown = fedgps("partition", *QUICK, "--json").json
    frame = pd.read_parquet(trial_folder() / "partition.parquet")
    counts = frame.pivot(index="client", columns="class", values="count")
    assert counts.to_numpy().tolist() == shown["counts"]
    info = json.loads((trial_folder() / "trial.json").read_text())
    assert info["partition_sha256"] == shown["sha256"]


@pytest.mark.parametrize(
    ("command", "known"), [("methods", METHODS), ("datasets", DATASETS), ("models", MODELS)]
)
def test_what_there_is(fedgps, command, known):
    shown, scripted = fedgps(command), fedgps(command, "--json")
    assert shown.code == scripted.code == 0
    assert [name for name in known if name not in shown.out] == []
    assert list(scripted.json) == list(known)


def test_methods_fit_on_a_screen(fedgps):
    lines = fedgps("methods").out.splitlines()
    assert len(lines) < 24
    assert max(map(len, lines)) <= 80


def test_status_of_a_parent_folder_lists_the_results_below(fedgps):
    first = fedgps(*RUN, "--out", "runs/first", "--json").json["trial_id"]
    fedgps(*RUN, "--out", "runs/second")
    shown = words_of(fedgps("status", "runs").out)
    assert "runs/first" in shown
    assert "runs/second" in shown
    told = fedgps("status", "runs", "--json").json
    assert told["runs/first"]["trials"] == {first: "finished"}
    hint = fedgps("report", "runs")
    assert hint.code == 2
    assert "runs/first, runs/second" in hint.err


def test_methods_tell_their_defaults(fedgps):
    known = fedgps("methods", "fedgps", "--json").json
    assert list(known) == ["fedgps"]
    assert known["fedgps"]["method"] == dataclasses.asdict(METHODS["fedgps"]())
    assert known["fedgps"]["optimizer"] == dataclasses.asdict(METHODS["fedgps"].optimizer)
    assert "official" in known["fedgps"]["presets"]
    shown = fedgps("methods", "fedgps", "scaffold").out
    assert "rho 0.5" in words_of(shown)
    assert "fedavgm" not in shown


def test_report_compares_and_writes(fedgps):
    fedgps(*RUN)
    fedgps(*RUN, "--lr", "1e30")
    result = fedgps("report", "runs/default")
    assert result.code == 0
    assert "report: runs/default/report/report.html" in result.out
    page = Path("runs/default/report/report.html").read_text()
    assert "diverged" in page
    told = fedgps("report", "runs/default", "--json").json
    assert told["report"] == "runs/default/report/report.html"
    assert sorted(row["status"] for row in told["trials"]) == ["diverged", "finished"]
    assert {row["method"] for row in told["trials"]} == {"fedavg"}


# --- bad input ----------------------------------------------------------------------------------

QUICKSTART = Path(__file__).parents[2] / "experiments" / "quickstart.toml"
TRAINED_ON = ["run", "--model", "mlp", "--method", "fedavg", "--actors", "0", "--rounds", "1"]
TRAINED_ON += ["--clients", "2", "--set", "partition.min_size=1", "--dataset"]

WRONG = [  # command, and what its message must name
    ("run --method fedgsp", "unknown method 'fedgsp'. Did you mean 'fedgps'? Known: fedavg, "),
    ("run --method fedgps --preset oficial", "'oficial'. Did you mean 'official'?"),
    ("run --dataset cifar11", "unknown data set 'cifar11'. Did you mean 'cifar10'? Known: dig"),
    ("run --model resnet19", "unknown model 'resnet19'. Did you mean 'resnet18'? Known: mlp"),
    ("run --partition dirichlt", "unknown partition 'dirichlt'. Did you mean 'dirichlet'?"),
    ("run --alpha 0", "--alpha 0: must be a number greater than 0"),
    ("run --alpha -1", "--alpha -1: must be a number greater than 0"),
    ("run --alpha nan", "--alpha nan: must be a number"),
    ("run --sampling-rate 0", "--sampling-rate 0: must be a number greater than 0"),
    ("run --sampling-rate 1.5", "Invalid value for '--sampling-rate'"),
    ("run --sampling-rate -0.1", "Invalid value for '--sampling-rate'"),
    ("run --rounds 0", "Invalid value for '--rounds'"),
    ("run --clients 0", "Invalid value for '--clients'"),
    ("run --rounds ten", "Invalid value for '--rounds'"),
    ("run --seed -1", "Invalid value for '--seed'"),
    ("run --lr 0", "--lr 0: must be a number greater than 0"),
    (
        "run --actors 0 --partition classes --classes-per-client 11",
        "classes_per_client is 11, but there are 10 classes",
    ),
    (
        "run --actors 0 --clients 500",
        "500 clients with at least 10 samples each need 5000 samples, there are 1437: use at most",
    ),
    (
        "run --actors 0 --clients 2000 --partition iid",
        "cannot split 1437 samples among 2000 clients: use 1 to 1437 clients",
    ),
    ("run --alpha 0.1 --partition iid", "--alpha 0.1 is for --partition dirichlet, not iid"),
    (
        "run --classes-per-client 2",
        "--classes-per-client 2 is for --partition classes, not dirichlet",
    ),
    ("run --set rho", "--set rho: expected KEY=VALUE, such as --set method.rho=0.3"),
    ("run --set rho=1", "unknown setting 'rho'. Did you mean 'method.rho'?"),
    ("run --set lr=1", "unknown setting 'lr'. Did you mean 'optimizer.lr'?"),
    ("run --set per_class=1", "Did you mean 'surrogate.per_class'?"),
    ("run --set min_size=1", "Did you mean 'partition.min_size'?"),
    ("run --set roundz=1", "Did you mean 'rounds'?"),
    (f"sweep {QUICKSTART} --set lr=1", "Did you mean 'optimizer.lr'?"),
    ("run --set =1", "--set =1: expected KEY=VALUE"),
    ("run --set method.roh=1", "unknown setting of fedgps 'roh'. Did you mean 'rho'?"),
    ("run --set method.rho=fast", "method.rho: must be a valid number"),
    ("run --set rounds.more=1", "rounds: must be a valid integer"),
    ("run --set model.deep=1", "model 'cnn' has no options"),
    ("run --set optimizer.lrr=1", "unknown setting of optimizer 'lrr'. Did you mean 'lr'?"),
    ("run --set surrogate=noize", "unknown surrogate 'noize'. Did you mean 'noise'?"),
    ("run --set surrogate=gone.npz", "gone.npz"),
    ("run --set a.b.c=1", "unknown setting 'a'"),
    ("run --actors some", "--actors some: expected auto, 0, or a number of actors"),
    ("run --device tpu", "--device tpu: use auto, cpu or cuda"),
    ("run --device cuda", "every actor needs a share of a GPU; add --client-gpus"),
    ("run --client-gpus 0.5 --device cpu", "device cpu has no use for it"),
    ("run --set precision=tf32", "tf32 is a mode of GPUs"),
    (f"sweep {QUICKSTART} --device cuda", "every actor needs a share of a GPU"),
    ("run --checkpoint-seconds -1", "Invalid value for '--checkpoint-seconds'"),
    ("run --dataset gone.npz", "gone.npz; .npz files in "),
    ("run --dataset npz", "data set 'npz' is given by its path, such as my_data.npz"),
    ("run --actors 0 --dataset cifar10 --data-dir nowhere", "cifar"),
    (
        "run --actors 0 --dataset synthetic --set dataset.image_size=4 --model resnet18",
        "model 'resnet18' needs images of at least 8x8 pixels, the data set has 4x4; choose",
    ),
    ("run --actors 0 --out file", "cannot write to file/trials/"),
    ("resume empty", "no trials in empty"),
    ("resume gone", "there is no folder gone"),
    ("report empty", "no trials in empty"),
    ("report gone", "there is no folder gone"),
    ("report", "name a results folder"),
    ("report gone --against code", "unknown comparison 'code'"),
    ("sweep gone.toml", "there is no file gone.toml"),
    ("sweep empty", "empty is not a file"),
    (f"sweep {QUICKSTART} --set seed=[]", "seed = []: the list is empty"),
    ("watch gone", "there is no folder gone"),
    ("verify runs/gone", "there is no folder runs/gone"),
    ("watch empty", "no trials in empty"),
    ("status gone", "there is no folder gone"),
    ("status emty", "Did you mean 'empty'?"),
    ("status empty", "no trials in empty"),
    ("paper run cifar10_10_5_2", "Did you mean 'cifar10_10_5_"),
    ("paper run cifar10_10_5_1 --scale tiny", "unknown scale 'tiny'"),
    ("paper run cifar10_10_5_1 --rounds 3", "--rounds are for --scale small"),
    ("paper run cifar10_10_5_1 --reuse gone", "there is no folder gone"),
    ("paper run cifar10_10_5_1 --actors 0", "--actors 0: a sweep runs on Ray"),
    ("paper write cifar10_10_5_1 --out empty", "empty exists already"),
    ("partition --alpha 0", "--alpha 0: must be a number greater than 0"),
    ("partition --alpha 1 --partition iid", "--alpha 1.0 is for --partition dirichlet, not iid"),
    ("partition --dataset digit", "unknown data set 'digit'. Did you mean 'digits'?"),
    ("partition --clients 500", "use at most 143 clients or a smaller min_size"),
    (
        "partition --partition classes --classes-per-client 11",
        "classes_per_client is 11, but there are 10 classes",
    ),
    ("partition --png gone/here.png", "cannot write to gone/here.png: No such file"),
    ("methods fedgsp", "unknown method 'fedgsp'. Did you mean 'fedgps'? Known: fedavg, "),
    ("bench W9", "unknown workload 'W9'"),
    ("partition --clients", "Option '--clients' requires an argument"),
]


@pytest.mark.parametrize(("command", "message"), WRONG, ids=[row[0] for row in WRONG])
def test_bad_input_is_answered_with_a_message(fedgps, command, message):
    Path("empty").mkdir()
    Path("file").write_text("")
    result = fedgps(*shlex.split(command))
    assert result.code == 2
    assert message in words_of(result.err)
    assert result.out == ""
    assert not list(Path().glob("runs/default/trials/*/trial.json"))


def images(number, classes=3, shape=(8, 8, 1)):
    x = np.arange(number * int(np.prod(shape)), dtype=np.uint64) % 251
    return x.astype(np.uint8).reshape(number, *shape), np.arange(number) % classes


def npz(path, **changes):
    """Write a good file, with some arrays changed or (None) left out."""
    (x_train, y_train), (x_test, y_test) = images(30), images(9)
    arrays = {"x_train": x_train, "y_train": y_train, "x_test": x_test, "y_test": y_test}
    np.savez(path, **{k: v for k, v in {**arrays, **changes}.items() if v is not None})


X, Y = images(30)
BAD_FILES = [
    ({"y_test": None}, "has no array 'y_test'; it has: x_train, y_train, x_test"),
    ({"x_train": X.astype(float)}, "x_test has type uint8, expected float64 as in x_train"),
    ({"x_train": X[:8]}, "y_train has shape (30,), expected (8,)"),
    ({"x_train": X[:, 0, 0, 0]}, "x_train has shape (30,), expected one row or more axes"),
    ({"x_test": images(9, shape=(4, 4, 1))[0]}, "x_test has examples of shape (4, 4, 1), exp"),
    ({"y_train": Y[:-1]}, "y_train has shape (29,), expected (30,)"),
    ({"y_train": Y.astype(float)}, "y_train has type float64, expected whole numbers"),
    ({"y_train": Y - 1}, "y_train has the label -1, expected 0 and above"),
    ({"y_test": np.full(9, 3)}, "y_test has the label 3, expected 0 to 2"),
    ({"y_train": np.array([{}] * 30)}, "y_train cannot be read, expected a plain array"),
    ({"x_train": X[:0], "y_train": Y[:0]}, "expected at least one example"),
]


@pytest.mark.parametrize(("changes", "message"), BAD_FILES, ids=[row[1] for row in BAD_FILES])
def test_a_malformed_file_of_images_is_told(fedgps, changes, message):
    npz("own.npz", **changes)
    result = fedgps(*TRAINED_ON, "own.npz")
    assert result.code == 2
    assert f"error: {Path.cwd() / 'own.npz'}" in result.err
    assert message in result.err


def test_a_file_that_is_no_archive(fedgps):
    Path("own.npz").write_text("not an archive")
    result = fedgps(*TRAINED_ON, "own.npz")
    assert result.code == 2
    assert "own.npz is not an .npz file: expected named arrays" in result.err


def test_a_file_that_moved_or_changed_is_told(fedgps, monkeypatch):
    npz("own.npz")
    with monkeypatch.context() as patched:
        patched.setattr(worker.Worker, "work", interrupting(after=1))
        assert fedgps(*TRAINED_ON, "own.npz").code == 130
    npz("own.npz", y_test=np.zeros(9, int))
    changed = fedgps("resume", "runs/default")
    assert changed.code == 2
    assert "own.npz is not the file the trial was made with" in changed.err
    Path("own.npz").unlink()
    gone = fedgps("resume", "runs/default")
    assert gone.code == 2
    assert "own.npz is no longer at" in gone.err


@pytest.mark.parametrize("command", [RUN, ["resume", "runs/default"]])
def test_a_folder_of_another_spec_is_refused(fedgps, command):
    fedgps(*RUN)
    path = trial_folder() / "trial.json"
    info = json.loads(path.read_text())
    info["spec"]["rounds"] = 99
    files.write_json(path, info)
    result = fedgps(*command)
    assert result.code == 2
    assert "belongs to another spec" in result.err
    assert "move the folder away, or use another --out" in result.err


@pytest.mark.parametrize("command", ["resume", "report"])
def test_a_damaged_trial_json_is_told(fedgps, command):
    fedgps(*RUN)
    path = trial_folder() / "trial.json"
    path.write_text(path.read_text()[:300])
    result = fedgps(command, "runs/default")
    assert result.code == 2
    assert "trial.json is damaged" in result.err


def test_execution_settings_that_are_not_valid_are_told(fedgps, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(worker.Worker, "work", interrupting(after=1))
        fedgps(*RUN)
    path = trial_folder() / "trial.json"
    info = json.loads(path.read_text())
    info["execution"]["checkpoint_seconds"] = "soon"
    files.write_json(path, info)
    result = fedgps("resume", "runs/default")
    assert result.code == 2
    assert "checkpoint_seconds: must be a valid number" in result.err


def test_a_report_of_trials_that_never_began(fedgps, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(worker.Worker, "work", interrupting(after=1))
        fedgps(*RUN)
    result = fedgps("report", "runs/default")
    assert result.code == 0
    assert "the run has not finished" in words_of(result.out)


def test_what_is_not_a_users_mistake_is_not_hidden(fedgps, monkeypatch):
    def fail(self, state, replies):
        raise RuntimeError("a bug")

    monkeypatch.setattr(FedAvg, "merge", fail)
    with pytest.raises(RuntimeError, match="a bug"):
        fedgps(*RUN)


# --- real processes -----------------------------------------------------------------------------


def test_a_real_process_ends_with_a_message_and_exit_code_2(tmp_path):
    environment = {**os.environ, "TERM": "xterm-256color"}
    ended = subprocess.run(
        [PROGRAM, "run", "--method", "fedgsp"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment,
        check=False,
    )
    assert ended.returncode == 2
    assert ended.stdout == ""
    assert ended.stderr.startswith("error: unknown method 'fedgsp'. Did you mean 'fedgps'? Known: ")
    assert len(ended.stderr.splitlines()) == 1
    assert "\x1b" not in ended.stderr


LONG = ["run", *TRAIN, "--rounds", "150", "--set", "evaluate_every=50", "--json"]


@pytest.fixture(scope="module")
def long_run(tmp_path_factory):
    """Return the final hash of the long trial when nobody interrupts it."""
    out = tmp_path_factory.mktemp("long")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sys, "argv", ["fedgps-ray", *LONG, "--out", str(out)])
        before = signal.getsignal(signal.SIGTERM)
        with pytest.raises(SystemExit):
            cli.main()
        signal.signal(signal.SIGTERM, before)
    return json.loads((trial_folder(out) / "trial.json").read_text())["summary"]["weights_sha256"]


@contextmanager
def running(command, until):
    """Yield a process that has written this; it cannot get far ahead, as its pipe is short."""
    pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "bufsize": 0}
    with start([PROGRAM, *command], **pipes) as process:
        if hasattr(fcntl, "F_SETPIPE_SZ"):
            fcntl.fcntl(process.stderr, fcntl.F_SETPIPE_SZ, 4096)
        while until not in (line := process.stderr.readline()):
            assert line, "the process ended before"
        yield process


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
def test_a_signal_leaves_a_checkpoint_and_resume_the_same_end(fedgps, long_run, number):
    with running(LONG, until=b"round 3/150") as process:
        process.send_signal(number)
        err = process.communicate(timeout=patient(60))[1].decode()
    assert process.returncode == 130
    assert "Traceback" not in err
    info = json.loads((trial_folder() / "trial.json").read_text())
    assert info["status"] == "interrupted"
    assert 3 <= info["summary"]["rounds_done"] < 150
    _, *command = shlex.split(err.partition("to continue: ")[2])
    resumed = fedgps(*command, "--json")
    assert resumed.code == 0
    assert f"continuing after round {info['summary']['rounds_done']}\n" in resumed.err
    assert resumed.json["summary"]["weights_sha256"] == long_run


def test_kill_minus_nine_loses_at_most_what_came_after_the_last_checkpoint(fedgps, long_run):
    with running([*LONG, "--checkpoint-seconds", "0"], until=b"round 60/150") as process:
        process.kill()
    assert process.returncode == -9
    resumed = fedgps("resume", "runs/default", "--json")
    done = int(resumed.err.partition("continuing after round ")[2].split()[0])
    assert 59 <= done < 150  # one a round, and the line may come before it
    assert resumed.json["summary"]["weights_sha256"] == long_run
    assert [path.name for path in trial_folder().glob("checkpoint/*.json")] == ["round-000149.json"]
