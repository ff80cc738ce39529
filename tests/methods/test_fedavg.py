import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from pydantic import ValidationError

from fedgps_ray.methods.base import Reply, Turn
from fedgps_ray.methods.fedavg import FedAvg, Message, State
from fedgps_ray.tensors import Params, Update
from fedgps_ray.training.local import Client

_spec = importlib.util.spec_from_file_location("gps", Path(__file__).parent / "gps.py")
gps = importlib.util.module_from_spec(_spec)
sys.modules["gps"] = gps
_spec.loader.exec_module(gps)

START = Params(gps.vector(0.0, 0.0), gps.vector(1.0))


def replies(samples=(1, 3)):
    """Two clients that end with the models (1, 0) and (5, 4), and the buffers 10 and 20."""
    first, second = (Client(k, (n,)) for k, n in enumerate(samples))
    return [
        Reply(first, Update(gps.vector(1.0, 0.0), gps.vector(10.0))),
        Reply(second, Update(gps.vector(5.0, 4.0), gps.vector(20.0))),
    ]


def turn(*clients, round_index=0):
    return Turn(round_index, clients, np.random.default_rng(0))


# --- server ---------------------------------------------------------------------------------------


def test_weighting_by_samples_is_the_default():
    assert FedAvg().shares([Client(0, (2, 3)), Client(1, (7,))]) == [5.0, 7.0]


def test_only_the_proportions_among_the_clients_of_a_round_count():
    method = FedAvg()
    few, many = (method.merge(State(START), replies(n)).params for n in ((1, 3), (10, 30)))
    assert few.weights.tolist() == many.weights.tolist()


def test_updates_are_added_to_the_model_that_was_sent():
    start = Params(gps.vector(100.0, -100.0), gps.vector(1.0))
    merged = FedAvg().merge(State(start), replies())
    assert merged.params.weights.tolist() == [104.0, -97.0]
    assert merged.params.buffers.tolist() == [17.5]  # statistics are replaced, not added


def test_everyone_gets_the_model_and_nothing_else():
    messages = FedAvg().send(State(START), turn(Client(3, (1,)), Client(5, (1,))))
    assert messages == [Message(START)] * 2


def test_the_global_model_is_what_is_tested():
    method, state = FedAvg(), State(START)
    assert method.deploy(state, turn(), lambda *_: []) is START
    assert method.global_params(state) is START
    assert method.init(START, None) == state


def test_it_needs_no_noise_no_wider_head_no_memory():
    method = FedAvg()
    assert not method.needs_surrogate
    assert method.num_outputs(10) == 10
    assert method.measure(State(START), turn(), lambda *_: []) == {}
    kept = object()
    assert method.fade(kept) is kept


# --- client ---------------------------------------------------------------------------------------


def test_a_client_uploads_how_far_it_went_and_its_last_buffers():
    run = gps.Rounds(FedAvg(), momentum=0.0, weight_decay=0.0, max_norm=None)
    start = run.state.params
    work = run.work(0, 0)
    network = gps.Rounds(FedAvg()).network
    network.load(start)
    for number in range(3):
        batch = gps.problem.Scripted(0, torch.float64)._batch(number, "real")
        network.grads.zero_()
        torch.autograd.backward(F.cross_entropy(network(batch.x), batch.y))
        network.weights.sub_(0.01 * network.grads)
    torch.testing.assert_close(work.upload.delta, network.weights - start.weights)
    assert torch.equal(work.upload.buffers, network.buffers)
    assert work.memory is None


def test_inputs_are_left_alone():
    watched = gps.Watched(FedAvg())
    gps.Rounds(watched).play()
    assert watched.calls == 4 * (3 + 1)
    assert watched.changed == []


# --- one client is central training ---------------------------------------------------------------


def central(rounds, rebase):
    """Train by hand with torch's optimizer, whose momentum lives as long as the run.

    With rebase, the weights pass through a difference and a sum after each round, as they do when
    a client sends its update: start + (end - start) may differ from end in the last bit.
    """
    network = gps.Rounds(FedAvg()).network
    network.load(gps.problem.initial(torch.float64))
    optimizer = torch.optim.SGD(
        network.model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-5
    )
    for _ in range(rounds):
        start = network.weights.clone()
        for batch in gps.problem.Scripted(0, torch.float64).shuffled(1):
            optimizer.zero_grad(set_to_none=False)
            torch.autograd.backward(F.cross_entropy(network(batch.x), batch.y))
            optimizer.step()
        if rebase:
            network.weights.copy_(start + (network.weights - start))
    return network.params()


@pytest.mark.parametrize("weighting", ["samples", "uniform"])
def test_one_client_is_central_sgd_bit_for_bit(weighting):
    run = gps.Rounds(FedAvg(weighting=weighting), schedule=[[0]] * 5, max_norm=None)
    got, expected = run.play()[-1].params, central(5, rebase=True)
    assert torch.equal(got.weights, expected.weights)
    assert torch.equal(got.buffers, expected.buffers)
    # the difference and the sum cost no more than the last bit
    torch.testing.assert_close(got.weights, central(5, rebase=False).weights, rtol=0, atol=1e-14)


def test_identical_clients_are_one_client():
    one = gps.Rounds(FedAvg(), schedule=[[0]] * 3).play()
    data = lambda client, dtype: gps.problem.Scripted(0, dtype)  # noqa: E731
    four = gps.Rounds(FedAvg(), schedule=[[0, 1, 2, 3]] * 3, data=data).play()
    torch.testing.assert_close(four[-1].params.weights, one[-1].params.weights, rtol=0, atol=1e-14)


# --- options --------------------------------------------------------------------------------------


def test_weighting_matters_only_where_clients_differ_in_size():
    by_heads = FedAvg(weighting="uniform")
    for samples, expected in [((15, 15, 15, 15), None), ((15, 30, 5, 15), 0)]:
        these = gps.Rounds(FedAvg(), samples=samples).play()
        those = gps.Rounds(by_heads, samples=samples).play()
        assert gps.first_difference(these, those) == expected


@pytest.mark.parametrize("options", [{"weighting": "by_weight"}, {"wieghting": "uniform"}])
def test_an_invalid_option_is_told(options):
    with pytest.raises(ValidationError) as told:
        FedAvg(**options)
    ((name, value),) = options.items()
    assert name in str(told.value)
    assert value in str(told.value)


def test_the_model_is_all_that_travels():
    # ResNet-18 for ten classes: 11,173,962 weights and 9,600 BatchNorm statistics of 4 bytes
    one_way = 4 * (11_173_962 + 9_600)
    assert gps.traffic(FedAvg()) == [(one_way, one_way)] * 2
