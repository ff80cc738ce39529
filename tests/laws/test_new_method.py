"""A method is added by one file and one test, as docs/adding-a-method.md says."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CODE, TEST = re.findall(
    r"```python\n(.*?)```", (ROOT / "docs" / "adding-a-method.md").read_text(), flags=re.DOTALL
)
EXPECTED = [  # some of the tests that take the new method in, none of which was edited
    "tests/laws/test_every_method.py::test_nothing_is_changed_in_place[fedema]",
    "tests/laws/test_every_method.py::test_it_survives_single_samples_and_missing_classes[fedema]",
    "tests/laws/test_every_method.py::test_every_round_changes_the_weights[fedema]",
    "tests/laws/test_every_method.py::test_a_method_has_no_global_state[fedema.py]",
    "tests/methods/test_fedema.py::test_average_follows_the_model",
    "tests/test_experiment.py::test_smoke_has_every_method",
]
FILES = [
    "tests/laws",
    "tests/methods/test_fedema.py",
    "tests/test_methods_doc.py",
    "tests/test_experiment.py",
    "tests/test_spec.py",
    "tests/tools/test_cost.py",
    "tests/analysis/test_metrics.py",
]
SELECTED = "fedema or smoke or published_methods"  # all methods together must not mind one more


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """Return a copy of the project with the two files of the worked example in it."""
    copy = tmp_path_factory.mktemp("project") / "copy"
    ignored = shutil.ignore_patterns(".*", "__pycache__", "runs", "test_new_method.py")
    shutil.copytree(ROOT, copy, symlinks=True, ignore=ignored)
    (copy / "fedgps_ray" / "methods" / "fedema.py").write_text(CODE)
    (copy / "tests" / "methods" / "test_fedema.py").write_text(TEST)
    return copy


def run(project, *arguments):
    """Run Python in the copy of the project."""
    environment = {**os.environ, "PYTHONPATH": str(project)}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=project,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_tests_take_the_worked_example_in(project):
    ended = run(project, "-m", "pytest", "-q", "-rA", "-k", SELECTED, *FILES)
    assert ended.returncode == 0, ended.stdout[-5000:]
    passed = set(re.findall(r"^PASSED (\S+)", ended.stdout, flags=re.MULTILINE))
    assert passed >= {*EXPECTED}


def test_the_command_line_knows_it_after_the_published_methods(project):
    shown = run(project, "-c", "from fedgps_ray.methods import METHODS; print(*METHODS)")
    assert shown.stdout.split()[-2:] == ["centralized", "fedema"]
    facts = run(project, "-c", "from fedgps_ray.cli import main; main()", "methods", "fedema")
    assert facts.returncode == 0, facts.stderr
    assert "tests a moving average" in facts.stdout
    assert "decay 0.5" in facts.stdout
