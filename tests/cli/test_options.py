"""Options as they are declared: light, shared, and checked before anything is started."""

import dataclasses
import inspect
import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.main import get_command

from fedgps_ray import __version__
from fedgps_ray.cli import app, declared, options
from fedgps_ray.cli.commands.run import _will_train
from fedgps_ray.data.datasets import DATASETS
from fedgps_ray.data.specs import OWN
from fedgps_ray.errors import UserError
from fedgps_ray.methods import METHODS
from fedgps_ray.models import MODELS
from fedgps_ray.results.folders import below
from fedgps_ray.spec import KINDS

RESULTS = Path(__file__).parents[1] / "results" / "layout1"
HEAVY = ("torch", "ray", "pandas", "sklearn", "matplotlib")
PROBE = """
import atexit, json, sys
from fedgps_ray.cli import main
atexit.register(lambda: print(json.dumps([name for name in {heavy} if name in sys.modules])))
sys.argv = ["fedgps-ray", *{arguments}]
main()
"""


def heavy_imports(folder, *arguments):
    """Return the exit code of a command, and which slow packages it has imported."""
    code = PROBE.format(heavy=HEAVY, arguments=arguments)
    ended = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False
    )
    return ended.returncode, json.loads(ended.stdout.splitlines()[-1])


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("--help", 0),
        ("--version", 0),
        ("run --help", 0),
        ("sweep --help", 0),
        ("paper run --help", 0),
        ("rum", 2),
        ("run --nope", 2),
        ("run --rounds 0", 2),
        ("run --actors some", 2),
        ("run --alpha 0", 2),
        ("status gone", 2),
        ("report gone", 2),
        ("sweep gone.toml", 2),
        (f"status {RESULTS}", 0),
        (f"watch {RESULTS} --once", 0),
    ],
)
def test_light_commands_import_nothing_slow(command, code, tmp_path):
    assert heavy_imports(tmp_path, *command.split()) == (code, [])


@pytest.mark.parametrize("command", ["run --method fedgsp", "methods fedavg"])
def test_a_wrong_name_needs_no_ray(command, tmp_path):
    _, imported = heavy_imports(tmp_path, *command.split())
    assert "ray" not in imported


def test_version(capsys):
    with pytest.raises(SystemExit):
        app(args=["--version"])
    assert capsys.readouterr().out == f"fedgps-ray {__version__}\n"


def option_names(*path):
    found = get_command(app)
    for name in path:
        found = found.commands[name]
    return {name for each in found.params for name in each.opts if name.startswith("--")}


def test_paper_run_has_every_option_of_sweep():
    assert option_names("sweep") - option_names("paper", "run") == set()
    assert {"--storage", "--checkpoint-seconds"} <= option_names("paper", "run")


def test_every_body_takes_the_options_of_its_command():
    """The body is loaded by its name, which no type checker follows."""
    for command in (*app.registered_commands, *declared.paper.registered_commands):
        names = inspect.getclosurevars(command.callback).nonlocals
        module, _, name = names["body"].partition(":")
        body = getattr(__import__(f"fedgps_ray.cli.commands.{module}", fromlist=[name]), name)
        (parameter,) = inspect.signature(body).parameters.values()
        assert parameter.annotation is names["options"]


def test_names_in_the_help_are_those_that_exist():
    assert {*options.DATASETS, *OWN} == set(DATASETS)
    assert set(options.MODELS) == set(MODELS)
    assert set(options.PARTITIONS) == set(KINDS)


@pytest.mark.parametrize(
    "given",
    [
        {"actors": "-1"},
        {"device": "tpu"},
        {"client_cpus": 0.0},
        {"alpha": float("nan")},
        {"alpha": 0.5, "partition": "iid"},
        {"classes_per_client": 2},
        {"partition": "dirichlt"},
        {"sampling_rate": 0.0},
        {"lr": -1.0},
    ],
    ids=str,
)
def test_a_wrong_value_is_refused_when_options_are_made(given):
    with pytest.raises(UserError):
        declared.Run(**given)


def test_only_what_was_asked_for_reaches_the_execution():
    assert declared.Run().wanted == {}
    given = {"actors": "2", "device": "cpu", "download": True, "checkpoint_seconds": 0.0}
    assert declared.Run(**given).wanted == {**given, "actors": 2}
    file = Path(__file__)
    assert declared.Sweep(file=file, storage="s3://here").wanted == {"storage": "s3://here"}


# --- when Ray is started before the settings have been checked ------------------------------------


@pytest.fixture
def finished(tmp_path):
    """Return options of a trial that has ended."""
    found = declared.Run(method="fedavg", seed=3, folder=tmp_path)
    info = {"status": "finished", "spec": {"method": {"name": "fedavg"}, "seed": 3}}
    (tmp_path / "trials" / "0123").mkdir(parents=True)
    (tmp_path / "trials" / "0123" / "trial.json").write_text(json.dumps(info))
    return found


@pytest.mark.parametrize("method", METHODS)
def test_ray_starts_early_for_a_new_trial(method, tmp_path):
    assert _will_train(declared.Run(method=method, folder=tmp_path))


@pytest.mark.parametrize("given", [{"method": "fedgsp"}, {"model": "cnm"}, {"dataset": "gone.npz"}])
def test_ray_does_not_start_early_for_an_unknown_name(given, tmp_path):
    assert not _will_train(declared.Run(folder=tmp_path, **given))


def test_ray_does_not_start_early_for_a_finished_trial(finished):
    assert not _will_train(finished)
    assert _will_train(dataclasses.replace(finished, restart=True))
    assert _will_train(dataclasses.replace(finished, seed=4))


# --- results folders ------------------------------------------------------------------------------


def test_results_folders_are_found_below_a_folder(tmp_path):
    for name in ("a/sweep", "single/trials/0123", "deep/er/and/deeper"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "a/sweep/experiment.json").write_text("{}")
    (tmp_path / "single/trials/0123/trial.json").write_text("{}")
    (tmp_path / "deep/er/and/deeper/experiment.json").write_text("{}")
    found = [str(path.relative_to(tmp_path)) for path in below(tmp_path)]
    assert found == ["a/sweep", "single"]
