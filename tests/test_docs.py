"""What the documentation shows works as shown."""

import re
import shlex
from pathlib import Path

import pytest
import torch
from typer.main import get_command

from fedgps_ray.cli import app
from fedgps_ray.methods.base import Reply
from fedgps_ray.tensors import Update
from fedgps_ray.training.local import Client

ROOT = Path(__file__).parents[1]


def blocks(name):
    return re.findall(r"```python\n(.*?)```", (ROOT / name).read_text(), flags=re.DOTALL)


def test_the_worked_example_of_a_method_runs():
    code, line, test = blocks("docs/adding-a-method.md")
    assert line.strip() == '"fedema": FedEma,'
    names = {"__name__": "fedema", "torch": torch, "Reply": Reply, "Client": Client}
    names["Update"] = Update
    exec(compile(code + test, "docs/adding-a-method.md", "exec"), names)
    names["test_average_follows_the_model"]()


def shown_commands():
    text = (ROOT / "README.md").read_text()
    lines = [line.strip() for line in text.splitlines() if line.startswith("    fedgps-ray ")]
    return [shlex.split(line.split("#")[0])[1:] for line in lines]


@pytest.mark.parametrize("arguments", shown_commands(), ids=" ".join)
def test_every_command_of_the_readme_is_understood(arguments):
    name, *rest = arguments
    get_command(app).commands[name].make_context(name, rest)
