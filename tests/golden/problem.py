"""The tiny fixed problem of the recorded numbers, and its round protocol without a runtime."""

import json
from pathlib import Path

import numpy as np
import torch
from torch import nn

from fedgps_ray.data.batches import Batch
from fedgps_ray.methods.base import Cohort, Reply, Turn
from fedgps_ray.models.base import Model
from fedgps_ray.models.norm import BatchNorm
from fedgps_ray.tensors import Params
from fedgps_ray.training.local import Client, Local, Sgd
from fedgps_ray.training.network import Network

HERE = Path(__file__).parent
INPUTS = np.load(HERE / "inputs.npz")
FIXTURE = json.loads((HERE / "fixture.json").read_text())["scenarios"]["default"]
DERIVED = json.loads((HERE / "derived.json").read_text())
SCHEDULE = FIXTURE["schedule"]
WEIGHTS, BUFFERS = DERIVED["flat_order"][:8], DERIVED["flat_order"][8:]
OFFICIAL_LR = 0.00998


class Mean(nn.Module):
    def forward(self, x):
        return x.mean(dim=(2, 3))


def model():
    body = nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1, bias=False),
        BatchNorm(4),
        nn.ReLU(),
        nn.Conv2d(4, 8, 3, stride=2, padding=1, bias=False),
        BatchNorm(8),
        nn.ReLU(),
        Mean(),
    )
    return Model(body, 8, 8)


def flat(arrays, prefix, names, dtype):
    pieces = [torch.from_numpy(arrays[prefix + n].astype(np.float64)).flatten() for n in names]
    return torch.cat(pieces).to(dtype)


def initial(dtype):
    return Params(
        flat(INPUTS, "init/", WEIGHTS, dtype),
        flat(INPUTS, "init/", BUFFERS, dtype),
    )


class Scripted:
    """Hands out the recorded batches in their order, as real data and as surrogate set."""

    def __init__(self, client, dtype):
        self.at, self.step = f"client{client}/batch", 0
        self.dtype = dtype

    def _batch(self, number, kind):
        x = torch.from_numpy(INPUTS[f"{self.at}{number}/x_{kind}"]).to(self.dtype)
        return Batch(x, torch.from_numpy(INPUTS[f"{self.at}{number}/y_{kind}"]).long())

    def shuffled(self, epochs):
        for epoch in range(epochs):
            for number in range(3):
                self.step = number
                yield self._batch(number, "real")._replace(epoch=epoch)

    def draw(self):
        return self._batch(self.step, "sur")

    def plain(self):
        return iter([self._batch(number, "sur") for number in range(3)])


def clients():
    """Four clients; their class counts only matter for weighting by samples."""
    return tuple(Client(k, (15, 0, 0, 0)) for k in range(4))


class Problem:
    """Runs a method over the recorded schedule; keeps uploads, memories, velocities and locals."""

    def __init__(self, method, dtype=torch.float64, lr=OFFICIAL_LR, client_momentum="persist"):
        self.method, self.dtype = method, dtype
        self.network = Network(model(), torch.device("cpu"), dtype)
        self.sgd = Sgd(lr=lr, max_norm=10.0, client_momentum=client_momentum)
        self.cohort = Cohort(clients(), 3, self.network.layout)
        self.state = method.init(initial(dtype), self.cohort)
        self.memories, self.velocities, self.measured = {}, {}, {}

    def local(self, client, round_index):
        velocity = self.velocities.get(client.id)
        kept = velocity is not None and self.sgd.client_momentum == "persist"
        script = Scripted(client.id, self.dtype)
        return Local(
            self.network, client, round_index, 4, 1, self.sgd, self.sgd.lr, script, script,
            velocity.clone() if kept else None,
        )  # fmt: skip

    def ask(self, round_index):
        def answer(question, sent):
            return [
                question(self.local(c, round_index), self.memories.get(c.id), sent)
                for c in self.cohort.clients
            ]

        return answer

    def turn(self, round_index):
        chosen = tuple(self.cohort.clients[k] for k in SCHEDULE[round_index])
        return Turn(round_index, chosen, np.random.default_rng(0))

    def round(self, round_index):
        """Play one round and return what each client did."""
        turn, works = self.turn(round_index), []
        messages = self.method.send(self.state, turn)
        for client, message in zip(turn.clients, messages, strict=True):
            local = self.local(client, round_index)
            works.append(self.method.work(local, message, self.memories.get(client.id)))
            self.memories[client.id] = works[-1].memory
            self.velocities[client.id] = local.velocity
        for absent in set(self.memories) - {c.id for c in turn.clients}:
            self.memories[absent] = self.method.fade(self.memories[absent])
        self.measured = self.method.measure(self.state, turn, self.ask(round_index))
        replies = [Reply(c, w.upload) for c, w in zip(turn.clients, works, strict=True)]
        self.state = self.method.merge(self.state, replies)
        return works
