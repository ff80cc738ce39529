import numpy as np
import pytest
import torch

from fedgps_ray.data.datasets import NO_SOURCE
from fedgps_ray.errors import UserError
from fedgps_ray.methods.base import Reply, Turn
from fedgps_ray.methods.fedavg import FedAvg, Message
from fedgps_ray.methods.fedmr import FedMR, State, by_entry, by_module, recombined
from fedgps_ray.models import build
from fedgps_ray.rounds import checkpoint
from fedgps_ray.rounds.loop import Snapshot
from fedgps_ray.rounds.selection import schedule
from fedgps_ray.rounds.setup import prepare
from fedgps_ray.rounds.worker import Job, Worker
from fedgps_ray.spec import trial_spec
from fedgps_ray.tensors import Params, sha256, views
from fedgps_ray.training.local import Client
from fedgps_ray.training.network import layout_of

CONVNET = layout_of(build("convnet", (3, 8, 8), 4))
BLOCKS = [  # convolution and BatchNorm of the convnet
    ("body.0", "body.1"),
    ("body.4", "body.5"),
    ("body.8", "body.9"),
]


class Orders:
    """A stream of given permutations."""

    def __init__(self, *orders):
        self.orders = list(orders)

    def permutation(self, size):
        return np.array(self.orders.pop(0))


def marked(number):
    """Return as many convnets; all values of the k-th are k."""
    sizes = CONVNET.weights[-1].end, CONVNET.buffers[-1].end
    return [Params(*(torch.full((size,), float(k)) for size in sizes)) for k in range(number)]


def origins(mixture):
    """Return from which model each tensor comes; fails if one is mixed in itself."""
    tensors = views(mixture.weights, CONVNET.weights) | views(mixture.buffers, CONVNET.buffers)
    found = {name: tensor.unique() for name, tensor in tensors.items()}
    return {name: int(values) for name, values in found.items()}


def turn(round_index, clients=3):
    members = tuple(Client(k, (1,)) for k in range(clients))
    return Turn(round_index, members, np.random.default_rng(5))


def test_a_place_gets_the_layer_its_permutation_names(params, cohort):
    models, layout = [params(k) for k in (10.0, 20.0, 30.0)], cohort(3, 3, 0.0).layout
    mixed = recombined(models, layout, by_entry(layout), Orders([1, 2, 0]))
    assert [float(m.weights) for m in mixed] == [20.0, 30.0, 10.0]


@pytest.mark.parametrize("layers", [by_entry, by_module])
def test_every_layer_is_dealt_out_once(layers):
    mixed = recombined(marked(4), CONVNET, layers(CONVNET), np.random.default_rng(0))
    dealt = [origins(m) for m in mixed]
    for name in dealt[0]:
        assert sorted(d[name] for d in dealt) == [0, 1, 2, 3]
    assert len({tuple(d[name] for d in dealt) for name in dealt[0]}) > 1


def test_entries_are_shuffled_one_by_one_and_modules_stay_whole():
    entry = origins(recombined(marked(4), CONVNET, by_entry(CONVNET), np.random.default_rng(0))[0])
    module = origins(
        recombined(marked(4), CONVNET, by_module(CONVNET), np.random.default_rng(0))[0]
    )
    assert len(entry) == len(module) == 17

    def sources(origin, prefixes):
        return {k for name, k in origin.items() if name.rpartition(".")[0] in prefixes}

    assert all(len(sources(module, block)) == 1 for block in BLOCKS)
    assert any(len(sources(entry, block)) > 1 for block in BLOCKS)
    assert set(by_module(CONVNET).values()) == {"body.0", "body.4", "body.8", "head"}


def test_statistics_without_a_module_before_are_a_layer_of_their_own():
    layout = layout_of(torch.nn.Sequential(torch.nn.BatchNorm2d(2), torch.nn.Conv2d(2, 2, 1)))
    assert set(by_module(layout).values()) == {"0", "1"}


def test_plain_averaging_at_first_then_mixtures():
    method = FedMR(averaging_rounds=2)
    models = tuple(marked(3))
    state = method.merge(
        State(models, models[0], CONVNET),
        [Reply(Client(k, (9 * k,)), model) for k, model in enumerate(models)],
    )
    assert set(state.params.weights.tolist()) == {1.0}  # the uniform mean of 0, 1, 2
    for after in (1, 2):
        sent = method.send(state, turn(after))
        assert [set(m.params.weights.tolist()) for m in sent] == [{1.0}] * 3
    sent = method.send(state, turn(3))
    assert all(len(set(origins(m.params).values())) > 1 for m in sent)
    assert method.deploy(state, turn(3), None) is state.params


def test_the_first_round_sends_the_first_model_untouched(params, cohort):
    start = params(0.1, 0.7)
    state = FedMR().init(start, cohort(9, 3, 0.0, 0.0))
    assert [m.params.weights.tolist() for m in FedMR().send(state, turn(0))] == [[0.1, 0.7]] * 3


def test_mixtures_depend_on_the_servers_stream_alone():
    state = State(tuple(marked(3)), marked(1)[0], CONVNET)
    first, again = (
        [origins(m.params) for m in FedMR(layer="module").send(state, turn(4))] for _ in range(2)
    )
    assert first == again


def test_one_client_a_round_is_sequential_training(quick, tiny):
    alone = {"sampling_rate": 0.2}
    found = quick(FedMR(), **alone)
    spec = trial_spec(method="fedmr", **{**tiny, **alone})
    worker = Worker(prepare(spec, NO_SOURCE))
    model, velocities, expected = worker.initial(), {}, []
    for t, [k] in enumerate(schedule(spec, [c.num_examples for c in worker.clients])):
        done = worker.work(Job(k, t, Message(model), None, velocities.get(k)))
        model, velocities[k] = done.upload, done.velocity
        expected.append(sha256(model.weights))
    assert [finished.row["weights_sha256"] for finished in found] == expected


def test_shuffling_does_not_change_who_takes_part(quick):
    found, expected = quick(FedMR()), quick(FedAvg())
    for one, other in zip(found, expected, strict=True):
        assert [r["client"] for r in one.clients] == [r["client"] for r in other.clients]
    assert found[-1].row["weights_sha256"] != expected[-1].row["weights_sha256"]


def test_the_state_survives_a_checkpoint(quick, tmp_path):
    state = quick(FedMR(), rounds=1)[0].snapshot.state
    checkpoint.Saver(tmp_path, lambda value: value).save(Snapshot(1, state, {}))
    found, problems = checkpoint.load(tmp_path, lambda value: value)
    assert problems == []
    assert found.state.layout == state.layout
    assert all(
        a.weights.equal(b.weights) and a.buffers.equal(b.buffers)
        for a, b in zip(found.state.models, state.models, strict=True)
    )


def test_wrong_settings_are_refused():
    with pytest.raises(UserError, match=r"averaging_rounds.*got -1"):
        trial_spec(method={"name": "fedmr", "averaging_rounds": -1})
    with pytest.raises(UserError, match=r"layer.*'tensor'"):
        trial_spec(method={"name": "fedmr", "layer": "tensor"})
