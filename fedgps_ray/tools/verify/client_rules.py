"""Hand-computed numbers for the methods that change a client's steps."""

from collections.abc import Sequence
from typing import Any

from fedgps_ray.methods import fedinit as init
from fedgps_ray.methods import fedlesam as lesam
from fedgps_ray.methods import scaffold as control
from fedgps_ray.methods.base import Reply, Work
from fedgps_ray.methods.delta_sgd import DeltaSGD
from fedgps_ray.methods.fedasam import FedASAM
from fedgps_ray.methods.fedavg import Message
from fedgps_ray.methods.fedinit import FedInit
from fedgps_ray.methods.fedlesam import FedLESAM
from fedgps_ray.methods.fedprox import FedProx
from fedgps_ray.methods.scaffold import Scaffold
from fedgps_ray.tools.verify import toy
from fedgps_ray.tools.verify.check import Check, Claims, Stated, Value, stated
from fedgps_ray.training.local import Local

AT_ONE = {"weight": (1.0,)}
WHOLE, SUMMED = FedLESAM(), FedLESAM(perturb_norm="sum")


def checks() -> list[Check]:
    """Return all of them."""
    return stated(
        fedprox=fedprox(),
        scaffold=scaffold(),
        fedasam=fedasam(),
        fedinit=fedinit(),
        fedlesam=fedlesam(),
        delta_sgd=delta_sgd(),
    )


# --- FedProx ------------------------------------------------------------------------------------


def fedprox() -> Claims:
    """Return the claims about the pull back to the received model."""
    one, two = {"weight": (0.0, 0.0)}, {"weight": (0.0,), "bias": (0.0,)}
    norm = FedProx(penalty="norm")
    return {
        # by way of 0.125 * (3, 4)
        "at (3, 4) from the start, mu 0.125 adds the gradient (0.375, 0.5)": Stated(
            (0.375, 0.5), lambda: pull(FedProx(), one)
        ),
        # by way of 0.125 * (3, 4) / 5
        "penalty norm, one tensor: (0.075, 0.1)": Stated((0.075, 0.1), lambda: pull(norm, one)),
        "penalty norm, two tensors of one number: (0.125, 0.125)": Stated(
            (0.125, 0.125), lambda: pull(norm, two)
        ),
        # 1 - 0.2 = 0.8 ; G = 2 + 0.5 * (0.8 - 1) = 1.9, v = 1.8 + 1.9 ; 0.8 - 0.37
        "the penalty goes through momentum: 0.43 after two steps": Stated(
            (0.43,),
            lambda: toy.ended(FedProx(mu=0.5), toy.client(AT_ONE, toy.slope(2.0), 2, momentum=0.9)),
        ),
    }


def pull(method: FedProx, start: toy.Start) -> Value:
    """Return the gradient added in the second step, the first having led from (0, 0) to (3, 4)."""
    end = toy.ended(method, toy.client(start, toy.slope(-3.0, -4.0), 2, lr=1.0))
    return tuple(twice - e for twice, e in zip((6.0, 8.0), end, strict=True))


# --- SCAFFOLD -----------------------------------------------------------------------------------


def scaffold() -> Claims:
    """Return the claims about the control variates; the gradient is 1, lr 0.1, two steps from 1."""
    after, before, none = (Scaffold(momentum_design=name) for name in ("after", "before", "none"))
    designs = (after, before, none)
    return {
        # slope 1 + 0.2 - 0.6: 1 - 2 * 0.06 ; c_1 = 0.6 - 0.2 + 0.12 / 0.2 ; c = 0.2 + 0.4 / 2
        "one of two clients, c 0.2, c_1 0.6, in any design: model 0.88, c_1 1.0, c 0.4": Stated(
            ((0.88, 1.0, 0.4),) * 3,
            lambda: tuple(corrected(design, 0.2, 0.6, 0.0) for design in designs),
        ),
        # y = 1 - 0.1 - 0.19 = 0.71 ; 0.29 / 0.2 ; 0.29 / (2.9 * 0.1) ; without momentum y = 0.8
        "momentum 0.9, controls 0: c_1 1.45 if corrected after the step, 1.0 if before": Stated(
            ((0.71, 1.45, 0.725), (0.71, 1.0, 0.5), (0.8, 1.0, 0.5)),
            lambda: tuple(corrected(design, 0.0, 0.0, 0.9) for design in designs),
        ),
        # 1 - 0.1 + 0.04
        "corrected after every step: the gradients are taken at 1 and 0.94": Stated(
            ((1.0,), (0.94,)), lambda: gradients_at(after, 0.2, 0.6, 0.9)
        ),
        # 1 - 0.1 + 0.04 = 0.94 ; 0.94 - 0.19 + 0.04 = 0.79 ; 0.4 + 0.21 / 0.2
        "corrected after the step, c_1 is the same 1.45 with c 0.2 and c_1 0.6": Stated(
            (0.79, 1.45, 0.625), lambda: corrected(after, 0.2, 0.6, 0.9)
        ),
        # K = 2.9: 1 - 0.6 * 0.29 ; 0.4 + 0.174 / 0.29
        "corrected before momentum, c_1 is the gradient: model 0.826, c_1 1.0": Stated(
            (0.826, 1.0, 0.4), lambda: corrected(before, 0.2, 0.6, 0.9)
        ),
        "momentum_design none trains without momentum: 0.88, 1.0, 0.4": Stated(
            (0.88, 1.0, 0.4), lambda: corrected(none, 0.2, 0.6, 0.9)
        ),
    }


def corrected(method: Scaffold, mean: float, own: float, momentum: float) -> Value:
    """Return the new model, the client's control and the mean control of two clients."""
    local, work = two_steps(method, mean, own, momentum)
    state = method.init(toy.params(1.0), toy.cohort(2, AT_ONE))._replace(control=toy.vector(mean))
    state = method.merge(state, [Reply(local.client, work.upload)])
    memory: Any = work.memory
    results = (state.params.weights, memory.control, state.control)
    return tuple(float(tensor) for tensor in results)


def gradients_at(method: Scaffold, mean: float, own: float, momentum: float) -> Value:
    """Return where the gradients are taken."""
    return tuple(toy.points(two_steps(method, mean, own, momentum)[0]))


def two_steps(method: Scaffold, mean: float, own: float, momentum: float) -> tuple[Local, Work]:
    """Train a client whose control and the mean control are given."""
    local = toy.client(AT_ONE, toy.slope(1.0), 2, momentum=momentum)
    sent = control.Message(toy.params(1.0), toy.vector(mean))
    return local, method.work(local, sent, control.Memory(toy.vector(own)))


# --- FedASAM ------------------------------------------------------------------------------------


def fedasam() -> Claims:
    """Return the claims about the step uphill."""
    pair = {"weight": (2.0, -1.0)}
    mixed = {"weight": (2.0,), "bias": (5.0,)}
    return {
        # T g = (2, 2), norm 2.828427: 0.1 * (4, 2) / 2.828427
        "weights (2, -1), gradient (1, 2): uphill by (0.1414214, 0.0707107)": Stated(
            (0.1414214, 0.0707107), lambda: ascent(FedASAM(), pair, 1.0, 2.0), 1e-7
        ),
        # with T now (2.2, 1.2)
        "eta 0.2: (0.1486594, 0.0884585)": Stated(
            (0.1486594, 0.0884585), lambda: ascent(FedASAM(eta=0.2), pair, 1.0, 2.0), 1e-7
        ),
        # by way of 0.1 * (1, 2) / sqrt(5)
        "not adaptive, it is FedSAM: (0.0447214, 0.0894427)": Stated(
            (0.0447214, 0.0894427), lambda: ascent(FedASAM(adaptive=False), pair, 1.0, 2.0), 1e-7
        ),
        # T g = (2 * 1, 3), norm 3.605551
        "a bias is not scaled and the norm is global: (0.1109400, 0.0832050)": Stated(
            (0.1109400, 0.0832050), lambda: ascent(FedASAM(), mixed, 1.0, 3.0), 1e-7
        ),
        # G = 1.1 + 0.5: 0.84 ; G = 0.924 + 0.42, v = 1.44 + 1.344: 0.84 - 0.2784
        "momentum and weight decay see the second gradient only: w^2 / 2 leads to 0.5616": Stated(
            (0.5616,),
            lambda: toy.ended(
                FedASAM(), toy.client(AT_ONE, toy.bowl(1.0), 2, momentum=0.9, weight_decay=0.5)
            ),
        ),
    }


def ascent(method: FedASAM, start: toy.Start, *gradient: float) -> Value:
    """Return how far from the weights the second gradient of a step is taken."""
    local = toy.client(start, toy.slope(*gradient))
    toy.ended(method, local)
    here, there = toy.points(local)
    return tuple(b - a for a, b in zip(here, there, strict=True))


# --- FedInit ------------------------------------------------------------------------------------


def fedinit() -> Claims:
    """Return the claims about the relaxed start."""
    return {
        # from (1, 2) by 0.1 * ((1, 2) - (3, 0))
        "model (1, 2), last local model (3, 0): training starts at (0.8, 2.2)": Stated(
            (0.8, 2.2), lambda: relaxed(FedInit())[0]
        ),
        # from (0.8, 2.2) by -0.1 * (3, 2)
        "a client that ends at (0.5, 2.0) makes this the model and remembers it": Stated(
            ((0.5, 2.0), (0.5, 2.0)), lambda: relaxed(FedInit())[1:]
        ),
        # from (1, 2) by (0.5, 2.0) - (0.8, 2.2)
        "mean_of displacements: the model is (0.7, 1.8)": Stated(
            ((0.7, 1.8), (0.5, 2.0)), lambda: relaxed(FedInit(mean_of="displacements"))[1:]
        ),
        # slope 1: 1 -> 0.9 ; the newcomer starts at 0.9 + 0.1 * (0.9 - 1)
        "a newcomer's last model is the initial one: from 1 via 0.9 it starts at 0.89": Stated(
            (0.89,), newcomer
        ),
    }


def relaxed(method: FedInit) -> tuple[Value, ...]:
    """Return where a client that last ended at (3, 0) starts, the next model, and its memory."""
    local = toy.client({"weight": (1.0, 2.0)}, toy.slope(3.0, 2.0))
    sent = Message(toy.params(1.0, 2.0))
    work = method.work(local, sent, init.Memory(toy.vector(3.0, 0.0)))
    state = init.State(sent.params, toy.vector(0.0, 0.0), (0,))
    state = method.merge(state, [Reply(local.client, work.upload)])
    memory: Any = work.memory
    return toy.points(local)[0], toy.numbers(state.params.weights), toy.numbers(memory.last)


def newcomer() -> Value:
    """Return where the second client starts, which first takes part in the second round."""
    return toy.Federation(FedInit(), AT_ONE, *[toy.slope(1.0)] * 2).round(0).round(1).points[1]


# --- FedLESAM -----------------------------------------------------------------------------------


def fedlesam() -> Claims:
    """Return the claims about the shift towards the older model, and the correction."""
    scalars = {"weight": (0.4,), "bias": (0.2,)}
    return {
        # difference (0.6, 0.8) of norm 1, half of it: (0.4, 0.2) + (0.3, 0.4)
        "last received (1, 1), now (0.4, 0.2): the gradient is taken at (0.7, 0.6)": Stated(
            (0.7, 0.6), lambda: shifted_to(scalars, (1.0, 1.0)), 1e-6
        ),
        # the tensors' norms 0.6 and 0.8 add up to 1.4: (0.4, 0.2) + 0.5 / 1.4 (0.6, 0.8)
        "perturb_norm sum: the gradient is taken at (0.6142857, 0.4857143)": Stated(
            (0.6142857, 0.4857143), lambda: shifted_to(scalars, (1.0, 1.0), SUMMED), 1e-6
        ),
        "a client that takes part for the first time is not shifted": Stated(
            (0.4, 0.2), lambda: shifted_to(scalars, None), 0.0
        ),
        # 1 + 0.1 * (0.2 - 0.6) = 0.96 ; 0.6 - 0.2 + 0.96
        "gradient 1, c 0.2, c_k 0.6, lambda 0.1: steps along 0.96, c_k becomes 1.36": Stated(
            (0.96, 1.36), lambda: one_step(FedLESAM())
        ),
        # 1 - 0.4 ; 0.4 + 0.6
        "lambda 1, the correction of SCAFFOLD: 0.6 and 1.0": Stated(
            (0.6, 1.0), lambda: one_step(FedLESAM(correction=1.0))
        ),
        # 12 - 4 = 8 is within 10; clipped first it would be 10 - 4
        "gradients are clipped after the correction: 12 - 4 stays 8": Stated(
            (8.0, 12.0),
            lambda: one_step(FedLESAM(correction=1.0), 12.0, (-4.0, 0.0), max_norm=10.0),
            1e-5,
        ),
    }


def shifted_to(start: toy.Start, last: Sequence[float] | None, method: FedLESAM = WHOLE) -> Value:
    """Return where a client takes its first gradient."""
    local = toy.client(start, toy.slope(1.0, 1.0))
    sent = lesam.Message(local.network.params(), toy.vector(0.0, 0.0), None)
    memory = None if last is None else lesam.Memory(toy.vector(*last), toy.vector(0.0, 0.0))
    method.work(local, sent, memory)
    return toy.points(local)[0]


def one_step(
    method: FedLESAM,
    gradient: float = 1.0,
    controls: tuple[float, float] = (0.2, 0.6),
    **settings: Any,
) -> Value:
    """Return the gradient that is followed, and the client's new control."""
    mean, own = controls
    local = toy.client(AT_ONE, toy.slope(gradient), **settings)
    sent = lesam.Message(toy.params(1.0), toy.vector(mean), None)
    work = method.work(local, sent, lesam.Memory(toy.vector(1.0), toy.vector(own)))
    memory: Any = work.memory
    return -float(work.upload.delta) / 0.1, float(memory.control)


# --- Delta-SGD ----------------------------------------------------------------------------------


def delta_sgd() -> Claims:
    """Return the claims about the step sizes; the loss is a w^2 / 2, the first step size 0.2."""
    return {
        # 1 - 0.8 = 0.2 ; sqrt(1.1) * 0.2 < 1/4 ; ratio 1.0488088, sqrt(1.10488088) * 0.2097618
        "a = 4: step sizes 0.2, 0.2097618, 0.2204875 lead from 1 to 0.0038001": Stated(
            (0.0038001, 0.2204875), lambda: descent(DeltaSGD(), 4.0, 3), 1e-7
        ),
        # 1 - 2 = -1 ; 2 * 2 / (2 * 20) = 0.1 < 0.2097618
        "a = 10: the second step size is 1/10 and ends at 0": Stated(
            (0.0, 0.1), lambda: descent(DeltaSGD(), 10.0, 2)
        ),
        "step sizes after the first are at most gamma / 2a: 1/12 for gamma 1 and a = 6": Stated(
            (1 / 12, 1 / 12, 1 / 12),
            lambda: tuple(descent(DeltaSGD(gamma=1.0), 6.0, steps)[1] for steps in (2, 3, 4)),
        ),
        # by way of sqrt(1.1) * 0.2 ; 1 - 0.2097618
        "amplify_first: the first step size is 0.2097618": Stated(
            (0.7902382, 0.2097618), lambda: descent(DeltaSGD(amplify_first=True), 1.0, 1), 1e-7
        ),
    }


def descent(method: DeltaSGD, curvature: float, steps: int) -> tuple[float, float]:
    """Return the weight after some steps from 1, and the last step size."""
    local = toy.client(AT_ONE, toy.bowl(curvature), steps, lr=0.2)
    (end,) = toy.ended(method, local)
    return end, local.lr
