"""Hand-computed numbers for the methods that use features: CCVR, VHL, FedDecorr, NUCFL."""

import math
from collections.abc import Sequence
from typing import Any

import torch

from fedgps_ray.methods import ccvr as moments
from fedgps_ray.methods import nucfl as calibration
from fedgps_ray.methods.base import Cohort
from fedgps_ray.methods.ccvr import CCVR
from fedgps_ray.methods.fedavg import Message
from fedgps_ray.methods.feddecorr import FedDecorr
from fedgps_ray.methods.nucfl import NUCFL
from fedgps_ray.methods.vhl import VHL
from fedgps_ray.tools.verify import toy
from fedgps_ray.tools.verify.check import Check, Claims, Stated, Value, stated
from fedgps_ray.training.local import Client
from fedgps_ray.training.losses import confidence_gap, linear_cka, supervised_contrast

Rows = Sequence[Sequence[float]]
CORNERS = [[1.0, 0.0], [0.0, 1.0]]
ALIKE = [[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]


def checks() -> list[Check]:
    """Return all of them."""
    return stated(ccvr=ccvr(), vhl=vhl(), feddecorr=feddecorr(), nucfl=nucfl())


def rows(*values: Sequence[float]) -> torch.Tensor:
    """Return a matrix."""
    return torch.tensor(values, dtype=torch.float64)


# --- CCVR ---------------------------------------------------------------------------------------


def ccvr() -> Claims:
    """Return the claims about the pooled moments and the refit."""
    return {
        # unbiased variance of 1, 3, 5; from biased local variances it would be 3.5
        "features {1, 3} and {5} of two clients: mean 3, variance 4": Stated(
            ((3.0,), (4.0,)), lambda: pooled_moments([[1.0], [3.0]], [[5.0]])
        ),
        # an outer product; as a dot product it would be a matrix of ones
        "features (1, 0) and (0, 1): covariance ((0.5, -0.5), (-0.5, 0.5))": Stated(
            ((0.5, 0.5), (0.5, -0.5, -0.5, 0.5)), lambda: pooled_moments([[1.0, 0.0]], [[0.0, 1.0]])
        ),
        # probability 1/2 each: gradients (-1, 1) of the weights, (-0.5, 0.5) of the biases
        "a step with lr 0.1 on feature 2 of class 0 moves a head of zeros by 0.1 and 0.05": Stated(
            (0.1, -0.1, 0.05, -0.05), refit
        ),
    }


def pooled_moments(*clients: Rows) -> Value:
    """Return mean and covariance of one class from the clients' moments."""
    uploaded = [
        moments.moments_of(rows(*z), torch.zeros(len(z), dtype=torch.int64), 1, True)
        for z in clients
    ]
    mean, covariance = moments.pooled(uploaded, 0)
    return toy.numbers(mean), toy.numbers(covariance)


def refit() -> Value:
    """Return the head after one step on virtual features that are all equal."""
    plain: Any = {"calibration_momentum": 0.0, "calibration_weight_decay": 0.0}
    method = CCVR(virtual_features=4, calibration_epochs=1, calibration_lr=0.1, **plain)
    local = toy.featured(toy.batch([[2.0]], [0]))
    local.client = Client(0, (1, 0))
    state = method.init(local.network.params(), Cohort((local.client,), 1, local.network.layout))
    tested = method.deploy(
        state, toy.turn(0, 1), lambda question, sent: [question(local, None, sent)]
    )
    return toy.numbers(tested.weights)


# --- VHL ----------------------------------------------------------------------------------------


def vhl() -> Claims:
    """Return the claims about the contrast and the joint loss; a zero head has the loss ln 4."""
    tau: Any = {"temperature": 1.0}
    return {
        # two anchors of ln(e + 1) - 1 = 0.3132617, one without a positive: two thirds of it
        "contrast of two equal features and a different one: 0.2088411": Stated(
            0.2088411, lambda: contrast(1.0), 1e-7
        ),
        # two thirds of ln(1 + exp(-1 / 0.07))
        "the same at temperature 0.07: 4.16583e-7": Stated(
            4.16583e-7, lambda: contrast(0.07), 1e-12
        ),
        # 2 ln 4 + ln(e + 2) - 1
        "real class c is pulled to noise class c: 2 ln 4 + 0.5514447": Stated(
            3.3240334, lambda: joint(VHL(**tau)), 1e-6
        ),
        "alpha 0.5 halves the noise: 1.5 ln 4": Stated(
            2.0794415, lambda: joint(VHL(alpha=0.5, w_align=0.0, **tau)), 1e-6
        ),
        "no alignment from align_epochs on: 2 ln 4": Stated(
            2.7725887, lambda: joint(VHL(align_epochs=0)), 1e-6
        ),
    }


def contrast(temperature: float) -> float:
    """Return the supervised contrastive loss of two equal features and a different one."""
    return float(supervised_contrast(rows(*ALIKE), torch.tensor([0, 0, 1]), temperature))


def joint(method: VHL) -> float:
    """Return the loss where real and noise images have the same features and labels."""
    images = toy.batch(CORNERS, [0, 1])
    return toy.loss_of(method, toy.featured(images, images, outputs=4))


# --- FedDecorr ----------------------------------------------------------------------------------


def feddecorr() -> Claims:
    """Return the claims about the penalty, which is added to ln 2, the loss of a zero head."""
    signs = [[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]]
    line = [[1.0, 1.0], [-1.0, -1.0]]
    return {
        # standardised +-0.7071: off-diagonal 1, squared, divided by n = 2
        "features (1, 1), (-1, -1): penalty 0.5": Stated(0.5, lambda: penalty(line), 1e-6),
        # the mean of four ones
        "the same, form paper: 1.0": Stated(1.0, lambda: penalty(line, form="paper"), 1e-6),
        "coefficient 1.0 counts ten times as much: 5.0": Stated(
            5.0, lambda: penalty(line, coefficient=1.0), 1e-6
        ),
        "all four signs are not correlated: 0": Stated(0.0, lambda: penalty(signs), 1e-6),
        # A off the diagonal 2 * 0.8660254, squared 3, divided by n = 3
        "features (0, 0), (1, 1), (2, 1): 1.0": Stated(
            1.0, lambda: penalty([[0.0, 0.0], [1.0, 1.0], [2.0, 1.0]]), 1e-6
        ),
        "a batch of one example has no penalty": Stated(0.0, lambda: penalty([[3.0, 4.0]]), 1e-12),
    }


def penalty(features: Rows, **options: Any) -> float:
    """Return what the method adds to cross-entropy, without its coefficient of 0.1."""
    local = toy.featured(toy.batch(features, [0] * len(features)))
    return (toy.loss_of(FedDecorr(**options), local) - math.log(2)) / 0.1


# --- NUCFL --------------------------------------------------------------------------------------

# Inputs 0 and 1 get the probabilities (0.9, 0.05, 0.05), right, and (0.2, 0.6, 0.2), wrong:
# cross-entropy (-ln 0.9 - ln 0.2) / 2 = 0.8573992, confidence 0.75, accuracy 0.5
BIAS = [math.log(p) for p in (0.9, 0.05, 0.05)]
HEAD = [math.log(p) - b for p, b in zip((0.2, 0.6, 0.2), BIAS, strict=True)]
TWO_INPUTS = toy.batch([[0.0], [1.0]], [0, 0])


def nucfl() -> Claims:
    """Return the claims about calibration gap, similarity and their product."""
    return {
        "top probabilities 0.9 (right) and 0.6 (wrong): gap 0.25": Stated(0.25, gap),
        # the centred (1, 0, 0) is (2, -1, -1) / 3: 1 / (2 * 2/3)
        "similarity of (1, 0, -1) to (2, 0, -2), (1, 0, 0), (1, -2, 1): 1, 0.75, 0": Stated(
            (1.0, 0.75, 0.0),
            lambda: tuple(similarity(y) for y in ((2, 0, -2), (1, 0, 0), (1, -2, 1))),
        ),
        # 0.8573992 + 1 * 0.25
        "in the first step both models are the same: the whole gap is added, 1.1073992": Stated(
            1.1073992,
            lambda: toy.loss_of(NUCFL(), toy.featured(TWO_INPUTS, None, 3, [*HEAD, *BIAS])),
            1e-7,
        ),
        # 0.8573992 + 0.75 * 0.25
        "similarity 0.75 adds 0.1875: 1.0448992": Stated(1.0448992, later_loss, 1e-7),
    }


def gap() -> float:
    """Return the difference of confidence and accuracy."""
    logits = rows([0.9, 0.1], [0.6, 0.4]).log()
    return float(confidence_gap(logits, torch.tensor([0, 1])))


def similarity(other: Sequence[float]) -> float:
    """Return the similarity of a feature over three examples to (1, 0, -1)."""
    return float(linear_cka(rows([1.0], [0.0], [-1.0]), rows(*([float(v)] for v in other))))


def later_loss() -> float:
    """Return the loss where the head moved by (1, 0, -1) here and by (1, 0, 0) globally."""
    local = toy.featured(TWO_INPUTS, None, 3, [*HEAD, *BIAS])
    here, globally = toy.vector(1, 0, -1, 0, 0, 0), toy.vector(1, 0, 0, 0, 0, 0)
    received = local.network.params()._replace(weights=local.network.weights - here)
    memory = calibration.Memory(received.weights - globally)
    method = NUCFL(compare="head_updates")
    return float(method.gradient(local, Message(received), memory)(local, TWO_INPUTS))
