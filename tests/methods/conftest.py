"""Quick trials through the runtime, what they send, and a client whose model is a few numbers."""

import pytest
import torch
from torch import nn

from fedgps_ray.data.batches import Batch
from fedgps_ray.data.datasets import NO_SOURCE
from fedgps_ray.methods.base import Cohort, Reply
from fedgps_ray.rounds.loop import Snapshot, run
from fedgps_ray.rounds.pool import InProcess
from fedgps_ray.rounds.setup import prepare
from fedgps_ray.rounds.worker import Worker
from fedgps_ray.spec import trial_spec
from fedgps_ray.tensors import Params, Update
from fedgps_ray.training.local import Client, Local, Sgd
from fedgps_ray.training.network import Network, layout_of

CPU = torch.device("cpu")
TINY = {
    "dataset": {"name": "synthetic", "image_size": 8, "train_size": 150, "test_size": 20},
    "partition": {"kind": "dirichlet", "alpha": 0.5},
    "model": "convnet",
    "clients": 5,
    "sampling_rate": 0.6,
    "batch_size": 16,
    "rounds": 3,
}


class Numbers(nn.Module):
    """A model whose parameters are single numbers, or one tensor of several."""

    def __init__(self, values):
        super().__init__()
        for position, value in enumerate(values):
            shape = torch.empty(len(value) if isinstance(value, tuple) else 1)
            self.register_parameter(f"p{position}", nn.Parameter(shape))


class Script:
    """So many batches without content, for gradients that are given."""

    def __init__(self, steps):
        self.steps = steps

    def shuffled(self, epochs):
        return iter([Batch(torch.zeros(1), torch.zeros(1), 0)] * self.steps)


def vector(values):
    flat = [n for v in values for n in (v if isinstance(v, tuple) else (v,))]
    return torch.tensor(flat, dtype=torch.float64)


@pytest.fixture
def params():
    """Make Params of the numbers given, in float64 and without buffers unless some are given."""

    def make(*values, buffers=()):
        return Params(vector(values), vector(buffers))

    return make


@pytest.fixture
def reply():
    """Make the reply of a client that moved by delta and has so many examples."""

    def make(delta, examples=1, buffers=(), client=0):
        return Reply(Client(client, (examples,)), Update(vector(delta), vector(buffers)))

    return make


@pytest.fixture
def cohort():
    """Make a cohort of some clients with one example each, for models of the numbers given."""

    def make(clients, per_round, *values):
        members = tuple(Client(k, (1,)) for k in range(clients))
        return Cohort(members, per_round, layout_of(Numbers(values)))

    return make


@pytest.fixture
def client():
    """Make a client with a model of the numbers given and so many steps to take."""

    def make(*values, steps=1, round_index=0, number=0, **sgd):
        network = Network(Numbers(values), CPU, torch.float64)
        network.load(Params(vector(values), vector(())))
        how = Sgd(**{"momentum": 0.0, "weight_decay": 0.0, **sgd})
        who = Client(number, (steps,))
        return Local(network, who, round_index, 2, 1, how, how.lr, Script(steps))

    return make


@pytest.fixture
def tiny():
    """Return the settings of a quick trial."""
    return dict(TINY)


@pytest.fixture
def quick():
    """Run a method for a few rounds on generated images and return the finished rounds."""

    def play(method, **settings):
        spec = trial_spec(method=method, **{**TINY, **settings})
        worker = Worker(prepare(spec, NO_SOURCE))
        state = spec.method.init(worker.initial(), worker.cohort())
        start = Snapshot(0, state, {})
        return list(run(spec, worker.cohort(), InProcess(worker), start))

    return play


@pytest.fixture
def hashes(quick):
    """Run a method for a few rounds and return the digest of the global weights after each."""
    return lambda method, **settings: [
        finished.row["weights_sha256"] for finished in quick(method, **settings)
    ]


@pytest.fixture
def traffic(quick):
    """Run a method and return what clients sent and received, in models, the lowest and highest."""

    def measure(method, **settings):
        finished = quick(method, **{"model": "cnn", **settings})
        size = method.global_params(finished[-1].snapshot.state).weights
        one = size.numel() * size.element_size()
        clients = [row for round_ in finished for row in round_.clients]
        return [
            extreme(row[way] for row in clients) / one
            for way in ("bytes_up", "bytes_down")
            for extreme in (min, max)
        ]

    return measure
