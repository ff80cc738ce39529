"""What the documentation shows works as shown."""

import re
import shlex
from pathlib import Path

import pytest
import torch
from typer.main import get_command

from fedgps_ray.cli import app
from fedgps_ray.methods.base import Reply
from fedgps_ray.tensors import Params, Update
from fedgps_ray.training.local import Client

ROOT = Path(__file__).parents[1]


def blocks(name):
    return re.findall(r"```python\n(.*?)```", (ROOT / name).read_text(), flags=re.DOTALL)


def test_the_worked_example_of_a_method_runs(monkeypatch):
    code, line, test = blocks("docs/adding-a-method.md")
    assert line.strip() == '"fedema": FedEma,'
    names = {"__name__": "fedema", "torch": torch, "Reply": Reply, "Client": Client}
    exec(compile(code, "docs/adding-a-method.md", "exec"), names)
    exec(compile(test, "docs/adding-a-method.md", "exec"), names | {"Update": Update})
    names |= {"Update": Update, "Params": Params}
    exec(compile(test + "\ntest_average_follows_the_model()", "docs", "exec"), names)


def shown_commands():
    text = (ROOT / "README.md").read_text()
    lines = [line.strip() for line in text.splitlines() if line.startswith("    fedgps-ray ")]
    return [shlex.split(line.split("#")[0])[1:] for line in lines]


@pytest.mark.parametrize("arguments", shown_commands(), ids=" ".join)
def test_every_command_of_the_readme_is_understood(arguments):
    command = get_command(app)
    name, *rest = arguments
    sub = command.commands[name]
    sub.make_context(name, rest)
