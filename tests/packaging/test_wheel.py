"""The wheel alone is enough: installed into an empty folder, away from the project."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
RESULTS = ROOT / "tests" / "results" / "layout1"
RUN = "import sys; sys.path.insert(0, ''); from fedgps_ray.cli import main; main()"


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """Return a copy of what is needed to build, so that nothing is written into the project."""
    folder = tmp_path_factory.mktemp("source")
    for name in ("pyproject.toml", "README.md", "LICENSE", "fedgps_ray", "analysis", "experiments"):
        subprocess.run(["cp", "-R", "-P", str(ROOT / name), str(folder)], check=True)
    return folder


@pytest.fixture(scope="module")
def wheel(source, tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    options = ["--no-deps", "--no-build-isolation", "--no-index", "-w", str(folder)]
    subprocess.run([*PIP, "wheel", *options, str(source)], check=True)
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    folder = tmp_path_factory.mktemp("installed")
    options = ["--no-deps", "--no-index", "--target", str(folder)]
    subprocess.run([*PIP, "install", *options, str(wheel)], check=True)
    return folder


@pytest.fixture
def elsewhere(tmp_path):
    """Return a working folder whose own modules have the names of our folders."""
    for name in ("analysis", "experiments"):
        (tmp_path / f"{name}.py").write_text(
            "raise RuntimeError('this is not part of the package')"
        )
    return tmp_path


def call(installed, folder, *arguments):
    """Run a command of the installed package, with the working folder first on the path."""
    return subprocess.run(
        [sys.executable, "-c", RUN, *map(str, arguments)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_one_package_is_installed(wheel):
    names = {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert {name for name in names if not name.endswith(".dist-info")} == {"fedgps_ray"}


@pytest.mark.parametrize("folder", ["analysis", "experiments"])
def test_every_file_comes_along(wheel, folder):
    tracked = subprocess.run(
        ["git", "ls-files", folder], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.split()
    if not tracked:
        pytest.skip("not a git checkout")
    inside = zipfile.ZipFile(wheel).namelist()
    assert [name for name in tracked if f"fedgps_ray/{name}" not in inside] == []


def test_the_installed_package_is_the_one_that_runs(installed, elsewhere):
    code = "import fedgps_ray; print(fedgps_ray.__file__)"
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    command = [sys.executable, "-c", code]
    found = subprocess.run(
        command, cwd=elsewhere, env=environment, capture_output=True, text=True, check=True
    )
    assert Path(found.stdout.strip()).is_relative_to(installed)


def test_report_runs_beside_modules_of_the_same_name(installed, elsewhere):
    ended = call(installed, elsewhere, "report", RESULTS, "--out", "here")
    assert ended.returncode == 0, ended.stderr
    assert (elsewhere / "here" / "report.html").stat().st_size > 10_000


def test_tables_of_the_paper_are_found(installed, elsewhere):
    ended = call(installed, elsewhere, "paper", "write", "cifar10_10_5_1", "--out", "mine.toml")
    assert ended.returncode == 0, ended.stderr
    original = ROOT / "experiments" / "paper" / "cifar10_10_5_1.toml"
    assert (elsewhere / "mine.toml").read_text() == original.read_text()
