"""Numbers sent and received, counted from real messages and uploads, and gradients per step."""

import torch

from fedgps_ray.identity import Table
from fedgps_ray.methods import METHODS, about
from fedgps_ray.methods.base import Method
from fedgps_ray.methods.ccvr import CCVR
from fedgps_ray.methods.centralized import Centralized
from fedgps_ray.methods.fedavg import FedAvg
from fedgps_ray.methods.fedgps import FedGPS
from fedgps_ray.methods.fedgps_cf import FedGPSCF
from fedgps_ray.methods.fedlesam import FedLESAM
from fedgps_ray.methods.scaffold import Scaffold
from fedgps_ray.methods.vhl import VHL
from fedgps_ray.models import build
from fedgps_ray.tools.verify.check import Check, Claims, Stated, Value, stated
from fedgps_ray.tools.verify.trials import Trials, quick
from fedgps_ray.training.network import layout_of

MLP: Table = {"model": "mlp"}
M = 12_547  # (64 + 1) * 128 + (128 + 1) * 32 + (32 + 1) * 3
WIDE = 12_646  # with six outputs in place of three
CD = 3 * 32  # a feature vector for each class
COUNTS, KNOWN, TOTAL = 3, 3 / 4, 2  # C numbers; C flags of one byte; one number of 8 bytes
FIRST, LAST, ALL = slice(1), slice(2, None), slice(None)  # of three rounds
ONE_GRADIENT = (
    "fedavg", "fedavgm", "fedprox", "scaffold", "ccvr", "vhl", "fedexp", "feddecorr", "feddisco",
    "fedinit", "fedlesam", "nucfl", "fedadam", "fedmr", "fedgps", "fedgps_cf", "centralized",
)  # fmt: skip
TWO_GRADIENTS = ("fedasam", "delta_sgd")


def checks(trials: Trials) -> list[Check]:
    """Return all of them."""
    return [
        *stated(**{name: one_model_each_way(trials, name) for name in METHODS if one_model(name)}),
        *more_traffic(trials),
        *sizes(),
        *stated(**{name: gradients(trials, name, 1) for name in ONE_GRADIENT}),
        *stated(**{name: gradients(trials, name, 2) for name in TWO_GRADIENTS}),
        steps(trials),
    ]


# --- traffic ------------------------------------------------------------------------------------


def traffic(trials: Trials, method: Method, rounds: slice = LAST) -> tuple[float, float]:
    """Return the numbers of 4 bytes that each client sent and received in these rounds."""
    rows = [row for done in trials.run(method, **MLP)[rounds] for row in done.clients]
    pairs = {(row["bytes_up"] / 4, row["bytes_down"] / 4) for row in rows}
    if len(pairs) > 1:
        raise ValueError(f"clients differ: {sorted(pairs)}")
    return pairs.pop()


def one_model(name: str) -> bool:
    """Tell whether a method says that it sends one model each way."""
    costs = about(METHODS[name])
    return (costs.up.partition(";")[0], costs.down.partition(";")[0]) == ("M", "M")


def one_model_each_way(trials: Trials, name: str) -> Claims:
    """Return the claim that a method sends what it says."""
    claim = f"a client sends M and receives M numbers per round (M = {M:,})"
    return {claim: Stated((M, M), lambda: traffic(trials, quick(name), ALL), 0.0)}


def more_traffic(trials: Trials) -> list[Check]:
    """Return the checks of the methods that do not send just one model each way."""

    def sent(method: Method, up: float, down: float, rounds: slice = LAST) -> Stated:
        return Stated((up, down), lambda: traffic(trials, method, rounds), 0.0)

    def more(one: Method, other: Method, expected: float) -> Stated:
        return Stated(
            expected, lambda: sum(traffic(trials, one)) - sum(traffic(trials, other)), 0.0
        )

    up, extra = WIDE + CD + COUNTS, CD + KNOWN + TOTAL
    gps, cf = FedGPS(), FedGPSCF()
    return stated(
        scaffold={"2M up, 2M down": sent(Scaffold(), 2 * M, 2 * M, ALL)},
        fedlesam={
            "2M up, 2M down": sent(FedLESAM(), 2 * M, 2 * M, ALL),
            "reference last_update: 2M up, 3M down": sent(
                FedLESAM(reference="last_update"), 2 * M, 3 * M
            ),
            "variant base: M up, M down": sent(FedLESAM(variant="base"), M, M),
        },
        vhl={f"M' up, M' down, M' = {WIDE:,} with 2C outputs": sent(VHL(), WIDE, WIDE)},
        fedgps={
            "first round: M' + Cd and C counts up, M' and 8 bytes down": sent(
                gps, up, WIDE + TOTAL, FIRST
            ),
            "later: M' + Cd and C counts up, 2M' + Cd, C flags of a byte and 8 bytes down": sent(
                gps, up, 2 * WIDE + extra
            ),
        },
        fedgps_cf={
            "M' + Cd and C counts up, M' + Cd, C flags of a byte and 8 bytes down": sent(
                cf, up, WIDE + extra
            ),
            "beyond FedAvg: 2 Cd + 2 C(d + 1), and C counts up, C flags and a total down": more(
                cf, FedAvg(), 2 * CD + 2 * 3 * 33 + COUNTS + KNOWN + TOTAL
            ),
            "less than FedGPS: one model, M'": more(gps, cf, WIDE),
        },
        ccvr=statistics(trials),
        centralized=holdings(trials),
    )


def statistics(trials: Trials) -> Claims:
    """Return the claims about what CCVR asks of all five clients: C (d + d^2) and C counts."""

    def asked(method: Method) -> Value:
        done = trials.run(method, **MLP)[-1]
        rest = (
            done.row[way] - sum(c[way] for c in done.clients) for way in ("bytes_up", "bytes_down")
        )
        return tuple(each / 4 / 5 for each in rest)

    thin = CCVR(virtual_features=20, covariance="diagonal")
    return {
        "before each test every client sends C(d + d^2) and C counts and receives M": Stated(
            (3 * (32 + 32 * 32) + 2 * COUNTS, M), lambda: asked(quick("ccvr")), 0.0
        ),
        "covariance diagonal: 2 Cd and C counts": Stated(
            (2 * CD + 2 * COUNTS, M), lambda: asked(thin), 0.0
        ),
    }


def sizes() -> list[Check]:
    """Return the checks of M for the models of the paper, with C outputs and with 2C."""

    def size(model: str, method: Method, classes: int) -> int:
        with torch.device("meta"):
            return layout_of(build(model, (3, 32, 32), method.num_outputs(classes))).weights[-1].end

    def claim(method: Method, head: str, *expected: float) -> Claims:
        resnets = (("resnet18", 10), ("resnet50", 100))
        text = f"M of ResNet-18 for 10 classes and of ResNet-50 for 100, head of {head} outputs"
        return {
            text: Stated(expected, lambda: tuple(size(name, method, n) for name, n in resnets), 0.0)
        }

    wide = ("2C", 11_179_092, 23_910_152)
    return stated(
        fedavg=claim(FedAvg(), "C", 11_173_962, 23_705_252),
        vhl=claim(VHL(), *wide),
        fedgps=claim(FedGPS(), *wide),
    )


# --- gradients ----------------------------------------------------------------------------------


def gradients(trials: Trials, name: str, expected: int) -> Claims:
    """Return the claim of how many gradients a step takes."""
    claim = f"{'two gradients' if expected == 2 else 'one gradient'} per step"
    saved = 1 if name == "delta_sgd" else 0
    if saved:
        claim += ", but one in a client's first"

    def got() -> Value:
        clients = [row for done in trials.run(quick(name)) for row in done.clients]
        rates = {(row["gradient_evaluations"] + saved) / row["steps"] for row in clients}
        return tuple(sorted(rates))

    return {claim: Stated((expected,), got, 0.0)}


def steps(trials: Trials) -> Check:
    """Return the check of the number of local steps."""

    def run() -> tuple[Value, Value]:
        clients = [row for done in trials.run(FedAvg()) for row in done.clients]
        batches = tuple(-(-row["samples"] // 8) for row in clients)
        return batches, tuple(row["steps"] for row in clients)

    return Check("fedavg", "a client with n samples takes n / B steps per epoch, rounded up", run)


def holdings(trials: Trials) -> Claims:
    """Return the claim about the clients of centralized training and their images."""

    def got() -> Value:
        rows = trials.run(Centralized())[0].clients
        return tuple((row["client"], row["samples"]) for row in rows)

    return {"although five clients are asked for, one holds all 60 images": Stated(((0, 60),), got)}
