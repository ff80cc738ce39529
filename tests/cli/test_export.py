"""export, shell completion and --log, as a user gives them."""

import csv
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest

import fedgps_ray
from fedgps_ray import cli
from fedgps_ray.loggers.base import Curve
from fedgps_ray.loggers.csv_files import CsvFiles
from fedgps_ray.methods import METHODS
from fedgps_ray.results.export import write_table
from tests.cli.test_options import heavy_imports

RESULTS = Path(__file__).parents[1] / "results" / "layout2"
PROGRAM = str(Path(sys.executable).with_name("fedgps-ray"))
TABLES = ["clients", "partitions", "rounds", "trials"]


def fedgps(monkeypatch, *arguments):
    """Give a command in this process and return its exit code."""
    monkeypatch.setattr(sys, "argv", ["fedgps-ray", *map(str, arguments)])
    with pytest.raises(SystemExit) as end:
        cli.main()
    return end.value.code or 0


@pytest.mark.parametrize(("option", "ending"), [("--csv", "csv"), ("--parquet", "parquet")])
def test_all_tables_are_written(option, ending, tmp_path, monkeypatch, capsys):
    assert fedgps(monkeypatch, "export", RESULTS, option, "--out", tmp_path / "all") == 0
    assert sorted(path.name for path in (tmp_path / "all").iterdir()) == [
        f"{table}.{ending}" for table in TABLES
    ]
    read = pd.read_csv if ending == "csv" else pd.read_parquet
    known = fedgps_ray.load(RESULTS)
    written = read(tmp_path / "all" / f"rounds.{ending}")
    assert list(written["accuracy"]) == pytest.approx(list(known.rounds["accuracy"]), nan_ok=True)
    assert list(written.columns) == list(known.rounds.columns)
    assert f"rounds.{ending}: {len(known.rounds)} rows" in capsys.readouterr().out


def test_figures_of_a_method_are_json_in_csv(tmp_path, monkeypatch):
    result = fedgps_ray.run("fedlesam", rounds=1, model="mlp", out=tmp_path / "runs")
    fedgps(monkeypatch, "export", tmp_path / "runs", "--out", tmp_path / "rounds.csv")
    with (tmp_path / "rounds.csv").open() as file:
        (line,) = csv.DictReader(file)
    assert json.loads(line["metrics"]) == dict(result.rounds["metrics"][0])


def test_one_table_goes_to_one_file(tmp_path, monkeypatch, capsys):
    target = tmp_path / "who.parquet"
    arguments = ("export", RESULTS, "--out", target, "--table", "clients", "--json")
    assert fedgps(monkeypatch, *arguments) == 0
    assert json.loads(capsys.readouterr().out) == {str(target): len(pd.read_parquet(target))}


def test_the_default_is_a_folder_beside_the_trials(tmp_path, monkeypatch):
    fedgps_ray.run("fedavg", rounds=1, model="mlp", out=tmp_path)
    assert fedgps(monkeypatch, "export", tmp_path) == 0
    assert len(pd.read_csv(tmp_path / "export" / "rounds.csv")) == 1
    assert len(fedgps_ray.load(tmp_path)) == 1


def test_no_link_in_a_stranger_s_folder_is_followed(tmp_path, monkeypatch, capsys):
    elsewhere, folder = tmp_path / "elsewhere", shutil.copytree(RESULTS, tmp_path / "runs")
    elsewhere.mkdir()
    (elsewhere / "own.csv").write_text("precious")
    (folder / "export").symlink_to(elsewhere)
    assert fedgps(monkeypatch, "export", folder) == 2
    assert "is a symbolic link" in capsys.readouterr().err
    (folder / "export").unlink()
    (folder / "export").mkdir()
    (folder / "export" / "rounds.csv").symlink_to(elsewhere / "own.csv")
    assert fedgps(monkeypatch, "export", folder) == 0
    assert [path.read_text() for path in elsewhere.iterdir()] == ["precious"]
    assert (folder / "export" / "rounds.csv").stat().st_size > 100


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["gone"], "there is no folder gone"),
        (["."], "no trials in ."),
        ([RESULTS, "--csv", "--parquet"], "choose one of them"),
        ([RESULTS, "--parquet", "--out", "x.csv"], "its ending is for the other format"),
        ([RESULTS, "--table", "round"], "Did you mean 'rounds'?"),
        ([RESULTS, "--out", "/proc/none/x.csv"], "cannot write"),
    ],
)
def test_bad_exports_are_told(arguments, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert fedgps(monkeypatch, "export", *arguments) == 2
    assert said in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_export_needs_no_pytorch(tmp_path):
    code, imported = heavy_imports(tmp_path, "export", str(RESULTS), "--out", "all")
    assert code == 0
    assert not {"torch", "ray", "matplotlib"} & set(imported)


# --- shell completion -----------------------------------------------------------------------------


def completed(words):
    """Return what a shell offers for a line that is being typed."""
    asked = {
        "_FEDGPS_RAY_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split(" ")) - 1),
    }
    shell = subprocess.run(
        [PROGRAM], env={**os.environ, **asked}, capture_output=True, text=True, check=False
    )
    return shell.stdout.split()


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("fedgps-ray exp", ["export"]),
        ("fedgps-ray run --method fedg", ["fedgps", "fedgps_cf"]),
        ("fedgps-ray run --model res", ["resnet18", "resnet50"]),
        ("fedgps-ray run --dataset dig", ["digits"]),
        ("fedgps-ray run --local", ["--local-epochs"]),
        ("fedgps-ray sweep x.toml --log ten", ["tensorboard"]),
        ("fedgps-ray methods scaf", ["scaffold"]),
    ],
)
def test_a_shell_completes(words, offered):
    assert completed(words) == offered


def test_every_method_is_completed():
    assert set(completed("fedgps-ray run --method ")) == set(METHODS)


def test_completing_imports_nothing_slow(tmp_path, monkeypatch):
    monkeypatch.setenv("_FEDGPS_RAY_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "fedgps-ray run --method fed")
    monkeypatch.setenv("COMP_CWORD", "3")
    code, imported = heavy_imports(tmp_path)
    assert (code, imported) == (0, [])


def test_the_script_for_a_shell_is_shown():
    """Without a terminal the shell cannot be recognised, so it is named here."""
    named = {**os.environ, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    command = [PROGRAM, "--show-completion", "bash"]
    shown = subprocess.run(command, capture_output=True, text=True, check=False, env=named)
    assert "complete_bash" in shown.stdout


# --- --log ----------------------------------------------------------------------------------------


def test_run_logs_and_resume_knows(tmp_path, monkeypatch):
    run = "run --method fedavg --model mlp --rounds 2 --actors 0 --log csv --log tensorboard"
    monkeypatch.chdir(tmp_path)
    assert fedgps(monkeypatch, *run.split()) == 0
    assert len(list(tmp_path.glob("runs/default/logs/tensorboard/*/events.*"))) == 1
    assert len(pd.read_csv(next(tmp_path.glob("runs/default/logs/csv/*.csv")))) == 2
    info = json.loads(next(tmp_path.glob("runs/default/trials/*/trial.json")).read_text())
    assert info["execution"]["log"] == ["csv", "tensorboard"]


def test_an_unknown_logger_is_told(monkeypatch, capsys):
    assert fedgps(monkeypatch, "run", "--log", "tensorbord") == 2
    assert "unknown logger 'tensorbord'. Did you mean 'tensorboard'?" in capsys.readouterr().err


def test_a_return_in_a_text_begins_no_line(tmp_path):
    write_table(pd.DataFrame({"x": ["a\r=1", "\r=1"]}), tmp_path / "x.csv")
    assert (tmp_path / "x.csv").read_bytes() == "x\na\ufffd=1\n\ufffd=1\n".encode()


HARMFUL = ["=1+1", "+1", "@SUM(1)", "-2+3+cmd|' /C calc'!A0", "\tx"]


@pytest.mark.parametrize("text", HARMFUL)
def test_no_text_of_a_table_becomes_a_formula(text, tmp_path):
    kinds = {"text": [text, "x"], "number": [-1.5, 2.0], text: ["-", "-1.5"]}
    frame = pd.DataFrame(kinds).astype({"text": pd.ArrowDtype(pa.string())})
    write_table(frame.assign(kind=frame["text"].astype("category")), tmp_path / "x.csv")
    with (tmp_path / "x.csv").open(newline="") as file:
        head, first, second = csv.reader(file)
    assert head == ["text", "number", f"'{text}", "kind"]
    assert first == [f"'{text}", "-1.5", "-", f"'{text}"]
    assert second == ["x", "2.0", "-1.5", "x"]


@pytest.mark.parametrize("text", HARMFUL)
def test_no_text_of_a_log_becomes_a_formula(text, tmp_path):
    log = CsvFiles(tmp_path)
    named = {"method": "m", "dataset": "d", "scenario": 1, "seed": 0}
    curve = Curve("a" * 12, {**named, "model": text, text: -1}, {}, "running", {})
    log.write(curve, [{"round": 1, "loss": -2.0}])
    with next(tmp_path.glob("logs/csv/*.csv")).open(newline="") as file:
        head, line = csv.reader(file)
    assert head[4:7] == ["model", f"'{text}", "round"]
    assert line[4:7] == [f"'{text}", "-1", "1"]
    assert log.last_round(curve) == 1
