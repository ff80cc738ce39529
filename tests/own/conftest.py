"""Code of a user's own, and the command line that runs it."""

import sys

import pytest

from fedgps_ray.cli import main
from fedgps_ray.cli.commands import resume

METHOD = '''
from dataclasses import dataclass
from typing import NamedTuple

from fedgps_ray.methods.base import BaseMethod, Work
from fedgps_ray.tensors import Params, Update, mean, moved, step
from fedgps_ray.training.gradients import backprop, cross_entropy
from fedgps_ray.training.local import train


class State(NamedTuple):
    params: Params
    seen: int


class Memory(NamedTuple):
    times: int


@dataclass(frozen=True)
class Mine(BaseMethod):
    """A method of mine."""

    strength: float = 0.5

    def init(self, params, cohort):
        return State(params, 0)

    def send(self, state, turn):
        return [state.params for _ in turn.clients]

    def work(self, local, message, memory):
        done = train(local, message, backprop(cross_entropy))
        times = 1 if memory is None else memory.times + 1
        return Work(moved(message, done.params), Memory(times), done.loss)

    def merge(self, state, replies):
        shares = [1.0 / reply.client.num_examples for reply in replies]
        delta = mean([reply.upload.delta for reply in replies], shares)
        buffers = mean([reply.upload.buffers for reply in replies], shares)
        return State(step(state.params, Update(delta, buffers), self.strength), state.seen + 1)
'''
COMMON = ["--model", "mlp", "--clients", "4", "--alpha", "1", "--rounds", "3"]
QUICK = [*COMMON, "--actors", "0", "--checkpoint-seconds", "0"]


@pytest.fixture
def here(tmp_path, monkeypatch):
    """Return the user's folder, with a method in it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(METHOD)
    resume._TOLD.clear()
    return tmp_path


@pytest.fixture
def fedgps_ray(monkeypatch, capsys):
    """Return a function that runs a command and returns its exit code, output and messages."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["fedgps-ray", *arguments])
        with pytest.raises(SystemExit) as end:
            main()
        said = capsys.readouterr()
        return end.value.code or 0, said.out, said.err

    return run
