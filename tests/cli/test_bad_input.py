"""Bad input of every kind ends in one line and exit code 2: no traceback, nothing written."""

import json
import math
import os
import sys

import pytest

from fedgps_ray import cli
from fedgps_ray.cli.app import out, show_json
from fedgps_ray.cli.commands import trials
from fedgps_ray.errors import UserError
from fedgps_ray.experiment import load
from fedgps_ray.experiment.tables import parse_setting
from fedgps_ray.spec import execution_spec, trial_spec

DIGITS = "1" * 5000
LONG = "x" * 300
QUICK = ("run", "--actors", 0, "--model", "mlp", "--method", "fedavg", "--clients", 2)


@pytest.fixture
def fedgps(monkeypatch, capsys, tmp_path):
    """Return a function that runs a command which must not come as far as training."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(trials, "run_and_show", lambda *_: pytest.fail("it was accepted"))

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["fedgps-ray", *map(str, words)])
        with pytest.raises(SystemExit) as end:
            cli.main()
        said = capsys.readouterr()
        return end.value.code, " ".join(said.err.split())

    return run


@pytest.mark.parametrize(
    "words",
    [
        ("--actors", "²"),
        ("--actors", "٣"),
        ("--actors", DIGITS),
        ("--client-gpus", "inf"),
        ("--client-cpus", "inf"),
        ("--checkpoint-seconds", "inf"),
        ("--out", ""),
        ("--out=",),
        ("--out", "x/\udcff"),
        ("--method", "\udcff"),
        ("--dataset", "\udcff/x"),
        ("--dataset", f"{LONG}/x"),
        ("--dataset", f"{LONG}.npz"),
        ("--dataset", LONG),
        ("--dataset", "~nosuch/x"),
        ("--method", f"{LONG}.py:A"),
        ("--method", "~nosuch/a.py:A"),
        ("--model", f"{LONG}.py:A"),
        ("--set", f"rounds={DIGITS}"),
        ("--set", f"rounds=[{DIGITS}]"),
        ("--set", 'method="\\ud800"'),
        ("--set", 'model="\\ud800"'),
        ("--set", 'partition="\\ud800"'),
        ("--set", 'dataset="a\\u0000/b"'),
        ("--set", 'surrogate="a\\u0000.npz"'),
        ("--set", 'surrogate="~nosuch/a.npz"'),
        ("--set", "model.options=1"),
        ("--set", 'dataset={"name": "digits", "name": "synthetic"}'),
    ],
)
def test_a_run_refuses_what_it_cannot_use(fedgps, tmp_path, words):
    code, said = fedgps(*QUICK, *words)
    assert code == 2
    assert said
    assert "Traceback" not in said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "words",
    [
        *[(command, LONG) for command in ("status", "watch", "export", "report", "resume")],
        *[(command, "") for command in ("status", "export", "report")],
        ("verify", LONG),
        ("verify", f"{LONG}.py:A"),
        ("verify", "~nosuch/a.py:A"),
        ("doctor", "--no-ray", "--out", LONG),
        ("paper", "write", "cifar10_10_5_1", "--out", LONG),
        ("paper", "write", "cifar10_10_5_1", "--out", "/dev/null/a"),
        ("paper", "write", "cifar10_10_5_1", "--out", "nosuch/a.toml"),
        ("sweep", f"{LONG}.toml"),
    ],
)
def test_a_path_that_cannot_be_is_refused(fedgps, words):
    code, said = fedgps(*words)
    assert code == 2
    assert said.startswith("error: ")


EXPERIMENTS = {
    "a number of digits": f"[base]\nrounds = {DIGITS}",
    "a number of hex digits": f"[base]\nrounds = 0x{'f' * 6000}",
    "a path with a zero byte": '[base]\ndataset = "a\\u0000/b"',
    "a long path": f'[base]\ndataset = "{LONG}/b"',
    "the home of nobody": '[base]\ndataset = "~nosuch/b"',
    "many cells": "[grid]\nmethod = [{ name = 'fedgps', "
    + ", ".join(f"a{n} = [1, 2, 3, 4, 5, 6, 7, 8, 9]" for n in range(30))
    + " }]",
    "endless": "#" * (17 * 2**20),
}


@pytest.mark.timeout(30)
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_an_experiment_that_cannot_be_is_refused(fedgps, tmp_path, name):
    (tmp_path / "a.toml").write_text(EXPERIMENTS[name])
    code, said = fedgps("sweep", "a.toml", "--dry-run")
    assert code == 2
    assert said.startswith("error: ")


@pytest.mark.timeout(30)
def test_a_folder_or_a_pipe_is_no_experiment(fedgps, tmp_path):
    (tmp_path / "folder.toml").mkdir()
    os.mkfifo(tmp_path / "pipe.toml")
    for name in ("folder.toml", "pipe.toml"):
        assert fedgps("sweep", name, "--dry-run") == (2, f"error: {name} is not a file")


def test_a_file_is_no_folder(fedgps, tmp_path):
    (tmp_path / "file").touch()
    for command in ("status", "watch", "report", "resume", "export"):
        assert fedgps(command, "file") == (2, "error: file is not a folder")


@pytest.mark.timeout(30)
def test_a_file_without_end_is_no_experiment(fedgps):
    with open("huge.toml", "wb") as file:
        file.truncate(10**12)
    code, said = fedgps("sweep", "huge.toml", "--dry-run")
    assert code == 2
    assert "more than 16,777,216 bytes" in said


@pytest.mark.parametrize(
    "words",
    [("--out", "file"), ("--out", "file/x"), ("--out", LONG), ("--storage", "nosuch://x")],
)
def test_a_dry_run_refuses_the_places_that_a_launch_refuses(fedgps, tmp_path, words):
    (tmp_path / "a.toml").write_text("[base]\nmodel = 'mlp'\nmethod = 'fedavg'\nrounds = 1")
    (tmp_path / "file").write_text("")
    code, said = fedgps("sweep", "a.toml", "--dry-run", *words)
    assert code == 2
    assert said.startswith("error: ")


@pytest.mark.parametrize("speedup", ["0", "-1", "nan", "inf"])
def test_a_speedup_that_cannot_be_is_refused(fedgps, speedup):
    code, said = fedgps("paper", "list", "--gpu-speedup", speedup)
    assert code == 2
    assert said.startswith("error: --gpu-speedup ")


def test_json_for_scripts_has_only_what_json_knows(capsys):
    show_json({"a": [math.inf, -math.inf, math.nan, 0.1], "b": "NaN"})
    assert json.loads(capsys.readouterr().out, parse_constant=pytest.fail) == {
        "a": [None, None, None, 0.1],
        "b": "NaN",
    }


@pytest.mark.parametrize("width", [1, 10])
def test_methods_are_listed_in_a_narrow_window(monkeypatch, capsys, width):
    monkeypatch.setattr(out, "_width", width)
    monkeypatch.setattr(sys, "argv", ["fedgps-ray", "methods"])
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert not end.value.code
    assert "fedavg" in "".join(capsys.readouterr().out.split())


def test_a_bug_is_not_taken_for_a_users_mistake(fedgps, monkeypatch):
    def broken(*_, **__):
        raise OSError("of no file")

    monkeypatch.setattr(cli, "app", broken)
    monkeypatch.setattr(sys, "argv", ["fedgps-ray"])
    with pytest.raises(OSError, match="of no file"):
        cli.main()


def test_a_file_that_may_not_be_read_is_named(fedgps, monkeypatch):
    def refused(*_, **__):
        raise PermissionError(13, os.strerror(13), "/secret")

    monkeypatch.setattr(cli, "app", refused)
    assert fedgps() == (2, "error: cannot read or write /secret: Permission denied")


def test_python_gets_the_same_words():
    with pytest.raises(UserError, match="too long"):
        trial_spec(rounds=-(10**5000))
    with pytest.raises(UserError):
        trial_spec(init_seed="\ud800")
    with pytest.raises(UserError, match="hang_seconds"):
        execution_spec(hang_seconds=float("inf"))


def test_settings_that_are_right_stay_so(tmp_path):
    assert parse_setting("a.b=[1, 2.5, null]") == ("a.b", [1, 2.5, None])
    (tmp_path / "a.toml").write_bytes(b"[base]\r\nmodel = 'mlp'\r\n[grid]\r\nseed = [1, 2]\r\n")
    assert len(load(tmp_path / "a.toml").cells) == 2
