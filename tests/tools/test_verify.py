"""What `fedgps-ray verify` claims holds, and each kind of claim fails where it should."""

import collections
import itertools
import math

import numpy as np
import pytest
import torch

from fedgps_ray import seeds
from fedgps_ray.methods import METHODS, ccvr, delta_sgd, feddecorr, fedgps, fedlesam, fedmr, nucfl
from fedgps_ray.methods.fedavg import FedAvg
from fedgps_ray.methods.fedinit import FedInit
from fedgps_ray.titles import TITLES
from fedgps_ray.tools.verify import Check, checks, prove, run_checks
from fedgps_ray.tools.verify.costs import ONE_GRADIENT, TWO_GRADIENTS
from fedgps_ray.training import local
from fedgps_ray.training.local import Local

TWICE = "the same trial twice"


@pytest.fixture(scope="module")
def proofs():
    return list(run_checks())


def test_every_claim_holds(proofs):
    assert [proof for proof in proofs if not proof.holds] == []


def test_every_method_of_the_paper_has_three_claims_besides_running_twice(proofs):
    counts = collections.Counter(proof.method for proof in proofs if TWICE not in proof.claim)
    assert min(counts[name] for name in (*ONE_GRADIENT, *TWO_GRADIENTS)) >= 3
    assert {proof.method for proof in proofs if TWICE in proof.claim} == set(METHODS)


def test_a_claim_is_one_line_made_once_and_shows_both_values(proofs):
    claims = [(proof.method, proof.claim) for proof in proofs]
    assert len(set(claims)) == len(claims)
    assert not [proof for proof in proofs if "\n" in proof.claim or len(proof.claim) > 100]
    assert all(proof.expected and proof.got for proof in proofs)


def test_methods_come_in_the_order_of_the_paper(proofs):
    assert [name for name, _ in itertools.groupby(proof.method for proof in proofs)] == [*METHODS]


def test_a_method_can_be_checked_alone(proofs):
    expected = [proof for proof in proofs if proof.method == "fedavgm"]
    assert list(run_checks(["fedavgm"])) == expected


# --- checks that fail ---------------------------------------------------------------------------


def proof_of(expected, got, tolerance=0.0):
    return prove(Check("fedavg", "a claim", lambda: (expected, got), tolerance))


@pytest.mark.parametrize(
    ("expected", "got", "tolerance", "holds"),
    [
        (1.0, 1.0, 0.0, True),
        (1.0, math.nextafter(1.0, 2.0), 0.0, False),
        ((1.0, 2.0), (1.0, 2.1), 0.2, True),
        ((1.0, 2.0), (1.0, 2.1), 0.01, False),
        ((1.0, 2.0), (1.0,), 1.0, False),
        ((1.0,), 1.0, 1.0, False),
        (1.0, math.nan, 1.0, False),
        (math.nan, math.nan, 1.0, False),
        (0.0, math.inf, 1.0, False),
        ("same", "other", 1.0, False),
        (("same", 1.0), ("same", 1.0), 0.0, True),
        ("1", 1.0, 1.0, False),
    ],
)
def test_when_two_values_agree(expected, got, tolerance, holds):
    assert proof_of(expected, got, tolerance).holds is holds


def test_a_proof_shows_numbers_and_the_beginning_of_digests():
    proof = proof_of((0.1, 23_705_252), ("0123456789abcdef",))
    assert (proof.expected, proof.got) == ("(0.1, 23705252)", "(01234567)")


def test_an_exception_is_a_proof_that_failed():
    def run():
        raise RuntimeError("broken")

    proof = prove(Check("fedavg", "a claim", run))
    assert (proof.got, proof.holds) == ("RuntimeError: broken", False)


# --- methods that are wrong ---------------------------------------------------------------------


@pytest.mark.parametrize("name", TITLES)
def test_a_server_that_is_slightly_off_is_found(name, monkeypatch):
    right = METHODS[name].merge

    def wrong(self, state, replies):
        merged = right(self, state, replies)
        weights = merged.params.weights * 1.001
        return merged._replace(params=merged.params._replace(weights=weights))

    monkeypatch.setattr(METHODS[name], "merge", wrong)
    assert not all(proof.holds for proof in run_checks([name]))


def scaled(right):
    """Make a function return a little more."""
    return lambda *given: right(*given) * 1.01


def constant(value):
    """Make a function return one value, whatever it is given."""
    return lambda right: lambda *given: value


def instead(function):
    """Put another function in place of the right one."""
    return lambda right: function


def pushed(right):
    """Pull also where there is nothing to pull."""
    return lambda self, start: lambda now: start * 0 + 1e-4


def with_control(right):
    """Start with controls that are not zero."""

    def wrong(self, params, cohort):
        return right(self, params, cohort)._replace(control=torch.ones_like(params.weights))

    return wrong


def by_those_present(right):
    """Divide the change of the control by the clients of the round."""
    return lambda self, state, replies: right(
        self, state._replace(num_clients=len(replies)), replies
    )


def faster(right):
    """Take longer and longer steps."""

    def wrong(now):
        now.lr *= 1.0001
        right(now)

    return wrong


def damped(right):
    """Follow a tenth of the mean update."""

    def wrong(self, replies):
        update = right(self, replies)
        return update._replace(delta=update.delta * 0.1)

    return wrong


def larger(right):
    """Test twice the weights, whatever the fit."""
    return lambda self, state, *_: state.params._replace(weights=state.params.weights * 2)


def sent_in_double(right):
    """Send a model of 8 bytes a number."""

    def wrong(self, state, turn):
        params = state.params._replace(weights=state.params.weights.double())
        return right(self, state._replace(params=params), turn)

    return wrong


def sent_moments_in_double(right):
    """Send means of 8 bytes a number."""

    def wrong(*given):
        sent = right(*given)
        return sent._replace(means=sent.means.double())

    return wrong


WRONG = [
    # numbers computed by hand
    (METHODS["fedexp"], "length", constant(1.0), "fedexp", "followed 2.4975025 times"),
    (METHODS["fedavgm"], "average", damped, "fedavgm", "Nesterov: from 10"),
    (METHODS["fedprox"], "pull", pushed, "fedprox", "at (3, 4) from the start"),
    (METHODS["scaffold"], "merge", by_those_present, "scaffold", "one of two clients"),
    (METHODS["fedasam"], "ascent", scaled, "fedasam", "weights (2, -1), gradient (1, 2)"),
    (FedInit, "relaxed", instead(lambda _, start, last: start), "fedinit", "training starts at"),
    (fedlesam, "norm", scaled, "fedlesam", "the gradient is taken at (0.7, 0.6)"),
    (delta_sgd, "inverse_smoothness", scaled, "delta_sgd", "a = 10"),
    (METHODS["feddisco"], "balanced", constant([1.0, 2.0]), "feddisco", "1/7 and 6/7"),
    (METHODS["fedadam"], "lr", scaled, "fedadam", "v from tau squared"),
    (fedmr, "recombined", instead(lambda models, *_: models), "fedmr", "first layer swapped"),
    (ccvr, "pooled", constant((torch.zeros(1), torch.zeros(1))), "ccvr", "mean 3, variance 4"),
    (METHODS["vhl"], "alignment", scaled, "vhl", "2 ln 4 + 0.5514447"),
    (feddecorr, "decorrelation", scaled, "feddecorr", "penalty 0.5"),
    (nucfl, "linear_cka", scaled, "nucfl", "similarity 0.75 adds 0.1875"),
    (fedgps, "sum_of_norms", scaled, "fedgps", "per-tensor norms sum to rho"),
    (fedgps, "without_own", instead(lambda update, *_: update), "fedgps", "its own update is left"),
    (fedgps, "without_own", instead(lambda update, *_: update), "fedgps", "with two clients"),
    (fedgps, "distance_to", scaled, "fedgps", "squared distance to the prototypes"),
    (METHODS["fedgps_cf"], "others", constant(None), "fedgps_cf", "with two clients"),
    (METHODS["fedgps_cf"], "fade", constant(None), "fedgps_cf", "over two rounds the direction"),
    # a simpler method, bit for bit, in the first round, or up to rounding
    (METHODS["fedprox"], "pull", pushed, "fedprox", "mu 0 is FedAvg"),
    (METHODS["scaffold"], "init", with_control, "scaffold", "the first round is uniform FedAvg"),
    (
        METHODS["fedgps"],
        "shift",
        constant(None),
        "fedgps",
        "first round has no look-ahead",
    ),
    (
        METHODS["fedgps_cf"],
        "others",
        constant(None),
        "fedgps_cf",
        "with all clients in every round",
    ),
    (local, "descend", faster, "fedavg", "PyTorch's own SGD"),
    (METHODS["scaffold"], "merge", by_those_present, "scaffold", "c is the mean of the c_k"),
    (METHODS["ccvr"], "refitted", larger, "ccvr", "without calibration steps it is FedAvg"),
    # bytes and sizes
    (
        METHODS["fedgps_cf"],
        "send",
        instead(METHODS["fedgps"].send),
        "fedgps_cf",
        "M' + Cd and C counts up",
    ),
    (METHODS["fedprox"], "send", sent_in_double, "fedprox", "a client sends M"),
    (ccvr, "moments_of", sent_moments_in_double, "ccvr", "before each test every client sends"),
    (METHODS["vhl"], "num_outputs", instead(lambda self, n: n), "vhl", "M of ResNet-18"),
    # gradients and steps
    (METHODS["fedasam"], "gradient", instead(FedAvg.gradient), "fedasam", "two gradients per step"),
    (
        Local,
        "batches",
        lambda right: lambda self: list(right(self))[:-1],
        "fedavg",
        "a client with n samples",
    ),
    (METHODS["centralized"], "overrides", lambda right: {}, "centralized", "one holds all 60"),
    # determinism
    (seeds, "stream", instead(lambda *_, **__: np.random.default_rng()), "fedavg", TWICE),
    (seeds, "stream", instead(lambda *_, **__: np.random.default_rng()), "fedgps", TWICE),
]


@pytest.mark.parametrize(
    ("owner", "attribute", "make_wrong", "name", "claim"),
    WRONG,
    ids=[f"{name}: {claim}" for *_, name, claim in WRONG],
)
def test_what_is_wrong_is_found(owner, attribute, make_wrong, name, claim, monkeypatch):
    monkeypatch.setattr(owner, attribute, make_wrong(getattr(owner, attribute)))
    chosen = [check for check in checks() if check.method == name and claim in check.claim]
    assert len(chosen) == 1
    proof = prove(chosen[0])
    assert not proof.holds
    assert proof.expected != "no exception"  # a wrong value, not a check that breaks
