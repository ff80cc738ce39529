"""Importing the package costs nothing, and its functions stand beside its modules."""

import pickle
import subprocess
import sys
from pathlib import Path

import pytest

import fedgps_ray
from fedgps_ray import methods, models
from fedgps_ray.methods import METHODS

RESULTS = Path(__file__).parents[1] / "results" / "layout2"
HEAVY = "[name for name in ('torch', 'ray') if name in sys.modules]"


def python(code):
    """Run code in a new process and return what it prints."""
    command = [sys.executable, "-c", f"import sys, fedgps_ray\n{code}"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_importing_loads_nothing():
    everything = "[m for m in ('torch', 'ray', 'pandas', 'numpy', 'rich') if m in sys.modules]"
    assert python(f"print({everything})") == "[]"


def test_dir_lists_the_api_without_importing_it():
    listed = python(f"print([n for n in dir(fedgps_ray) if n[0] != '_'], {HEAVY})")
    names = sorted(fedgps_ray.API)
    assert listed == f"{names} []"


def test_reading_results_needs_no_pytorch():
    code = f"r = fedgps_ray.load({str(RESULTS)!r}); r.rounds, r.clients, r.trials, r.partitions\n"
    assert python(f"{code}repr(r), r._repr_html_()\nprint({HEAVY})") == "[]"


def test_a_spec_needs_no_ray():
    assert python(f"fedgps_ray.spec(rounds=3)\nprint({HEAVY})") == "['torch']"


@pytest.mark.parametrize("first", ["fedgps_ray.methods()", "import fedgps_ray.methods"])
def test_methods_is_a_module_and_a_function_whatever_comes_first(first):
    told = python(f"{first}\nprint(len(fedgps_ray.methods()), len(fedgps_ray.methods.METHODS))")
    assert told == f"{len(METHODS)} {len(METHODS)}"


def test_modules_are_imported_as_ever():
    assert methods.METHODS is METHODS
    assert "mlp" in models.MODELS
    assert fedgps_ray.spec.TrialSpec.__name__ == "TrialSpec"


@pytest.mark.parametrize("module", [fedgps_ray, fedgps_ray.spec])
def test_modules_can_be_sent_to_other_processes(module):
    assert pickle.loads(pickle.dumps(module)) is module


def test_what_does_not_exist_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'rnu'"):
        fedgps_ray.rnu  # noqa: B018
    assert not hasattr(fedgps_ray, "nothing")


def test_what_there_is_comes_as_frames():
    assert list(fedgps_ray.methods().index) == list(METHODS)
    assert fedgps_ray.methods().loc["fedgps", "options"]["rho"] > 0
    assert "cnn" in fedgps_ray.models().index
    assert "digits" in fedgps_ray.datasets().index
