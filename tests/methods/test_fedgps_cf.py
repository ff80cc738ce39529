import dataclasses
import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from fedgps_ray.errors import UserError
from fedgps_ray.methods.base import Turn
from fedgps_ray.methods.fedavg import FedAvg
from fedgps_ray.methods.fedgps import FedGPS, Message, Prototypes, State
from fedgps_ray.methods.fedgps_cf import FedGPSCF, Memory
from fedgps_ray.spec import trial_spec
from fedgps_ray.tensors import all_finite, num_bytes
from fedgps_ray.training.local import Client

_spec = importlib.util.spec_from_file_location("gps", Path(__file__).parent / "gps.py")
gps = importlib.util.module_from_spec(_spec)
sys.modules["gps"] = gps
_spec.loader.exec_module(gps)

vector = gps.vector
PROTOTYPES = Prototypes(torch.zeros(1, 1, dtype=torch.float64), torch.tensor([True]))
EVERYONE = [[0, 1, 2, 3]] * 4


def received(*weights):
    return Message(gps.no_buffers(*weights), None, None, 2.0)


def others(method, message, memory, round_index):
    got = method.others(gps.tiny_local(round_index), message, memory)
    return None if got is None else got.item()


# --- direction ------------------------------------------------------------------------------------

# received 1 in round 3 and 5 now: R = 4; the own update then was 2, one of two clients
KEPT = Memory(3, 0.5, vector(2.0), vector(1.0))


@pytest.mark.parametrize("remove_own", ["adjacent", "always"])
def test_in_the_very_next_round_the_own_update_is_removed(remove_own):
    # m = 2: (2*4 - 2) / 1
    method = FedGPSCF(cf_remove_own=remove_own)
    assert others(method, received(5.0), KEPT, round_index=4) == 6.0


@pytest.mark.parametrize(
    ("remove_own", "expected"),
    [
        ("adjacent", 4.0),  # R itself
        ("always", 3.0),  # R - D/2: the first of the rounds since then contains the own share
    ],
)
@pytest.mark.parametrize("round_index", [5, 9])
def test_cf_remove_own_decides_about_clients_that_skipped_rounds(remove_own, expected, round_index):
    method = FedGPSCF(cf_remove_own=remove_own)
    assert others(method, received(5.0), KEPT, round_index) == expected
    assert KEPT.received.item() == 1.0


def test_sample_weights_enter_the_removal():
    # share 1/4: next round (4 - 2/4) / (3/4), later 4 - 2/4
    kept = KEPT._replace(share=0.25)
    method = FedGPSCF(cf_remove_own="always")
    assert others(method, received(5.0), kept, round_index=4) == pytest.approx(3.5 / 0.75)
    assert others(method, received(5.0), kept, round_index=5) == pytest.approx(3.5)


def test_server_lr_scales_the_own_share_with_the_rest():
    # D = 2 and 6, U = 4, half of it is applied: R = 2; the other's half is 3 = (2 - .5*.5*2) / .5
    method = FedGPSCF(server_lr=0.5, cf_remove_own="always")
    assert others(method, received(3.0), KEPT, round_index=4) == 3.0
    assert others(method, received(3.0), KEPT, round_index=5) == 1.5  # 2 - .5


def test_a_newcomer_has_no_direction():
    assert others(FedGPSCF(), received(5.0), None, round_index=4) is None


def test_a_client_alone_in_its_round_has_no_others():
    assert others(FedGPSCF(), received(5.0), KEPT._replace(share=1.0), round_index=4) is None


def test_one_client_a_round_gives_no_undefined_number():
    schedule = [[0], [0], [1], [0]]
    run, plain = (gps.Rounds(FedGPSCF(rho=rho), schedule=schedule) for rho in (0.5, 0.0))
    states, unperturbed = run.play(), plain.play()
    assert all_finite(states)
    params = [[state.params for state in each] for each in (states, unperturbed)]
    assert gps.first_difference(*params) == 3  # client 0 comes back after client 1


def test_the_perturbation_is_that_of_fedgps_for_the_same_direction():
    # tensors with norms 3, 4 and 12 again: .5 / 19 of the way from the model received last
    went = vector(3.0, 4.0, 0.0, 0.0, 12.0)
    kept = Memory(0, 0.5, None, torch.ones(5, dtype=torch.float64))
    message = Message(gps.no_buffers(*(went + 1).tolist()), None, None, 2.0)
    got = gps.displacement(FedGPSCF(), message, kept, round_index=2)
    assert got.tolist() == pytest.approx([x * 0.5 / 19.0000001 for x in went.tolist()], rel=1e-12)


# --- against FedGPS -------------------------------------------------------------------------------


def compare(schedule, samples=(15, 15, 15, 15), **options):
    """Return round by round how far the weights of FedGPS-CF are from those of FedGPS."""
    runs = [gps.Rounds(kind(**options), schedule, samples).play() for kind in (FedGPS, FedGPSCF)]
    return [
        (a.params.weights - b.params.weights).abs().max().item() for a, b in zip(*runs, strict=True)
    ]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"server_lr": 0.5, "norm_epsilon": 0.0},
        {"weighting": "samples", "samples": (15, 30, 5, 15)},
        {"perturb_norm": "global", "direction": -1},
    ],
)
def test_with_all_clients_in_every_round_it_is_fedgps(options):
    assert max(compare(EVERYONE, **options)) < 1e-12


def test_it_differs_from_fedgps_once_a_client_comes_back():
    # client 2 skips round 1 and is back in round 2
    zero, one, two, _ = compare(gps.SCHEDULE)
    assert zero == 0
    assert one < 1e-12
    assert two > 1e-6


def test_cf_remove_own_makes_a_difference_once_a_client_comes_back():
    these, those = (
        gps.Rounds(FedGPSCF(cf_remove_own=how)).play() for how in ("adjacent", "always")
    )
    assert gps.first_difference(these, those) == 2


def test_with_two_clients_the_direction_is_the_other_ones_last_update():
    run = gps.Rounds(FedGPSCF(), schedule=[[0, 1]] * 3)
    for round_index in range(2):
        first, second = run.round(round_index)
        for k, other in ((0, second), (1, first)):
            torch.testing.assert_close(
                run.others(k, round_index + 1), other.upload.delta, rtol=1e-9, atol=1e-14
            )


@pytest.mark.parametrize("remove_own", ["adjacent", "always"])
def test_over_several_rounds_the_direction_is_the_sum_of_their_updates(remove_own):
    run = gps.Rounds(FedGPSCF(cf_remove_own=remove_own), schedule=[[0, 1], [1, 2], [2, 3], [0, 1]])
    first, updates = None, []
    for round_index in range(3):
        works = run.round(round_index)
        first = first or works[0]  # client 0 in round 0
        updates.append(run.state.update)
    expected = sum(updates)
    if remove_own == "always":
        expected = expected - first.upload.delta / 2
    torch.testing.assert_close(run.others(0, 3), expected, rtol=1e-9, atol=1e-14)


# --- memory ---------------------------------------------------------------------------------------


def test_a_client_remembers_the_weights_it_received():
    run = gps.Rounds(FedGPSCF())
    run.round(0)
    work = run.work(1, 1)
    assert work.memory.received is run.state.params.weights
    assert (work.memory.round, work.memory.share) == (1, pytest.approx(1 / 3))
    assert torch.equal(work.memory.delta, work.upload.delta)
    assert work.memory.model is None


def test_fade_drops_the_own_update_unless_it_is_always_removed():
    model = gps.no_buffers(9.0)
    kept = KEPT._replace(model=model)
    assert FedGPSCF().fade(kept) == Memory(3, 0.5, None, kept.received, model)
    assert FedGPSCF(cf_remove_own="always").fade(kept) is kept


@pytest.mark.parametrize("remove_own", ["adjacent", "always"])
def test_what_fade_drops_is_never_needed(remove_own):
    method = FedGPSCF(cf_remove_own=remove_own)
    watched = gps.Watched(method)
    watched.fade = lambda kept: kept
    assert gps.first_difference(gps.Rounds(method).play(), gps.Rounds(watched).play()) is None


@pytest.mark.parametrize("remove_own", ["adjacent", "always"])
def test_inputs_are_left_alone(remove_own):
    watched = gps.Watched(FedGPSCF(cf_remove_own=remove_own))
    gps.Rounds(watched).play()
    assert watched.calls == 4 * (3 + 1)
    assert watched.changed == []


# --- traffic --------------------------------------------------------------------------------------


def test_the_update_is_not_sent():
    state = State(gps.no_buffers(1.0), vector(2.0), PROTOTYPES, None)
    clients = (Client(0, (5,)), Client(1, (7,)))
    for weighting, total in (("uniform", 2.0), ("samples", 12.0)):
        turn = Turn(3, clients, np.random.default_rng(0))
        messages = FedGPSCF(weighting=weighting).send(state, turn)
        assert messages == [Message(state.params, None, PROTOTYPES, total)] * 2


def test_bytes_beside_fedavg_are_prototypes_and_the_wider_head():
    # ResNet-18, C = 10, d = 512, 4 bytes a number
    fedavg, cf = (gps.traffic(method)[1] for method in (FedAvg(), FedGPSCF()))
    prototypes, head = 2 * 10 * 512, 2 * 10 * 513
    # and C counts up, C marks of one byte and the sum of the aggregation weights down
    assert sum(cf) - sum(fedavg) == 4 * (prototypes + head) + 4 * 10 + 10 + 8


def test_bytes_beside_fedgps_are_one_model_less_down():
    gps_down, gps_up = gps.traffic(FedGPS())[1]
    cf_down, cf_up = gps.traffic(FedGPSCF())[1]
    assert gps_down - cf_down == 4 * 11_179_092
    assert gps_up == cf_up


def test_bytes_of_a_small_model_by_hand():
    # five weights of 8 bytes, no buffers, C = d = 1; the sum of the aggregation weights
    method = FedGPSCF()
    state = State(gps.no_buffers(1.0, 0.0, 0.0, 0.0, 0.0), vector(*range(5)), PROTOTYPES, None)
    (message,) = method.send(state, Turn(1, (Client(0, (1,)),), np.random.default_rng(0)))
    assert num_bytes(message) == 5 * 8 + 1 * 8 + 1 + 8
    assert num_bytes(method.work(gps.tiny_local(), message, None).upload) == 5 * 8 + 8 + 4


# --- options --------------------------------------------------------------------------------------


def test_it_has_the_options_of_fedgps_and_one_more():
    own, base = (
        {field.name: field.default for field in dataclasses.fields(kind)}
        for kind in (FedGPSCF, FedGPS)
    )
    assert set(own) - set(base) == {"cf_remove_own"}
    assert dataclasses.asdict(FedGPSCF()) == {
        **dataclasses.asdict(FedGPS()),
        "cf_remove_own": "adjacent",
    }
    assert FedGPSCF.optimizer == FedGPS.optimizer


@pytest.mark.parametrize("preset", ["default", "official", "paper"])
def test_presets_are_those_of_fedgps_but_for_newcomers(preset):
    spec, base = (
        trial_spec(method={"name": name, "preset": preset}) for name in ("fedgps_cf", "fedgps")
    )
    expected = {**dataclasses.asdict(base.method), "first_time": "none"}
    assert dataclasses.asdict(spec.method) == {**expected, "cf_remove_own": "adjacent"}
    assert spec.optimizer == base.optimizer
    assert (spec.init_seed, spec.selection) == (base.init_seed, base.selection)


def test_a_newcomer_cannot_follow_an_update_that_is_not_sent():
    with pytest.raises(ValueError, match="first_time = 'global_update'"):
        FedGPSCF(first_time="global_update")
    with pytest.raises(UserError, match="first_time = 'global_update'"):
        trial_spec(method={"name": "fedgps_cf", "first_time": "global_update"})


@pytest.mark.parametrize(
    ("name", "value"), [("cf_remove_own", "never"), ("rho", -0.5), ("cf_removeown", "always")]
)
def test_an_invalid_option_is_told_with_its_name_and_value(name, value):
    with pytest.raises(ValidationError) as told:
        FedGPSCF(**{name: value})
    assert name in str(told.value)
    assert f"input_value={value!r}" in str(told.value)
