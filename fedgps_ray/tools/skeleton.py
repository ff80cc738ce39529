"""The files that `fedgps-ray new method` writes: a method to change, and its test."""

import keyword
from pathlib import Path

from fedgps_ray.errors import UserError

METHOD = '''"""CLASS: say here what it does differently.

    fedgps-ray run --method NAME.py:CLASS --rounds 20
    fedgps-ray verify NAME.py:CLASS
    python -m pytest test_NAME.py
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from fedgps_ray.methods.base import BaseMethod, Cohort, Reply, Turn, Work
from fedgps_ray.tensors import Params, Update, mean, moved, step
from fedgps_ray.training.gradients import backprop, cross_entropy
from fedgps_ray.training.local import Local, train


class State(NamedTuple):
    """What the server knows between two rounds. Add what your method needs."""

    params: Params


class Memory(NamedTuple):
    """What a client keeps until it takes part again. Add what your method needs."""

    rounds: int


@dataclass(frozen=True)
class CLASS(BaseMethod):
    """FedAvg with a step size of the server."""

    # Options: --set method.server_lr=0.5, or { name = "NAME.py:CLASS", server_lr = 0.5 } in TOML.
    server_lr: float = 1.0

    def init(self, params: Params, cohort: Cohort) -> State:
        """Return the server's state before the first round."""
        return State(params)

    def send(self, state: State, turn: Turn) -> Sequence[Params]:
        """Return one message for each client of the round."""
        return [state.params] * len(turn.clients)

    def work(self, local: Local, message: Params, memory: Memory | None) -> Work:
        """Train on one client; memory is what it returned last time, None at first.

        train() is the usual loop of SGD; another loss or gradient goes in here.
        """
        done = train(local, message, backprop(cross_entropy))
        rounds = 1 if memory is None else memory.rounds + 1
        return Work(moved(message, done.params), Memory(rounds), done.loss, {"rounds": rounds})

    def merge(self, state: State, replies: Sequence[Reply[Update]]) -> State:
        """Return the next state; change nothing in place, keep nothing in self."""
        shares = [float(reply.client.num_examples) for reply in replies]
        delta = mean([reply.upload.delta for reply in replies], shares)
        buffers = mean([reply.upload.buffers for reply in replies], shares)
        return State(step(state.params, Update(delta, buffers), self.server_lr))
'''

TEST = '''"""CLASS computes what it should, and keeps the laws of all methods."""

from pathlib import Path

import pytest
import torch

from fedgps_ray.experiment import resolve
from fedgps_ray.methods.base import Reply
from fedgps_ray.tensors import Params, Update
from fedgps_ray.tools.verify import laws, prove
from fedgps_ray.training.local import Client

FOLDER = Path(__file__).parent


def made(**options):
    """Return the method as `fedgps-ray` makes it."""
    spec, _ = resolve({"method": {"name": "NAME.py:CLASS", **options}}, FOLDER)
    return spec.method


def reply(client, delta, examples):
    update = Update(torch.tensor([delta]), torch.zeros(0))
    return Reply(Client(client, (examples,)), update)


def test_the_server_moves_by_the_mean_update():  # 10 + 0.5 * (3 * 4 + 1 * 8) / 4 = 12.5
    method = made(server_lr=0.5)
    state = method.init(Params(torch.tensor([10.0]), torch.zeros(0)), None)
    state = method.merge(state, [reply(0, 4.0, 3), reply(1, 8.0, 1)])
    assert state.params.weights.item() == 12.5


@pytest.mark.parametrize("law", laws.checks(made()), ids=lambda law: law.claim)
def test_law(law):
    proof = prove(law)
    assert proof.holds, proof.got
'''


def class_name(name: str) -> str:
    """Return MyMethod for my_method; never the name of the file itself."""
    camel_case = "".join(part[:1].upper() + part[1:] for part in name.split("_"))
    return f"{camel_case}Method" if camel_case == name else camel_case


def write(name: str, folder: Path) -> list[Path]:
    """Write a method and its test; files that are there already stay."""
    if not name.isidentifier() or keyword.iskeyword(name) or not class_name(name):
        raise UserError(f"{name}: use a name of letters, digits and _, such as my_method")
    texts = {folder / f"{name}.py": METHOD, folder / f"test_{name}.py": TEST}
    for path in texts:
        if path.exists():
            raise UserError(f"{path} is there already; choose another name")
    folder.mkdir(parents=True, exist_ok=True)
    for path, text in texts.items():
        path.write_text(text.replace("CLASS", class_name(name)).replace("NAME", name))
    return list(texts)
