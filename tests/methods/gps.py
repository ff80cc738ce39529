"""FedGPS on paper: a model of five numbers, and free schedules over the recorded problem."""

import functools
import importlib.util
import sys
from pathlib import Path

import numpy as np
import torch
from torch import nn

from fedgps_ray.data.batches import Batch
from fedgps_ray.methods.base import Cohort, Reply, Turn
from fedgps_ray.models import build, initialise
from fedgps_ray.models.base import Model
from fedgps_ray.tensors import Params, leaves, num_bytes
from fedgps_ray.training.gradients import shifted
from fedgps_ray.training.local import Client, Local, Sgd
from fedgps_ray.training.network import Network


def _load(name, path):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


problem = _load("recorded_problem", Path(__file__).parents[1] / "golden" / "problem.py")

CPU = torch.device("cpu")
SCHEDULE = problem.SCHEDULE  # client 3 is new in round 1, client 2 skips it, client 0 skips round 2
STILL = Sgd(lr=1e-300, momentum=0.0, weight_decay=0.0)  # no number moves


def vector(*values):
    return torch.tensor(values, dtype=torch.float64)


def no_buffers(*weights):
    return Params(vector(*weights), vector())


def batch(x, y):
    return Batch(torch.tensor(x, dtype=torch.float64), torch.tensor(y, dtype=torch.int64))


class Script:
    """Hands out batches in their order; as surrogate set, the next one at each draw."""

    def __init__(self, *batches):
        self.batches, self.drawn = batches, 0

    def shuffled(self, epochs):
        for epoch in range(epochs):
            for given in self.batches:
                yield given._replace(epoch=epoch)

    def plain(self):
        return iter(self.batches)

    def draw(self):
        self.drawn += 1
        return self.batches[(self.drawn - 1) % len(self.batches)]


# --- a model of few numbers -----------------------------------------------------------------------


def tiny_network(dim=1, num_outputs=2):
    """Return z = x and logits = 0; by default three tensors of 1, 2 and 2 numbers."""
    model = Model(nn.Linear(dim, dim, bias=False), dim, num_outputs)
    network = Network(model, CPU, torch.float64)
    network.weights.zero_()
    network.weights[: dim * dim] = torch.eye(dim).flatten()
    return network


def tiny_local(round_index=1, network=None, **changes):
    settings = {
        "client": Client(0, (1,)),
        "num_classes": 1,
        "epochs": 1,
        "optimizer": STILL,
        "data": Script(batch([[1.0]], [0])),
        "surrogate": Script(batch([[1.0]], [0])),
        **changes,
    }
    lr = settings["optimizer"].lr
    return Local(network or tiny_network(), round=round_index, lr=lr, **settings)


def displacement(method, message, memory, round_index=1):
    """Return how far from the weights the gradient is taken."""
    local, seen = tiny_local(round_index), []

    def look(local, batch):
        seen.append(local.network.weights.clone())
        return torch.zeros(())

    local.network.weights.zero_()
    shift = method.shift(local, message, memory)
    (look if shift is None else shifted(look, shift))(local, None)
    assert not local.network.weights.any()
    return seen[0]


# --- rounds ---------------------------------------------------------------------------------------


class Rounds(problem.Problem):
    """The recorded problem with any schedule, numbers of samples, data and optimizer settings."""

    def __init__(self, method, schedule=SCHEDULE, samples=(15, 15, 15, 15), data=None, **sgd):
        super().__init__(method)
        self.schedule, self.data = schedule, data or problem.Scripted
        self.sgd = Sgd(**{"lr": 0.01, "max_norm": 10.0, **sgd})
        who = tuple(Client(k, (n, 0, 0, 0)) for k, n in enumerate(samples))
        self.cohort = Cohort(who, len(schedule[0]), self.network.layout)

    def turn(self, round_index):
        chosen = tuple(self.cohort.clients[k] for k in self.schedule[round_index])
        return Turn(round_index, chosen, np.random.default_rng(0))

    def local(self, client, round_index):
        made = super().local(client, round_index)
        made.data = made.surrogate = self.data(client.id, self.dtype)
        return made

    def play(self):
        """Play all rounds and return the state after each."""
        states = []
        for round_index in range(len(self.schedule)):
            self.round(round_index)
            states.append(self.state)
        return states

    def message(self, round_index):
        return self.method.send(self.state, self.turn(round_index))[0]

    def others(self, client, round_index):
        """Return the direction that a client would take now."""
        local = self.local(self.cohort.clients[client], round_index)
        return self.method.others(local, self.message(round_index), self.memories.get(client))

    def work(self, client, round_index):
        """Let a client work as it would now, without keeping anything."""
        local = self.local(self.cohort.clients[client], round_index)
        return self.method.work(local, self.message(round_index), self.memories.get(client))


def tensors_of(value):
    return [leaf for leaf in leaves(value) if isinstance(leaf, torch.Tensor)]


def same(a, b):
    """Say whether two values hold the same tensors, bit for bit."""
    a, b = tensors_of(a), tensors_of(b)
    return len(a) == len(b) and all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def first_difference(these, those):
    """Return the first round whose values are not the same, None if there is none."""
    pairs = enumerate(zip(these, those, strict=True))
    return next((round_index for round_index, (a, b) in pairs if not same(a, b)), None)


class Watched:
    """A method that notes whether work and merge leave what they are given as it was."""

    def __init__(self, method):
        self.method, self.calls, self.changed = method, 0, []

    def __getattr__(self, name):
        return getattr(self.method, name)

    def work(self, local, message, memory):
        return self._watch("work", self.method.work, (message, memory), local)

    def merge(self, state, replies):
        return self._watch("merge", self.method.merge, (state, replies))

    def _watch(self, name, function, given, *before):
        kept = [tensor.clone() for tensor in tensors_of(given)]
        result = function(*before, *given)
        self.calls += 1
        if not same(given, kept):
            self.changed.append(name)
        return result


# --- traffic --------------------------------------------------------------------------------------


@functools.cache
def traffic(method, model="resnet18"):
    """Return the bytes down and up of one client with ten classes, in rounds 0 and 1."""
    with torch.device("meta"):
        made = build(model, (3, 8, 8), method.num_outputs(10))
    network = Network(made, CPU, torch.float32)
    initialise(network.model, np.random.default_rng(0))
    client = Client(0, (2,))
    script = Script(Batch(torch.zeros(2, 3, 8, 8), torch.tensor([0, 1])))
    state, memory, sizes = method.init(network.params(), None), None, []
    for t in range(2):
        local = Local(network, client, t, 10, 1, Sgd(), 0.01, script, script)
        (message,) = method.send(state, Turn(t, (client,), np.random.default_rng(0)))
        work = method.work(local, message, memory)
        sizes.append((num_bytes(message), num_bytes(work.upload)))
        state, memory = method.merge(state, [Reply(client, work.upload)]), work.memory
    return sizes
