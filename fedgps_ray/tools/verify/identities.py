"""Identities: with its own part switched off, a method equals a simpler one; reruns agree."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fedgps_ray.data.batches import Batch
from fedgps_ray.identity import Table
from fedgps_ray.methods import METHODS
from fedgps_ray.methods.base import Method
from fedgps_ray.methods.ccvr import CCVR
from fedgps_ray.methods.centralized import Centralized
from fedgps_ray.methods.delta_sgd import DeltaSGD
from fedgps_ray.methods.fedadam import FedAdam
from fedgps_ray.methods.fedasam import FedASAM
from fedgps_ray.methods.fedavg import FedAvg
from fedgps_ray.methods.fedavgm import FedAvgM
from fedgps_ray.methods.feddecorr import FedDecorr
from fedgps_ray.methods.feddisco import FedDisco
from fedgps_ray.methods.fedexp import FedExP
from fedgps_ray.methods.fedgps import FedGPS
from fedgps_ray.methods.fedgps_cf import FedGPSCF
from fedgps_ray.methods.fedinit import FedInit
from fedgps_ray.methods.fedlesam import FedLESAM
from fedgps_ray.methods.fedmr import FedMR
from fedgps_ray.methods.fedprox import FedProx
from fedgps_ray.methods.nucfl import NUCFL, Pair
from fedgps_ray.methods.scaffold import Scaffold
from fedgps_ray.methods.vhl import VHL
from fedgps_ray.tools.verify.check import Check, Value
from fedgps_ray.tools.verify.toy import vector
from fedgps_ray.tools.verify.trials import EXACT, Trials, distance, plain_sgd, play, quick
from fedgps_ray.training.local import Local

Settings = Table  # of a trial
AS_IT_IS: Settings = {}
ALONE = {"clients": 1, "sampling_rate": 1.0, "partition": "iid"}
ALL, ONE_EACH = {"sampling_rate": 1.0}, {"sampling_rate": 0.2}
MLP = {"model": "mlp"}  # no BatchNorm, whose statistics would be those of real and noise images
FREE: Settings = {"optimizer": {"max_norm": None}}
RESET: Settings = {"optimizer": {"client_momentum": "reset"}}
STEADY: Settings = {"optimizer": {"lr_decay": 1.0}}
# the optimizers of the methods on the left, for FedAvg on the right
CCVRS: Settings = {"optimizer": {"lr": 0.001}}
NUCFLS: Settings = {"optimizer": {"lr": 0.001, "weight_decay": 1e-4}}
FEDINITS: Settings = {"optimizer": {"lr": 0.1, "momentum": 0.0, "weight_decay": 1e-3}}
FEDLESAMS: Settings = {"optimizer": {**FEDINITS["optimizer"], "max_norm": 10.0}}
DELTAS: Settings = {"optimizer": {"lr": 0.2, "momentum": 0.0, "weight_decay": 0.0}}

AVG, UNIFORM = FedAvg(), FedAvg(weighting="uniform")
NO_CONTRAST: Any = {"w_align": 0.0, "w_surrogate_supcon": 0.0}


class Unlike(NUCFL):
    """NUCFL with two matrices whose similarity is 0 in place of what it compares."""

    def pair(self, *_: object) -> Callable[[Local, Batch], Pair | None]:
        """Compare (1, 0, -1) with (1, -2, 1)."""
        one, other = vector(1, 0, -1)[:, None], vector(1, -2, 1)[:, None]
        return lambda local, batch: (one.to(batch.x), other.to(batch.x))


class Wide(FedAvg):
    """FedAvg with the head of VHL and FedGPS."""

    def num_outputs(self, num_classes: int) -> int:
        """Return twice the number of classes."""
        return 2 * num_classes


Claim = tuple[str, str]  # a method's name and what is claimed


class Same(NamedTuple):
    """Two methods that must give the same result, each with its own settings."""

    one: Method
    other: Method
    of_other: Settings = AS_IT_IS
    of_one: Settings = AS_IT_IS


BIT_FOR_BIT: dict[Claim, Same] = {
    ("fedavgm", "server momentum 0 is FedAvg"): Same(FedAvgM(server_momentum=0.0), AVG),
    ("fedavgm", "server momentum 0 without Nesterov is FedAvg"): Same(
        FedAvgM(server_momentum=0.0, nesterov=False), AVG
    ),
    ("fedprox", "mu 0 is FedAvg"): Same(FedProx(mu=0.0), AVG),
    ("fedprox", "mu 0, penalty norm, is FedAvg"): Same(FedProx(mu=0.0, penalty="norm"), AVG),
    ("fedasam", "rho 0 is FedAvg"): Same(FedASAM(rho=0.0), AVG),
    ("fedexp", "with a step that is always 1 it is FedAvg"): Same(
        FedExP(eps=1e30), AVG, of_one=STEADY
    ),
    ("feddecorr", "coefficient 0 is FedAvg"): Same(FedDecorr(coefficient=0.0), AVG),
    ("feddisco", "a = b = 0 is FedAvg"): Same(FedDisco(a=0.0, b=0.0), AVG),
    ("fedinit", "beta 0 is FedAvg"): Same(FedInit(beta=0.0), AVG, FEDINITS),
    ("fedinit", "beta 0, mean_of displacements, is FedAvg"): Same(
        FedInit(beta=0.0, mean_of="displacements"), AVG, FEDINITS
    ),
    ("fedlesam", "rho 0 and lambda 0 is uniform FedAvg with clipping"): Same(
        FedLESAM(rho=0.0, correction=0.0), UNIFORM, FEDLESAMS
    ),
    ("nucfl", "similarity 0 is FedAvg"): Same(Unlike(), AVG, NUCFLS),
    ("delta_sgd", "a step size that never changes is uniform FedAvg"): Same(
        DeltaSGD(gamma=1e12, delta=0.0), UNIFORM, DELTAS
    ),
    ("fedgps", "without goal, path and clipping it is uniform FedAvg"): Same(
        FedGPS(goal=False, rho=0.0), UNIFORM, of_one=FREE
    ),
    ("fedgps_cf", "without goal, path and clipping it is uniform FedAvg"): Same(
        FedGPSCF(goal=False, rho=0.0), UNIFORM, of_one=FREE
    ),
    ("fedgps_cf", "rho 0 is FedGPS with rho 0"): Same(FedGPSCF(rho=0.0), FedGPS(rho=0.0)),
    ("centralized", "it is FedAvg with one client that holds all data"): Same(
        Centralized(), AVG, ALONE
    ),
}

FIRST_ROUND: dict[Claim, Same] = {
    ("scaffold", "the first round is uniform FedAvg"): Same(Scaffold(), UNIFORM, RESET),
    ("fedlesam", "the first round is uniform FedAvg"): Same(FedLESAM(), UNIFORM, FEDLESAMS),
    ("fedgps", "the first round has no look-ahead"): Same(FedGPS(), FedGPS(rho=0.0)),
    ("fedgps_cf", "the first round is FedGPS"): Same(FedGPSCF(), FedGPS()),
}

TO_ROUNDING: dict[Claim, Same] = {  # numbers are added in another order
    ("vhl", "without noise terms it is FedAvg with a wider head"): Same(
        VHL(alpha=0.0, **NO_CONTRAST), Wide(), MLP, MLP
    ),
    ("vhl", "it is FedGPS with matched labels, without path, prototypes, clipping"): Same(
        VHL(), FedGPS(weighting="samples", align_labels="matched", rho=0.0, w_proto=0.0), FREE
    ),
    ("fedadam", "betas 0 and server_lr = tau = 1e10 is FedAvg"): Same(
        FedAdam(beta1=0.0, beta2=0.0, tau=1e10, server_lr=1e10), AVG
    ),
    ("fedmr", "averaging in every round is uniform FedAvg"): Same(
        FedMR(averaging_rounds=99), UNIFORM
    ),
    ("fedmr", "one client per round is the same as FedAvg"): Same(FedMR(), AVG, ONE_EACH, ONE_EACH),
    ("fedgps", "all extra weights 0 is uniform FedAvg with a wider head"): Same(
        FedGPS(w_surrogate_ce=0.0, w_proto=0.0, rho=0.0, **NO_CONTRAST),
        Wide(weighting="uniform"),
        MLP,
        {**FREE, **MLP},
    ),
    ("fedgps_cf", "with all clients in every round it is FedGPS"): Same(
        FedGPSCF(), FedGPS(), ALL, ALL
    ),
}
ROUNDING = 1e-9


def checks(trials: Trials) -> list[Check]:
    """Return all of them."""
    return [
        *(bit_for_bit(trials, *item) for item in BIT_FOR_BIT.items()),
        *(first_round(trials, *item) for item in FIRST_ROUND.items()),
        *(to_rounding(trials, *item) for item in TO_ROUNDING.items()),
        *(
            as_pytorch(trials, *given)
            for given in (("fedavg", AVG), ("centralized", Centralized()))
        ),
        *(
            mean_control(trials, *given)
            for given in (("scaffold", Scaffold()), ("fedlesam", FedLESAM()))
        ),
        *tested(trials),
        *(twice(trials, name) for name in METHODS),
    ]


def bit_for_bit(trials: Trials, claim: Claim, same: Same) -> Check:
    """Return the check that the weights have the same digest after every round."""
    return Check(
        claim[0],
        f"{claim[1]}, bit for bit",
        lambda: (
            trials.hashes(same.other, **same.of_other),
            trials.hashes(same.one, **same.of_one),
        ),
    )


def first_round(trials: Trials, claim: Claim, same: Same) -> Check:
    """Return the check that two methods are the same in the first round and then differ."""

    def run() -> tuple[Value, Value]:
        expected, *others = trials.hashes(same.other, **same.of_other)
        got, *rest = trials.hashes(same.one, **same.of_one)
        return (expected, "differ"), (got, "same" if rest[-1] == others[-1] else "differ")

    return Check(claim[0], f"{claim[1]}, bit for bit; later ones differ", run)


def to_rounding(trials: Trials, claim: Claim, same: Same) -> Check:
    """Return the check that the last weights in float64 agree up to rounding."""

    def run() -> tuple[Value, Value]:
        expected = trials.weights(same.other, **EXACT, **same.of_other)
        return 0.0, distance(expected, trials.weights(same.one, **EXACT, **same.of_one))

    return Check(claim[0], f"{claim[1]}: largest difference", run, ROUNDING)


def as_pytorch(trials: Trials, name: str, method: Method) -> Check:
    """Return the check that one client does what PyTorch's optimizer does."""

    def run() -> tuple[Value, Value]:
        weights: Tensor = trials.weights(method, **EXACT, **ALONE)
        return 0.0, distance(plain_sgd(method, **EXACT, **ALONE), weights)

    return Check(name, "one client is PyTorch's own SGD: largest difference", run, ROUNDING)


def mean_control(trials: Trials, name: str, method: Method) -> Check:
    """Return the check that the server's control is the mean of all clients' controls."""

    def error(snapshot: Any) -> float:
        own = [kept.memory.control for kept in snapshot.kept.values()]  # the others hold zero
        return distance(snapshot.state.control, torch.stack(own).sum(dim=0) / 5)

    def run() -> tuple[Value, Value]:
        return (0.0,) * 3, tuple(error(done.snapshot) for done in trials.run(method, **EXACT))

    claim = "after each round, c is the mean of the c_k of all clients: largest difference"
    return Check(name, claim, run, ROUNDING)


def tested(trials: Trials) -> list[Check]:
    """Return the checks of CCVR, which changes only the model that is tested."""

    def run(method: Method, *keys: str) -> tuple[Value, Value]:
        expected, got = (
            tuple(done.row[key] for key in keys for done in rounds)
            for rounds in (trials.run(AVG, **CCVRS), trials.run(method))
        )
        return expected, got

    idle = CCVR(virtual_features=1, calibration_epochs=0)
    return [
        Check(
            "ccvr",
            "training never sees the refitted head: the weights of FedAvg, bit for bit",
            lambda: run(quick("ccvr"), "weights_sha256"),
        ),
        Check(
            "ccvr",
            "without calibration steps it is FedAvg, also when tested: weights and losses",
            lambda: run(idle, "weights_sha256", "loss"),
        ),
    ]


def twice(trials: Trials, name: str) -> Check:
    """Return the check that a rerun on this machine gives the same bits."""

    def run() -> tuple[Value, Value]:
        again = tuple(done.row["weights_sha256"] for done in play(quick(name)))
        return trials.hashes(quick(name)), again

    return Check(name, "the same trial twice gives the same weights, bit for bit", run)
