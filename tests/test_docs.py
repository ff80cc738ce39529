"""What the documentation shows works as shown."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from fedgps_ray.cli import app, main

ROOT = Path(__file__).parents[1]
PAGES = ["README.md", *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md")))]
QUICK = "--rounds 1 --model mlp --actors 0"
OWN = f"mine.npz --method fedavg --clients 3 --alpha 1 {QUICK}"
RUNS = {  # what stands in for parts of the commands, so that each takes seconds
    "--rounds 20": QUICK,
    "my_images.npz --model convnet --method fedavg": OWN,
    "--set optimizer.lr=0.05": f"--set optimizer.lr=0.05 {QUICK}",
    "run --actors 0": f"run {QUICK}",
    "paper list": "paper list --no-estimate",
    "--no-estimate --no-estimate": "--no-estimate",
    "runs/quickstart": "runs/default",
    "my_study.toml": "experiments/quickstart.toml",
}
NEED_MORE = re.compile(  # a cluster, a name of the reader's, or minutes
    r"^(sweep(?!.*--dry-run)|paper run|bench|soak|chaos|doctor|resume|new)|[A-Z]{3,}"
    r"|--address|--actors 2|gpus"
    r"|^(run|report|verify|watch|status)$"
)


def blocks(name, language="python"):
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / name).read_text(), flags=re.DOTALL)


def shown_commands(name):
    """Return the commands of a page: lines that are code, and what stands in backticks."""
    text = (ROOT / name).read_text()
    lines = [line for line in text.splitlines() if line.startswith("    ")]
    found = [line.partition("#")[0].strip() for line in lines]
    found += re.findall(r"`(fedgps-ray [^`]*)`", text)
    return [shlex.split(line)[1:] for line in found if line.startswith("fedgps-ray ")]


ALL = sorted({shlex.join(command) for page in PAGES for command in shown_commands(page)})


def test_there_are_commands_to_test():
    assert len(ALL) > 20


@pytest.mark.parametrize("command", ALL)
def test_every_command_is_understood(command):
    """Options that do not exist, or values that cannot be, are refused here."""
    name, *rest = shlex.split(command)
    if name.startswith("--"):  # an option of the program itself
        assert CliRunner().invoke(app, [name, *rest]).exit_code == 0
        return
    found = get_command(app).commands[name]
    while hasattr(found, "commands") and rest:
        name, *rest = rest
        found = found.commands[name]
    if rest:  # a bare name is only spoken of
        found.make_context(name, [word for word in rest if word != "--help"])


@pytest.fixture(scope="module")
def playground(tmp_path_factory):
    """Return a folder with the experiment files, somebody's images and one finished trial."""
    folder = tmp_path_factory.mktemp("docs")
    (folder / "experiments").symlink_to(ROOT / "experiments")
    (code,) = blocks("docs/adding-a-data-set.md")
    subprocess.run([sys.executable, "-c", code], cwd=folder, check=True)
    subprocess.run([*PROGRAM, "new", "method", "my_method"], cwd=folder, check=True)
    quick = "run --model mlp --method fedavg --rounds 2 --actors 0"
    subprocess.run([*PROGRAM, *shlex.split(quick)], cwd=folder, check=True, capture_output=True)
    return folder


PROGRAM = [sys.executable, "-m", "fedgps_ray"]


def quick(command):
    """Return a command as the tests run it, or None if it needs a cluster or much time."""
    for shown, instead in RUNS.items():
        command = command.replace(shown, instead)
    return None if NEED_MORE.search(command) else command


@pytest.mark.parametrize("command", [shown for shown in ALL if quick(shown)])
def test_commands_that_need_no_cluster_run(command, playground, monkeypatch, capsys):
    monkeypatch.chdir(playground)
    monkeypatch.setattr(sys, "argv", ["fedgps-ray", *shlex.split(quick(command))])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 0, capsys.readouterr().err
    assert capsys.readouterr().out


ON_RAY = {  # what stands in for parts of the commands that need a cluster
    "my_study.toml": "experiments/quickstart.toml",
    "sweep experiments/quickstart.toml": "sweep experiments/quickstart.toml --set rounds=1",
    "--scale small": "--scale small --rounds 1",
    "--rounds 100": "--rounds 20",
}


def on_ray(command):
    """Return a command that needs a cluster as the tests run it, or None."""
    for shown, instead in ON_RAY.items():
        command = command.replace(shown, instead)
    elsewhere = re.search(r"[A-Z]{3,}|--address|gpus|--help|paper/", command)
    starts = re.match(r"(sweep .*toml|paper run|soak|doctor|resume runs/quickstart)", command)
    return command if starts and not elsewhere else None


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.timeout(300)
@pytest.mark.parametrize("command", sorted(filter(on_ray, ALL), reverse=True))
def test_commands_that_need_a_cluster_run(command, playground):
    if command == "resume runs/quickstart" and not (playground / "runs" / "quickstart").exists():
        runs_in(playground, "sweep experiments/quickstart.toml")
    runs_in(playground, command)


def runs_in(folder, command):
    """Run a command that needs a cluster in a folder."""
    ended = subprocess.run(
        [*PROGRAM, *shlex.split(on_ray(command))],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize("page", ["README.md", "docs/results.md"])
def test_the_frame_is_read_as_shown(page, playground, monkeypatch):
    monkeypatch.chdir(playground)
    code = "\n".join(blocks(page))
    names = {}
    exec(compile(code.replace("runs/quickstart", "runs/default"), page, "exec"), names)
    assert set(names["frame"]["method"]) >= {"fedavg"}
    assert names["frame"]["accuracy"].max() > 0


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)\)", (ROOT / page).read_text()):
        if "://" not in target:
            assert (ROOT / page).parent.joinpath(target).exists(), target
