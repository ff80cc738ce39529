import dataclasses
import importlib.util
import math
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from fedgps_ray.data.partition import Dirichlet
from fedgps_ray.methods.base import Reply, Turn
from fedgps_ray.methods.fedavg import FedAvg
from fedgps_ray.methods.fedgps import (
    DIVERGENCE_BATCHES,
    ClassSums,
    FedGPS,
    Memory,
    Message,
    Prototypes,
    State,
    Upload,
    distance_to,
    feature_distance,
    pool,
    without_own,
)
from fedgps_ray.spec import trial_spec
from fedgps_ray.tensors import Params, all_finite, mean, norm, num_bytes, sum_of_norms
from fedgps_ray.training.local import Client, Sgd

_spec = importlib.util.spec_from_file_location("gps", Path(__file__).parent / "gps.py")
gps = importlib.util.module_from_spec(_spec)
sys.modules["gps"] = gps
_spec.loader.exec_module(gps)

batch, vector = gps.batch, gps.vector
NO_BUFFERS = vector()
# three tensors of 1, 2 and 2 numbers with norms 3, 4 and 12: their sum is 19, all in all 13
UPDATE = vector(3.0, 4.0, 0.0, 0.0, 12.0)
LAYOUT = gps.tiny_network().layout.weights
NUMBERS = st.floats(-100, 100).map(lambda x: round(x, 3))
UPDATES = st.lists(NUMBERS, min_size=5, max_size=5).map(lambda values: vector(*values))


def message(update=UPDATE, prototypes=None, total=2.0):
    params = gps.no_buffers(1.0, 0.0, 0.0, 0.0, 0.0)
    return Message(params, update, prototypes, total)


def memory(round_index=0, share=0.5, delta=UPDATE, model=None):
    return Memory(round_index, share, delta, model)


SKIPPED = memory(round_index=-1)  # took part before, but not in the round before


def turn(round_index, *clients):
    return Turn(round_index, clients, np.random.default_rng(0))


# --- path: the direction --------------------------------------------------------------------------


def others(method, now, kept, round_index=1):
    return method.others(gps.tiny_local(round_index), now, kept)


def test_in_round_0_there_is_no_direction():
    assert others(FedGPS(), message(update=None), None, round_index=0) is None


def test_a_client_of_the_last_round_takes_its_own_update_out():
    # m = 3: (3 U - D) / 2 with U = (3, 4, 0, 0, 12), D = (1, 2, 4, 0, -4)
    own = memory(share=1 / 3, delta=vector(1.0, 2.0, 4.0, 0.0, -4.0))
    got = others(FedGPS(), message(total=3.0), own)
    assert got.tolist() == pytest.approx([4.0, 5.0, -2.0, 0.0, 20.0])


def test_a_client_that_skipped_a_round_takes_the_whole_update():
    assert others(FedGPS(), message(), SKIPPED) is UPDATE


def test_first_time_decides_for_newcomers_only():
    assert others(FedGPS(), message(), None) is None
    assert others(FedGPS(first_time="global_update"), message(), None) is UPDATE
    # nobody has an update in round 0, and for the others it makes no difference
    assert others(FedGPS(first_time="global_update"), message(update=None), None) is None
    for kept in (memory(), SKIPPED):
        both = [others(FedGPS(first_time=f), message(), kept) for f in ("none", "global_update")]
        assert torch.equal(*both)


def test_leave_one_out_with_sample_weights_by_hand():
    # n = (1, 3), D = 1 and 5: U = 4; the first one's others are the second, (4 - 1/4) / (3/4) = 5
    update = vector(4.0)
    assert without_own(update, Memory(0, 0.25, vector(1.0))).item() == pytest.approx(5.0)
    assert without_own(update, Memory(0, 0.75, vector(5.0))).item() == pytest.approx(1.0)
    assert update.item() == 4.0


@settings(deadline=None)
@given(st.lists(st.tuples(UPDATES, st.integers(1, 50)), min_size=2, max_size=5), st.data())
def test_leave_one_out_is_the_weighted_mean_of_the_others(clients, data):
    k = data.draw(st.integers(0, len(clients) - 1))
    deltas, samples = [list(column) for column in zip(*clients, strict=True)]
    update = mean(deltas, samples)
    own = Memory(0, samples[k] / sum(samples), deltas[k])
    rest = mean(deltas[:k] + deltas[k + 1 :], samples[:k] + samples[k + 1 :])
    torch.testing.assert_close(without_own(update, own), rest, rtol=1e-9, atol=1e-8)


@pytest.mark.parametrize("weighting", ["samples", "uniform"])
def test_in_a_run_the_direction_is_the_weighted_mean_of_the_other_clients(weighting):
    samples = (10, 20, 30, 40)
    run = gps.Rounds(FedGPS(weighting=weighting), samples=samples)
    works = run.round(0)  # clients 0, 1, 2
    deltas = [work.upload.delta for work in works]
    for k in (0, 1):
        rest = [j for j in range(3) if j != k]
        by = [samples[j] if weighting == "samples" else 1 for j in rest]
        torch.testing.assert_close(run.others(k, 1), mean([deltas[j] for j in rest], by))


def test_with_two_clients_the_direction_is_the_other_ones_last_update():
    run = gps.Rounds(FedGPS(), schedule=[[0, 1]] * 3)
    for round_index in range(2):
        first, second = run.round(round_index)
        torch.testing.assert_close(run.others(0, round_index + 1), second.upload.delta)
        torch.testing.assert_close(run.others(1, round_index + 1), first.upload.delta)
        assert (first.upload.delta - second.upload.delta).abs().max() > 1e-3


def test_with_identical_clients_the_direction_is_everyones_update():
    run = gps.Rounds(
        FedGPS(),
        schedule=[[0, 1, 2]] * 3,
        data=lambda client, dtype: gps.problem.Scripted(0, dtype),
    )
    for round_index in range(2):
        works = run.round(round_index)
        for k in range(3):
            own = works[k].upload.delta
            torch.testing.assert_close(run.state.update, own, rtol=1e-12, atol=1e-15)
            others_update = run.others(k, round_index + 1)
            torch.testing.assert_close(others_update, own, rtol=1e-9, atol=1e-14)


def test_a_client_alone_in_its_round_has_no_others():
    assert others(FedGPS(), message(total=1.0), memory(share=1.0)) is None
    assert not gps.displacement(FedGPS(), message(total=1.0), memory(share=1.0)).any()


def test_one_client_a_round_gives_no_perturbation_and_no_undefined_number():
    schedule = [[0], [0], [1], [0]]
    run, plain = (gps.Rounds(FedGPS(rho=rho), schedule=schedule) for rho in (0.5, 0.0))
    states, unperturbed = run.play(), plain.play()
    assert all_finite(states)
    # client 0 alone twice, client 1 for the first time; then client 0 follows client 1's update
    params = [[state.params for state in each] for each in (states, unperturbed)]
    assert gps.first_difference(*params) == 3


# --- path: the size -------------------------------------------------------------------------------


def test_the_sum_of_tensor_norms_is_the_default_size():
    # .5 / (19 + 1e-7) of the update
    got = gps.displacement(FedGPS(), message(), SKIPPED)
    assert got.tolist() == pytest.approx([x * 0.5 / 19.0000001 for x in UPDATE.tolist()], rel=1e-12)


def test_the_norm_of_the_whole_vector_is_the_papers_size():
    method = FedGPS(perturb_norm="global", norm_epsilon=0.0)
    got = gps.displacement(method, message(), SKIPPED)
    assert got.tolist() == pytest.approx([x * 0.5 / 13 for x in UPDATE.tolist()], rel=1e-12)


def test_direction_turns_the_sign_and_nothing_else():
    ahead = gps.displacement(FedGPS(), message(), SKIPPED)
    assert torch.equal(gps.displacement(FedGPS(direction=-1), message(), SKIPPED), -ahead)
    assert torch.equal(ahead.sign(), UPDATE.sign())


@pytest.mark.parametrize(
    ("epsilon", "scale"),
    [
        (1e-7, 0.5 / 1.5e-7),
        (0.0, 0.5 / 5e-8),
        (-1e-7, -0.5 / 5e-8),  # the authors' sign: below 1e-7 it turns around
    ],
)
def test_norm_epsilon_matters_for_a_tiny_update(epsilon, scale):
    tiny = vector(5e-8, 0.0, 0.0, 0.0, 0.0)
    got = gps.displacement(FedGPS(norm_epsilon=epsilon), message(tiny), SKIPPED)
    assert got[0].item() == pytest.approx(scale * 5e-8, rel=1e-6)


@pytest.mark.parametrize("epsilon", [1e-7, 0.0, -1e-7])
def test_an_update_of_nothing_gives_no_perturbation(epsilon):
    method = FedGPS(norm_epsilon=epsilon)
    assert not gps.displacement(method, message(torch.zeros(5).double()), SKIPPED).any()


def test_rho_is_the_length():
    half = gps.displacement(FedGPS(), message(), SKIPPED)
    torch.testing.assert_close(gps.displacement(FedGPS(rho=1.0), message(), SKIPPED), 2 * half)


@settings(deadline=None)
@given(UPDATES, st.floats(0.01, 10))
def test_the_lengths_of_the_tensors_add_up_to_rho(update, rho):
    size = sum_of_norms(update, LAYOUT)
    got = gps.displacement(FedGPS(rho=rho), message(update), SKIPPED)
    expected = rho * size / (size + 1e-7)
    assert sum_of_norms(got, LAYOUT) == pytest.approx(expected, rel=1e-9, abs=1e-12)


@settings(deadline=None)
@given(UPDATES.filter(lambda u: norm(u) > 0), st.floats(0.01, 10))
def test_the_length_of_the_whole_vector_is_rho(update, rho):
    method = FedGPS(rho=rho, perturb_norm="global", norm_epsilon=0.0)
    got = gps.displacement(method, message(update), SKIPPED)
    assert norm(got) == pytest.approx(rho, rel=1e-9)


@settings(deadline=None)
@given(UPDATES, UPDATES, st.floats(1e-3, 1e3), st.sampled_from(["sum", "global"]))
def test_scaling_all_updates_alike_changes_nothing(update, own, factor, how):
    method = FedGPS(perturb_norm=how, norm_epsilon=0.0)
    before = gps.displacement(method, message(update), memory(delta=own))
    after = gps.displacement(method, message(factor * update), memory(delta=factor * own))
    torch.testing.assert_close(after, before, rtol=1e-6, atol=1e-6)


def test_the_gradient_is_taken_at_the_shifted_weights():
    # rho 19 and no epsilon shift by the update itself: the body's weight is 1 + 3 in the pass
    method = FedGPS(rho=19.0, norm_epsilon=0.0)
    local = gps.tiny_local(surrogate=gps.Script(batch([[2.0]], [0])))
    work = method.work(local, message(), SKIPPED)
    assert work.upload.class_means.item() == pytest.approx(8.0)  # (1 + 3) * 2
    assert work.upload.delta.abs().max() < 1e-250  # and back again: at this rate nothing moves


# the message's weights have the norm 1, so a share of them is a length
@pytest.mark.parametrize("how", ["sum", "global"])
def test_rho_relative_is_the_share_of_the_weights_norm_whatever_the_norm_of_the_update(how):
    method = FedGPS(rho=7.0, rho_relative=0.0015, perturb_norm=how, norm_epsilon=0.0)
    for weights in ((1.0, 0.0, 0.0, 0.0, 0.0), (3.0, 0.0, 4.0, 0.0, 0.0)):
        sent = message()._replace(params=gps.no_buffers(*weights))
        size = 0.0015 * norm(vector(*weights))
        got = gps.displacement(method, sent, SKIPPED)
        assert got.tolist() == pytest.approx([x * size / 13 for x in UPDATE.tolist()], rel=1e-12)


def test_rho_relative_alone_decides_whether_there_is_a_path():
    assert FedGPS(rho=0.0, rho_relative=0.1).looks_ahead
    assert not FedGPS(rho=0.5, rho_relative=0.0).looks_ahead
    assert not FedGPS(rho=0.0).looks_ahead
    state = State(gps.no_buffers(1.0), vector(2.0), None, None)
    for share, sent in ((0.1, True), (0.0, False)):
        method = FedGPS(rho=0.0 if sent else 0.5, rho_relative=share)
        (told,) = method.send(state, turn(1, Client(0, (1,))))
        assert (told.update is not None) == sent


def test_the_size_of_the_look_ahead_is_reported():
    # rho 13 and the global norm: e is the update of norm 13, the weights have norm 1
    method = FedGPS(rho=13.0, perturb_norm="global", norm_epsilon=0.0, goal=False)
    local = gps.tiny_local(optimizer=Sgd(lr=1.0, momentum=0.0, weight_decay=0.0))
    work = method.work(local, message(), SKIPPED)
    assert work.metrics == {
        "ahead_to_weights": pytest.approx(13.0),
        "ahead_to_update": pytest.approx(13.0 / norm(work.upload.delta)),
    }
    assert method.work(gps.tiny_local(), message(), None).metrics == {}


def test_the_reported_sizes_reach_the_rows_of_a_trial(quick):
    rows = [finished.row for finished in quick(FedGPS(rho_relative=0.01), rounds=3)]
    assert rows[0]["metrics"] == {}  # nobody has an update to follow yet
    assert rows[2]["metrics"]["ahead_to_weights"] == pytest.approx(0.01, rel=1e-4)
    assert rows[2]["metrics"]["ahead_to_update"] > 0


# --- path: when there is none ---------------------------------------------------------------------


def test_without_rho_the_gradient_is_the_plain_one_and_no_update_travels():
    method = FedGPS(rho=0.0)
    assert method.shift(gps.tiny_local(), message(), memory()) is None
    state = State(gps.no_buffers(1.0), vector(2.0), None, None)
    (sent,) = method.send(state, turn(1, Client(0, (1,))))
    assert sent.update is None
    assert method.work(gps.tiny_local(), message(None), None).memory.delta is None


def test_round_0_equals_training_without_the_path_part():
    these, those = (gps.Rounds(FedGPS(rho=rho)) for rho in (0.5, 0.0))
    for k in range(3):
        assert gps.same(these.work(k, 0).upload, those.work(k, 0).upload)


def test_a_newcomer_equals_training_without_the_path_part():
    run = gps.Rounds(FedGPS())
    run.round(0)
    perturbed = {k: run.work(k, 1).upload for k in (0, 1, 3)}
    run.method = FedGPS(rho=0.0)
    plain = {k: run.work(k, 1).upload for k in (0, 1, 3)}
    assert gps.same(perturbed[3], plain[3])
    assert not gps.same(perturbed[0], plain[0])
    assert not gps.same(perturbed[1], plain[1])


# --- goal: the objective --------------------------------------------------------------------------

# two classes, two features, all logits 0: each cross-entropy is log 4
REAL, SURROGATE = ((1, 0), (0, 1)), ((1, 0), (0, 1))
LABELS = torch.tensor([0, 1])
ALIKE = ((1, 0), (1, 0), (0, 1))
ALL_OFF = {"w_surrogate_ce": 0.0, "w_align": 0.0, "w_surrogate_supcon": 0.0, "w_proto": 0.0}
PROTOTYPES = Prototypes(
    torch.tensor([[1.0, 2.0], [3.0, 0.0]], dtype=torch.float64), torch.tensor([True, True])
)


def objective(real=REAL, surrogate=SURROGATE, y=(LABELS, LABELS), prototypes=None, **options):
    """Return the objective and its gradient by the features."""
    network = gps.tiny_network(dim=2, num_outputs=4)
    z = torch.tensor((*real, *surrogate), dtype=torch.float64, requires_grad=True)
    method = FedGPS(**{**ALL_OFF, "temperature": 1.0, **options})
    local = gps.tiny_local(network=network, num_classes=2)
    loss = method.objective(local, y, z, prototypes)
    torch.autograd.backward(loss)
    return loss.item(), z.grad


def test_only_the_real_images_count_when_all_weights_are_nothing():
    loss, _ = objective()
    assert loss == pytest.approx(math.log(4))


def test_surrogate_labels_are_shifted_behind_the_real_ones():
    # logits log 1, log 2, log 3, log 4 for every image: real class 0 has 1/10, surrogate class 1
    # has 4/10
    network = gps.tiny_network(dim=1, num_outputs=4)
    network.weights[-4:] = torch.tensor([1.0, 2.0, 3.0, 4.0]).log()
    local = gps.tiny_local(network=network, num_classes=2)
    z = torch.zeros(2, 1, dtype=torch.float64)
    labels = (torch.tensor([0]), torch.tensor([1]))
    for weight in (0.0, 1.0, 2.5):
        method = FedGPS(**{**ALL_OFF, "w_surrogate_ce": weight})
        loss = method.objective(local, labels, z, None).item()
        assert loss == pytest.approx(math.log(10) + weight * math.log(10 / 4), rel=1e-6)


@pytest.mark.parametrize(("labels", "contrast"), [("distinct", 0.0), ("matched", 0.5514447)])
def test_align_labels_decides_whether_real_and_surrogate_classes_attract(labels, contrast):
    # matched: each row has its positive at similarity 1 and two others at 0: log(e + 2) - 1
    for weight in (1.0, 0.1):
        loss, _ = objective(w_align=weight, align_labels=labels)
        assert loss == pytest.approx(math.log(4) + weight * contrast, abs=1e-7)


def test_align_labels_distinct_still_contrasts_real_rows_among_themselves():
    # real rows (1,0), (1,0) of class 0, surrogate row (0,1) of class 0: log(e + 1) - 1 for two
    # anchors of three; matched, all three are positives of each other:
    # rows 0, 1: (.3132617 + 1.3132617)/2 each, row 2: log 2
    y = (torch.tensor([0, 0]), torch.tensor([0]))
    parts = {"real": ((1, 0), (1, 0)), "surrogate": ((0, 1),), "y": y, "w_align": 1.0}
    distinct, _ = objective(**parts)
    matched, _ = objective(**parts, align_labels="matched")
    assert distinct == pytest.approx(math.log(4) + 0.2088411, abs=1e-7)
    assert matched == pytest.approx(math.log(4) + (2 * 0.8132617 + math.log(2)) / 3, abs=1e-7)


@pytest.mark.parametrize("detach", [True, False])
def test_align_detach_surrogate_stops_the_gradient_at_the_surrogate_rows(detach):
    real, surrogate = ((1, 0.5), (0.5, 1)), ((1, 0.25), (0, 1))
    parts = {"w_align": 1.0, "align_labels": "matched", "align_detach_surrogate": detach}
    loss, gradient = objective(real, surrogate, **parts)
    assert gradient[:2].norm() > 0.1
    assert (gradient[2:].norm() == 0) == detach
    parts["align_detach_surrogate"] = not detach
    assert objective(real, surrogate, **parts)[0] == loss


@pytest.mark.parametrize("weight", [0.1, 2.0])
def test_surrogate_rows_are_contrasted_by_class(weight):
    y = (LABELS, torch.tensor([0, 0, 1]))
    loss, gradient = objective(surrogate=ALIKE, y=y, w_surrogate_supcon=weight)
    assert loss == pytest.approx(math.log(4) + weight * 0.2088411, abs=1e-7)
    assert not gradient[:2].any()
    assert gradient[2:].norm() > 0  # nothing is detached here


def test_temperature_sharpens_the_contrast():
    y = (LABELS, torch.tensor([0, 0, 1]))
    loss, _ = objective(surrogate=ALIKE, y=y, w_surrogate_supcon=1.0, temperature=0.07)
    assert loss == pytest.approx(math.log(4) + 4.16583e-7, abs=1e-11)


@pytest.mark.parametrize("weight", [0.1, 0.2])
def test_distance_to_the_prototypes_by_hand(weight):
    # rows (1,0), (0,1) to (1,2), (3,0): (0 + 4)/2 = 2 and (9 + 1)/2 = 5, mean 3.5
    loss, gradient = objective(prototypes=PROTOTYPES, w_proto=weight)
    assert loss == pytest.approx(math.log(4) + weight * 3.5)
    # twice the difference, divided by 2 rows and 2 dimensions
    assert gradient[2:].flatten().tolist() == pytest.approx(
        [0.0, -weight, -1.5 * weight, 0.5 * weight]
    )
    assert not gradient[:2].any()


def test_there_is_no_prototype_term_before_there_are_prototypes():
    assert objective(w_proto=0.1) == (pytest.approx(math.log(4)), pytest.approx(0, abs=0))


def test_a_class_without_prototype_is_left_out_of_the_mean():
    # of 2 and 5 only the first counts, and it alone is the mean
    known = Prototypes(PROTOTYPES.values, torch.tensor([True, False]))
    z = torch.tensor(SURROGATE, dtype=torch.float64)
    assert distance_to(known, z, LABELS).item() == 2.0
    nothing = Prototypes(PROTOTYPES.values, torch.tensor([False, False]))
    assert distance_to(nothing, z, LABELS).item() == 0.0


def test_all_terms_add_up():
    y = (LABELS, torch.tensor([0, 0, 1]))
    terms = ("w_surrogate_ce", "w_align", "w_surrogate_supcon", "w_proto")
    parts = {"surrogate": ALIKE, "y": y, "prototypes": PROTOTYPES, "align_labels": "matched"}
    base, _ = objective(**parts)
    alone = [objective(**parts, **{term: 1.0})[0] - base for term in terms]
    assert min(alone) > 0.1
    weights = (1.0, 1.0, 0.1, 0.1)
    together, _ = objective(**parts, **dict(zip(terms, weights, strict=True)))
    expected = base + sum(w * a for w, a in zip(weights, alone, strict=True))
    assert together == pytest.approx(expected)


def test_real_and_surrogate_images_share_one_forward_pass():
    # running statistics after one step are a tenth of the joint batch's
    run = gps.Rounds(FedGPS())
    script = gps.problem.Scripted(0, torch.float64)
    local = run.local(run.cohort.clients[0], 0)
    local.data = gps.Script(script._batch(0, "real"))
    uploaded = run.method.work(local, run.message(0), None).upload.buffers
    run.network.load(gps.problem.initial(torch.float64))
    run.network.model.train()
    run.network(torch.cat([script._batch(0, kind).x for kind in ("real", "sur")]))
    torch.testing.assert_close(uploaded, run.network.buffers)


class NoNoise(gps.problem.Scripted):
    def draw(self):
        real = super().draw()
        return real._replace(x=real.x[:0], y=real.y[:0])


def test_with_everything_off_it_is_fedavg_with_uniform_weights():
    off = FedGPS(**ALL_OFF, rho=0.0)
    samples = (15, 30, 5, 15)
    these = gps.Rounds(off, samples=samples, data=NoNoise, max_norm=None).play()
    by_heads = FedAvg(weighting="uniform")
    those = gps.Rounds(by_heads, samples=samples, max_norm=None).play()
    assert gps.first_difference([s.params for s in these], those) is None


def test_without_goal_and_path_it_is_fedavg_with_uniform_weights():
    off = FedGPS(goal=False, rho=0.0)
    these = gps.Rounds(off).play()
    those = gps.Rounds(FedAvg(weighting="uniform")).play()
    assert gps.first_difference([s.params for s in these], those) is None


def test_goal_decides_about_noise_and_the_wider_head():
    assert FedGPS().needs_surrogate
    assert FedGPS().num_outputs(10) == 20
    path_only = FedGPS(goal=False)
    assert not path_only.needs_surrogate
    assert path_only.num_outputs(10) == 10
    local = gps.tiny_local(surrogate=None)
    upload = path_only.work(local, message(None), None).upload
    assert upload.class_means is None
    assert upload.class_weights is None


# --- goal: prototypes of a client -----------------------------------------------------------------


def test_class_sums_by_hand():
    z = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    sums = ClassSums(3, z)
    sums.add(z, torch.tensor([0, 2, 0]))
    sums.add(z[:1], torch.tensor([2]))
    assert sums.counts.tolist() == [2.0, 0.0, 2.0]
    assert sums.means().tolist() == [[3.0, 4.0], [0.0, 0.0], [2.0, 3.0]]


def test_prototypes_are_of_the_surrogate_images_of_the_last_epoch():
    # epoch 0 draws 10 and 20, epoch 1 draws 2 and 6; features are the images themselves
    noise = gps.Script(*(batch([[x]], [0]) for x in (10.0, 20.0, 2.0, 6.0)))
    data = gps.Script(batch([[1.0]], [0]), batch([[1.0]], [0]))
    local = gps.tiny_local(data=data, surrogate=noise, epochs=2)
    upload = FedGPS().work(local, message(None), None).upload
    assert upload.class_means.tolist() == [[4.0]]
    assert upload.class_weights.tolist() == [2]


def test_prototypes_are_not_normalised_and_sorted_by_class():
    noise = gps.Script(batch([[3.0, 4.0], [0.0, 2.0], [5.0, 0.0]], [1, 0, 1]))
    network = gps.tiny_network(dim=2, num_outputs=6)
    local = gps.tiny_local(
        network=network,
        num_classes=3,
        data=gps.Script(batch([[1.0, 0.0]], [0])),
        surrogate=noise,
    )
    now = Message(network.params(), None, None, 1.0)
    upload = FedGPS().work(local, now, None).upload
    assert upload.class_means.tolist() == [[0.0, 2.0], [4.0, 2.0], [0.0, 0.0]]
    assert upload.class_weights.tolist() == [1, 2, 0]
    assert upload.class_weights.dtype == torch.int32


def test_a_final_pass_goes_over_the_whole_set_with_the_final_weights():
    # the perturbed weight is 1 + 3 in training, the final one is 1: features are the images
    noise = gps.Script(*(batch([[x]], [0]) for x in (1.0, 2.0, 6.0)))
    method = FedGPS(rho=19.0, norm_epsilon=0.0, proto_source="final_pass")
    upload = method.work(gps.tiny_local(surrogate=noise), message(), SKIPPED).upload
    assert upload.class_means.tolist() == [[3.0]]
    assert upload.class_weights.tolist() == [3]


def test_a_final_pass_uses_the_trained_model_in_evaluation_mode():
    run = gps.Rounds(FedGPS(proto_source="final_pass"))
    start = run.state.params
    upload = run.work(0, 0).upload
    run.network.load(Params(start.weights + upload.delta, upload.buffers))
    run.network.model.eval()
    batches = list(gps.problem.Scripted(0, torch.float64).plain())
    z, y = (
        run.network.features(torch.cat([b.x for b in batches])),
        torch.cat([b.y for b in batches]),
    )
    expected = torch.stack([z[y == c].mean(dim=0) for c in range(4)])
    torch.testing.assert_close(upload.class_means, expected)
    assert upload.class_weights.tolist() == torch.bincount(y).tolist()


def test_single_sample_weight_gives_a_lone_sample_the_weight_of_the_feature_dimension():
    # client 3 draws the classes 9, 10, 10 and 1 times; the features have 8 dimensions
    for how, expected in [("count", [9, 10, 10, 1]), ("feature_dim", [9, 10, 10, 8])]:
        upload = gps.Rounds(FedGPS(single_sample_weight=how)).work(3, 1).upload
        assert upload.class_weights.tolist() == expected


# --- goal: prototypes at the server ---------------------------------------------------------------


def reply(means, weights, client=0):
    means = torch.tensor(means, dtype=torch.float64)
    counts = torch.tensor(weights, dtype=torch.int32)
    return Reply(Client(client, (1,)), Upload(vector(0.0), NO_BUFFERS, means, counts))


def test_prototypes_are_means_weighted_by_counts():
    # class 0: (1*1 + 3*5)/4 ; class 1: only the second client has it ; class 2: nobody
    got = pool(
        None, [reply([[1.0], [0.0], [0.0]], [1, 0, 0]), reply([[5.0], [7.0], [0.0]], [3, 2, 0])]
    )
    assert got.values.tolist() == [[4.0], [7.0], [0.0]]
    assert got.known.tolist() == [True, True, False]


def test_a_class_nobody_drew_keeps_its_last_prototype():
    last = Prototypes(
        torch.tensor([[1.0], [2.0], [3.0], [0.0]], dtype=torch.float64),
        torch.tensor([True, True, False, False]),
    )
    got = pool(last, [reply([[9.0], [0.0], [8.0], [0.0]], [1, 0, 4, 0])])
    # replaced, kept, new, never seen
    assert got.values.tolist() == [[9.0], [2.0], [8.0], [0.0]]
    assert got.known.tolist() == [True, True, True, False]
    assert last.values.flatten().tolist() == [1.0, 2.0, 3.0, 0.0]


def test_prototypes_have_no_memory_beyond_that():
    last = Prototypes(torch.full((1, 1), 100.0, dtype=torch.float64), torch.tensor([True]))
    assert pool(last, [reply([[9.0]], [1])]).values.item() == 9.0


@settings(deadline=None)
@given(st.integers(0, 1000), st.integers(1, 11))
def test_splitting_a_client_in_two_leaves_the_prototypes_as_they_are(seed, cut):
    generator = torch.Generator().manual_seed(seed)
    z = torch.randn(12, 3, generator=generator, dtype=torch.float64)
    y = torch.randint(4, (12,), generator=generator)

    def of(rows):
        sums = ClassSums(4, z)
        sums.add(z[rows], y[rows])
        return reply(sums.means().tolist(), sums.counts.int().tolist())

    other = reply(torch.ones(4, 3).tolist(), [2, 0, 5, 1])
    whole = pool(None, [of(slice(12)), other])
    split = pool(None, [of(slice(cut)), of(slice(cut, 12)), other])
    torch.testing.assert_close(split.values, whole.values)
    assert torch.equal(split.known, whole.known)


# --- server ---------------------------------------------------------------------------------------


def merged(samples=(1, 3), **options):
    """Return the state after two clients went 1 and 5, with buffers 10 and 20."""
    replies = [
        Reply(Client(k, (n,)), Upload(vector(d), vector(b), None, None))
        for k, (n, d, b) in enumerate(zip(samples, (1.0, 5.0), (10.0, 20.0), strict=True))
    ]
    start = State(Params(vector(100.0), vector(0.0)), None, None, None)
    return FedGPS(goal=False, **options).merge(start, replies)


def test_clients_count_alike_by_default_and_by_samples_on_request():
    uniform, by_samples = merged(), merged(weighting="samples")
    assert (uniform.update.item(), uniform.params.weights.item()) == (3.0, 103.0)
    assert uniform.params.buffers.item() == 15.0
    assert (by_samples.update.item(), by_samples.params.weights.item()) == (4.0, 104.0)
    assert by_samples.params.buffers.item() == 17.5


def test_server_lr_scales_the_step_but_not_the_update_that_is_sent():
    state = merged(server_lr=0.5)
    assert state.params.weights.item() == 101.5
    assert state.params.buffers.item() == 15.0
    assert state.update.item() == 3.0


def test_the_message_holds_model_update_prototypes_and_the_sum_of_weights():
    state = State(gps.no_buffers(1.0), vector(2.0), PROTOTYPES, None)
    clients = (Client(0, (5,)), Client(1, (7,)))
    expected = (state.params, state.update, PROTOTYPES)
    for weighting, total in (("uniform", 2.0), ("samples", 12.0)):
        messages = FedGPS(weighting=weighting).send(state, turn(3, *clients))
        assert len(messages) == 2
        assert all(m[3] == total for m in messages)
        assert all(a is b for m in messages for a, b in zip(m, expected, strict=False))


def test_a_client_remembers_its_round_share_and_update():
    run = gps.Rounds(FedGPS(weighting="samples"), samples=(10, 20, 30, 40))
    work = run.work(1, 0)
    assert (work.memory.round, work.memory.share) == (0, pytest.approx(20 / 60))
    assert torch.equal(work.memory.delta, work.upload.delta)
    assert work.memory.model is None


# --- memory ---------------------------------------------------------------------------------------


def test_fade_drops_the_own_update_and_only_that():
    model = gps.no_buffers(1.0)
    kept = Memory(4, 0.25, UPDATE, model)
    assert FedGPS().fade(kept) == Memory(4, 0.25, None, model)
    assert kept.delta is UPDATE


@pytest.mark.parametrize("options", [{}, {"first_time": "global_update"}, {"divergence_every": 1}])
def test_what_fade_drops_is_never_needed(options):
    method = FedGPS(**options)
    watched = gps.Watched(method)
    watched.fade = lambda kept: kept
    assert gps.first_difference(gps.Rounds(method).play(), gps.Rounds(watched).play()) is None


@pytest.mark.parametrize("options", [{}, {"divergence_every": 1, "proto_source": "final_pass"}])
def test_inputs_are_left_alone(options):
    watched = gps.Watched(FedGPS(**options))
    gps.Rounds(watched).play()
    assert watched.calls == 4 * (3 + 1)
    assert watched.changed == []


# --- options: each changes what it should, and not before it should ------------------------------


DIFFERENCES = [  # options, first round in which weights differ, and in which prototypes do
    # path: from round 1 on, when there is an update
    ({"rho": 0.0}, 1, 1),
    ({"direction": -1}, 1, 1),
    ({"perturb_norm": "global"}, 1, 1),
    ({"norm_epsilon": 1e-3}, 1, 1),
    ({"first_time": "global_update"}, 1, 1),  # client 3 is new in round 1
    ({"rho_relative": 0.1}, 1, 1),
    # goal: at once
    ({"goal": False}, 0, 0),
    ({"w_surrogate_ce": 0.5}, 0, 0),
    ({"w_align": 0.5}, 0, 0),
    ({"align_labels": "matched"}, 0, 0),
    ({"align_detach_surrogate": False}, 0, 0),
    ({"w_surrogate_supcon": 0.2}, 0, 0),
    ({"temperature": 0.1}, 0, 0),
    ({"bn_statistics": "real"}, 0, None),  # the running statistics only
    # prototypes: trained towards from the round after they were made
    ({"w_proto": 0.2}, 1, 1),
    ({"proto_source": "final_pass"}, 1, 0),
    ({"single_sample_weight": "feature_dim"}, 2, 1),  # client 3 has a lone sample in round 1
    # server
    ({"server_lr": 0.5}, 0, 1),
    ({"weighting": "samples"}, None, None),
    # measuring changes nothing
    ({"divergence_every": 1}, None, None),
    ({"divergence_every": 1, "divergence_scale": "official"}, None, None),
]


@pytest.fixture(scope="module")
def with_defaults():
    return gps.Rounds(FedGPS()).play()


@pytest.mark.parametrize(("options", "weights", "prototypes"), DIFFERENCES)
def test_an_option_makes_a_difference_from_its_round_on(
    with_defaults, options, weights, prototypes
):
    changed = gps.Rounds(FedGPS(**options)).play()
    params = [[state.params for state in states] for states in (with_defaults, changed)]
    values = [[state.prototypes for state in states] for states in (with_defaults, changed)]
    assert gps.first_difference(*params) == weights
    assert gps.first_difference(*values) == prototypes


def test_weighting_makes_a_difference_where_clients_differ_in_size():
    these, those = (
        gps.Rounds(FedGPS(weighting=w), samples=(15, 30, 5, 15)).play()
        for w in ("uniform", "samples")
    )
    params = [[state.params for state in states] for states in (these, those)]
    values = [[state.prototypes for state in states] for states in (these, those)]
    assert gps.first_difference(*params) == 0
    assert gps.first_difference(*values) == 1  # prototypes are weighted by counts in any case


def test_every_option_is_tried():
    tried = {name for options, *_ in DIFFERENCES for name in options}
    assert tried == {field.name for field in dataclasses.fields(FedGPS)}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("weighting", "by_weight"),
        ("server_lr", 0.0),
        ("goal", "perhaps"),
        ("w_surrogate_ce", -1.0),
        ("w_align", -0.5),
        ("align_labels", "same"),
        ("align_detach_surrogate", "perhaps"),
        ("w_surrogate_supcon", -0.1),
        ("temperature", 0.0),
        ("w_proto", math.inf),
        ("proto_source", "first_epoch"),
        ("single_sample_weight", "one"),
        ("rho", -0.5),
        ("rho", math.nan),
        ("direction", 0),
        ("perturb_norm", "max"),
        ("norm_epsilon", -0.5),
        ("norm_epsilon", math.nan),
        ("first_time", "always"),
        ("divergence_every", -5),
        ("divergence_scale", "all"),
        ("lambda_g", 0.25),
    ],
)
def test_an_invalid_option_is_told_with_its_name_and_value(name, value):
    with pytest.raises(ValidationError) as told:
        FedGPS(**{name: value})
    assert name in str(told.value)
    assert f"input_value={value!r}" in str(told.value)


# --- presets --------------------------------------------------------------------------------------

PRESETS = {  # option: default, official, paper
    "lr": (0.01, 0.00998, 0.01),
    "momentum": (0.9, 0.9, 0.9),
    "weight_decay": (1e-5, 1e-5, 1e-5),
    "max_norm": (10.0, 10.0, None),
    "client_momentum": ("persist", "persist", "persist"),
    "temperature": (0.07, 0.07, 0.07),
    "rho": (0.5, 0.5, 0.5),
    "weighting": ("uniform", "uniform", "uniform"),
    "direction": (1, 1, -1),
    "perturb_norm": ("sum", "sum", "global"),
    "first_time": ("none", "none", "global_update"),
    "align_labels": ("distinct", "distinct", "matched"),
    "w_surrogate_ce": (1.0, 1.0, 1.0),
    "w_align": (1.0, 1.0, 0.1),
    "w_surrogate_supcon": (0.1, 0.1, 0.0),
    "w_proto": (0.1, 0.1, 0.1),
    "proto_source": ("last_epoch_batches", "last_epoch_batches", "final_pass"),
    "single_sample_weight": ("count", "feature_dim", "count"),
    "norm_epsilon": (1e-7, -1e-7, 0.0),
    "eval_logits": ("all", "all", "all"),
    "init_seed": ("train", "partition", "train"),
    "batch_size": (64, 64, 64),
    "local_epochs": (1, 1, 1),
    "extra_class_range": ("all", "official", "all"),
}


def settings_of(spec):
    parts = (spec.method, spec.optimizer, spec.partition)
    return {k: v for part in parts for k, v in dataclasses.asdict(part).items()} | {
        name: getattr(spec, name) for name in type(spec).model_fields
    }


@pytest.mark.parametrize(("column", "preset"), [(0, "default"), (1, "official"), (2, "paper")])
def test_a_preset_is_its_column_of_the_table(column, preset):
    classes = {"kind": "classes", "classes_per_client": 2}
    spec = trial_spec(method={"name": "fedgps", "preset": preset}, partition=classes)
    got = settings_of(spec)
    assert {name: got[name] for name in PRESETS} == {
        name: values[column] for name, values in PRESETS.items()
    }
    assert spec.surrogate.batch_size == 128


def test_no_preset_is_the_default_preset():
    assert trial_spec(method="fedgps").trial_id == (
        trial_spec(method={"name": "fedgps", "preset": "default"}).trial_id
    )
    assert Dirichlet().min_size == 10


def test_the_official_preset_has_the_official_scale_of_the_divergence():
    assert FedGPS(**FedGPS.presets["official"]["method"]).divergence_scale == "official"


# --- traffic --------------------------------------------------------------------------------------


def test_bytes_of_a_small_model_by_hand():
    # M' = 1 + 2 + 2 weights of 8 bytes, no buffers, C = d = 1
    run = FedGPS()
    first = message(update=None)
    later = message(prototypes=Prototypes(torch.zeros(1, 1).double(), torch.tensor([True])))
    work = run.work(gps.tiny_local(), first, None)
    assert num_bytes(work.upload) == 5 * 8 + 1 * 8 + 1 * 4  # M' + Cd, and C counts
    assert num_bytes(first) == 5 * 8 + 8  # M', and the sum of the aggregation weights
    assert num_bytes(later) == 2 * 5 * 8 + 1 * 8 + 1 + 8  # 2 M' + Cd, and C marks


# ResNet-18 with 20 outputs: M' weights, b statistics of BatchNorm, C * d = 10 * 512
M_WIDE, BUFFERS, CD = 11_179_092, 9_600, 5_120
EXTRA_DOWN, EXTRA_UP = 10 + 8, 4 * 10  # which classes are known, the sum of weights; counts


def test_bytes_of_a_resnet():
    up = 4 * (M_WIDE + BUFFERS + CD) + EXTRA_UP
    first = 4 * (M_WIDE + BUFFERS) + 8
    later = 4 * (2 * M_WIDE + BUFFERS + CD) + EXTRA_DOWN
    assert gps.traffic(FedGPS()) == [(first, up), (later, up)]
    # the authors' upload has 11,193,832 numbers, of which 20 are BatchNorm's batch counters
    assert M_WIDE + BUFFERS + CD == 11_193_832 - 20


# the small convolutional net has 94,762 weights for ten classes, 448 statistics, 128 features
M_SMALL, BUFFERS_SMALL, CD_SMALL = 94_762, 448, 10 * 128


def test_without_the_path_part_no_update_is_sent():
    down, _ = gps.traffic(FedGPS(rho=0.0), "convnet")[1]
    wide = M_SMALL + 10 * 129
    assert down == 4 * (wide + BUFFERS_SMALL + CD_SMALL) + EXTRA_DOWN


def test_without_the_goal_part_no_prototypes_and_no_wider_head_are_sent():
    down, up = gps.traffic(FedGPS(goal=False), "convnet")[1]
    assert (down, up) == (4 * (2 * M_SMALL + BUFFERS_SMALL) + 8, 4 * (M_SMALL + BUFFERS_SMALL))


# --- divergence -----------------------------------------------------------------------------------


def measured(answers, round_index=5, prototypes=PROTOTYPES, num_present=2, **options):
    asked = []

    def ask(question, sent):
        asked.append((question, sent))
        return answers

    method = FedGPS(**{"divergence_every": 5, **options})
    state = method.init(gps.no_buffers(1.0), None)._replace(prototypes=prototypes)
    present = turn(round_index, *(Client(k, (1,)) for k in range(num_present)))
    return method.measure(state, present, ask), asked, state


def test_divergence_is_the_mean_over_clients_that_have_trained():
    got, ((question, sent),), state = measured([1.0, None, 3.0, 5.0])
    assert got == {"divergence": 3.0, "divergence_clients": 3.0}
    assert question is feature_distance
    assert sent == (state.prototypes, None)


def test_the_official_scale_divides_the_sum_over_all_by_those_present():
    # (1 + 2 + 3 + 6) / 2; clients that never trained answer with the initial model
    got, ((_, sent),), state = measured([1.0, 2.0, 3.0, 6.0], divergence_scale="official")
    assert got == {"divergence": 6.0, "divergence_clients": 4.0}
    assert sent[1] is state.initial is state.params


@pytest.mark.parametrize(
    ("every", "rounds"), [(0, []), (1, [1, 2, 3, 4, 5, 6]), (3, [3, 6]), (5, [5])]
)
def test_divergence_is_measured_every_so_many_rounds_and_never_in_round_0(every, rounds):
    found = [t for t in range(7) if measured([1.0], t, divergence_every=every)[1]]
    assert found == rounds


def test_nothing_is_measured_without_prototypes_or_answers():
    assert measured([1.0], prototypes=None)[:2] == ({}, [])
    assert measured([None, None])[0] == {}


def noise_of(*batches):
    return gps.tiny_local(surrogate=gps.Script(*(batch(x, y) for x, y in batches)), num_classes=2)


def test_the_distance_is_a_mean_over_five_batches_of_their_means():
    # features are 2x; to the prototypes 1 and 10: |2-1|, |4-10| -> 3.5 ; then 1, 3, 5, 7 alone
    quintet = [([[1.0], [2.0]], [0, 1]), *(([[x]], [0]) for x in (0.0, 2.0, 3.0, 4.0))]
    local = noise_of(*quintet, ([[1e6]], [0]))
    sent = Prototypes(torch.tensor([[1.0], [10.0]]).double(), torch.tensor([True, True]))
    kept = memory(model=gps.no_buffers(2.0, 0.0, 0.0, 0.0, 0.0))
    got = feature_distance(local, kept, (sent, None))
    assert got == pytest.approx((3.5 + 1 + 3 + 5 + 7) / 5)
    assert local.surrogate.drawn == DIVERGENCE_BATCHES == 5


def test_the_distance_is_that_of_a_vector():
    network = gps.tiny_network(dim=2, num_outputs=4)
    local = gps.tiny_local(network=network, surrogate=gps.Script(batch([[4.0, 6.0]], [0])))
    sent = Prototypes(torch.tensor([[1.0, 2.0]]).double(), torch.tensor([True]))
    # (4, 6) - (1, 2) = (3, 4)
    assert feature_distance(local, memory(model=network.params()), (sent, None)) == 5.0


def test_classes_without_prototype_are_left_out_of_the_distance():
    # class 1 has none: of the first batch only |1-3| counts, the second has nothing to give
    local = noise_of(([[1.0], [100.0]], [0, 1]), ([[100.0]], [1]))
    sent = Prototypes(torch.tensor([[3.0], [0.0]]).double(), torch.tensor([True, False]))
    kept = memory(model=local.network.params())
    assert feature_distance(local, kept, (sent, None)) == 2.0
    nothing = Prototypes(sent.values, torch.tensor([False, False]))
    assert feature_distance(local, kept, (nothing, None)) is None


def test_who_never_trained_answers_with_the_initial_model_or_not_at_all():
    sent = Prototypes(torch.tensor([[0.0]]).double(), torch.tensor([True]))
    initial = gps.no_buffers(3.0, 0.0, 0.0, 0.0, 0.0)
    assert feature_distance(gps.tiny_local(), None, (sent, None)) is None
    assert feature_distance(gps.tiny_local(), None, (sent, initial)) == 3.0
    # who did answers with its own
    own = memory(model=gps.no_buffers(7.0, 0.0, 0.0, 0.0, 0.0))
    assert feature_distance(gps.tiny_local(), own, (sent, initial)) == 7.0


def test_the_last_local_model_is_kept_only_where_the_divergence_is_measured():
    run = gps.Rounds(FedGPS(divergence_every=1))
    work = run.work(0, 0)
    start = run.state.params
    torch.testing.assert_close(work.memory.model.weights, start.weights + work.upload.delta)
    assert torch.equal(work.memory.model.buffers, work.upload.buffers)
    assert run.state.initial is None
    assert FedGPS(divergence_scale="official").init(start, None).initial is None
