"""Numbers sent and received, counted from real messages and uploads; gradients a step."""

from typing import Any

import torch

from fedgps_ray.methods import METHODS, Method
from fedgps_ray.methods.ccvr import CCVR
from fedgps_ray.methods.centralized import Centralized
from fedgps_ray.methods.fedavg import FedAvg
from fedgps_ray.methods.fedgps import FedGPS
from fedgps_ray.methods.fedgps_cf import FedGPSCF
from fedgps_ray.methods.fedlesam import FedLESAM
from fedgps_ray.methods.vhl import VHL
from fedgps_ray.models import build
from fedgps_ray.titles import TITLES
from fedgps_ray.tools.verify.check import Check, Value, stated
from fedgps_ray.tools.verify.trials import Trials, quick
from fedgps_ray.training.network import layout_of

MLP: dict[str, Any] = {"model": "mlp"}
M = 12_547  # (64 + 1) * 128 + (128 + 1) * 32 + (32 + 1) * 3
WIDE = 12_646  # with six outputs in place of three
CD = 3 * 32  # a feature vector a class
COUNTS, KNOWN, TOTAL = 3, 3 / 4, 2  # C numbers; C marks of a byte; one number of 8 bytes
TWO_PASSES = ("fedasam", "delta_sgd")


def checks(trials: Trials) -> list[Check]:
    """Return all of them."""
    return [
        *(plain_traffic(trials, name) for name in ONE_MODEL),
        *more_traffic(trials),
        *statistics(trials),
        *sizes(),
        *(passes(trials, name) for name in TITLES),
        steps(trials),
        stated(
            "centralized",
            "in spite of five clients asked for, one holds all 60 images",
            ((0, 60),),
            lambda: holdings(trials),
        ),
    ]


ONE_MODEL = (
    "fedavg",
    "fedavgm",
    "fedprox",
    "ccvr",
    "fedasam",
    "fedexp",
    "feddecorr",
    "feddisco",
    "fedinit",
    "nucfl",
    "fedadam",
    "delta_sgd",
    "fedmr",
    "centralized",
)


# --- traffic ------------------------------------------------------------------------------------


def traffic(trials: Trials, method: Method, round_index: int = 2) -> Value:
    """Return the numbers of 4 bytes that each client of a round sent and received."""
    rows = trials.run(method, **MLP)[round_index].clients
    found = {(row["bytes_up"] / 4, row["bytes_down"] / 4) for row in rows}
    if len(found) > 1:
        raise ValueError(f"clients of one round differ: {sorted(found)}")
    return found.pop()


def plain_traffic(trials: Trials, name: str) -> Check:
    """Return the check that one model goes each way."""
    claim = f"a client sends M and receives M numbers a round (M = {M:,})"
    return stated(name, claim, (M, M), lambda: traffic(trials, quick(name)))


def more_traffic(trials: Trials) -> list[Check]:
    """Return the checks of the methods that send other than one model each way."""

    def say(name: str, claim: str, expected: Value, method: Method, round_index: int = 2) -> Check:
        return stated(name, claim, expected, lambda: traffic(trials, method, round_index))

    up, extra = WIDE + CD + COUNTS, CD + KNOWN
    gps, cf = FedGPS(), FedGPSCF()
    return [
        say("scaffold", "2M up, 2M down", (2 * M, 2 * M), METHODS["scaffold"]()),
        say("fedlesam", "2M up, 2M down", (2 * M, 2 * M), FedLESAM()),
        say(
            "fedlesam",
            "reference last_update: 2M up, 3M down",
            (2 * M, 3 * M),
            FedLESAM(reference="last_update"),
        ),
        say("fedlesam", "variant base: M up, M down", (M, M), FedLESAM(variant="base")),
        say("vhl", f"M' up, M' down, M' = {WIDE:,} with 2C outputs", (WIDE, WIDE), VHL()),
        say(
            "fedgps",
            "first round: M' + Cd and C counts up, M' and 8 bytes down",
            (up, WIDE + TOTAL),
            gps,
            0,
        ),
        say(
            "fedgps",
            "later: M' + Cd and C counts up, 2M' + Cd, C marks of a byte and 8 bytes down",
            (up, 2 * WIDE + extra + TOTAL),
            gps,
        ),
        say(
            "fedgps_cf",
            "M' + Cd and C counts up, M' + Cd, C marks of a byte and 8 bytes down",
            (up, WIDE + extra + TOTAL),
            cf,
        ),
        stated(
            "fedgps_cf",
            "beyond FedAvg: 2 Cd + 2 C(d + 1), and C counts up, C marks and a total down",
            2 * CD + 2 * 3 * 33 + COUNTS + KNOWN + TOTAL,
            lambda: whole(trials, cf) - whole(trials, FedAvg()),
        ),
        stated(
            "fedgps_cf",
            "less than FedGPS: one model, M'",
            WIDE,
            lambda: whole(trials, gps) - whole(trials, cf),
        ),
    ]


def whole(trials: Trials, method: Method) -> float:
    """Return the numbers of both directions together."""
    found = traffic(trials, method)
    assert isinstance(found, tuple)
    return sum(float(part) for part in found if not isinstance(part, tuple))


def statistics(trials: Trials) -> list[Check]:
    """Return the checks of what CCVR asks of all five clients: C (d + d^2) and C counts."""

    def asked(method: Method) -> Value:
        done = trials.run(method, **MLP)[-1]
        rest = (
            done.row[way] - sum(c[way] for c in done.clients) for way in ("bytes_up", "bytes_down")
        )
        return tuple(each / 4 / 5 for each in rest)

    thin = CCVR(virtual_features=20, covariance="diagonal")
    return [
        stated(
            "ccvr",
            "before each test every client sends C(d + d^2) and C counts and receives M",
            (3 * (32 + 32 * 32) + 2 * COUNTS, M),
            lambda: asked(quick("ccvr")),
        ),
        stated(
            "ccvr",
            "covariance diagonal: 2 Cd and C counts",
            (2 * CD + 2 * COUNTS, M),
            lambda: asked(thin),
        ),
    ]


def sizes() -> list[Check]:
    """Return the checks of M for the models of the paper, with C outputs and with 2C."""

    def size(model: str, method: Method, classes: int) -> int:
        with torch.device("meta"):
            return layout_of(build(model, (3, 32, 32), method.num_outputs(classes))).weights[-1].end

    def say(name: str, head: str, expected: Value) -> Check:
        claim = f"M of ResNet-18 for 10 classes and of ResNet-50 for 100, head of {head} outputs"
        method = METHODS[name]()
        resnets = (("resnet18", 10), ("resnet50", 100))
        return stated(
            name, claim, expected, lambda: tuple(size(model, method, n) for model, n in resnets)
        )

    narrow, wide = (11_173_962, 23_705_252), (11_179_092, 23_910_152)
    return [say("fedavg", "C", narrow), say("vhl", "2C", wide), say("fedgps", "2C", wide)]


# --- gradients ----------------------------------------------------------------------------------


def passes(trials: Trials, name: str) -> Check:
    """Return the check of how many gradients a step takes."""
    expected = 2 if name in TWO_PASSES else 1
    claim = f"{'two gradients' if expected == 2 else 'one gradient'} a step"
    saved = 1 if name == "delta_sgd" else 0
    if saved:
        claim += ", but one in a client's first"

    def got() -> Value:
        clients = [row for done in trials.run(quick(name)) for row in done.clients]
        rates = {(row["gradient_evaluations"] + saved) / row["steps"] for row in clients}
        return tuple(sorted(rates))

    return stated(name, claim, (expected,), got)


def steps(trials: Trials) -> Check:
    """Return the check of the number of local steps."""

    def run() -> tuple[Value, Value]:
        clients = [row for done in trials.run(FedAvg()) for row in done.clients]
        batches = tuple(-(-row["samples"] // 8) for row in clients)
        return batches, tuple(row["steps"] for row in clients)

    return Check("fedavg", "a client with n samples takes n / B steps an epoch, rounded up", run)


def holdings(trials: Trials) -> Value:
    """Return the clients of centralized training and how many images each has."""
    return tuple((row["client"], row["samples"]) for row in trials.run(Centralized())[0].clients)
