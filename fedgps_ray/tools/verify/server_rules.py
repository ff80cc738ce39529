"""Hand-computed numbers for the methods that differ from FedAvg on the server."""

from collections.abc import Sequence

import numpy as np

from fedgps_ray.methods.base import Method, Reply
from fedgps_ray.methods.fedadam import FedAdam
from fedgps_ray.methods.fedavg import FedAvg
from fedgps_ray.methods.fedavgm import FedAvgM
from fedgps_ray.methods.feddisco import FedDisco
from fedgps_ray.methods.fedexp import FedExP
from fedgps_ray.methods.fedmr import FedMR, State
from fedgps_ray.tools.verify import toy
from fedgps_ray.tools.verify.check import Check, Claims, Stated, Value, stated

ONE, TWO = {"weight": (0.0,)}, {"first": (0.0,), "second": (0.0,)}


def checks() -> list[Check]:
    """Return all of them."""
    return stated(
        fedavg=fedavg(),
        fedavgm=fedavgm(),
        fedexp=fedexp(),
        feddisco=feddisco(),
        fedadam=fedadam(),
        fedmr=fedmr(),
    )


def merged(method: Method, *replies: Reply, start: Sequence[float] = (0.0, 0.0)) -> Value:
    """Return the weights after one merge."""
    state = method.init(toy.params(*start), toy.cohort(len(replies), ONE))
    return toy.numbers(method.global_params(method.merge(state, replies)).weights)


def merged_buffers(method: Method, start: float, *replies: Reply) -> Value:
    """Return the running statistics after one merge."""
    state = method.init(toy.params(0.0, buffers=(start,)), toy.cohort(len(replies), ONE))
    return toy.numbers(method.global_params(method.merge(state, replies)).buffers)


def path(method: Method, *client_means: float, start: float = 10.0) -> Value:
    """Return the weight after each round, where the clients' models have these means."""
    state, seen = method.init(toy.params(start), toy.cohort(1, ONE)), [start]
    for mean in client_means:
        state = method.merge(state, [toy.reply([mean - seen[-1]])])
        seen.append(float(method.global_params(state).weights))
    return tuple(seen[1:])


# --- FedAvg -------------------------------------------------------------------------------------


def fedavg() -> Claims:
    """Return the claims about the template that all methods change."""
    models = [toy.reply([1.0, 0.0], (1,), [10.0]), toy.reply([5.0, 4.0], (3,), [20.0])]
    return {
        # 1 - 0.1 * 2 = 0.8 ; v = 0.9 * 2 + 2 = 3.8 ; 0.8 - 0.38
        "SGD with momentum 0.9 and lr 0.1: two gradients of 2 lead from 1 to 0.42": Stated(
            (0.42,), sgd
        ),
        # 1 - 0.1 * (2 + 0.9 * 2) = 0.62 ; v = 3.8 ; 0.62 - 0.1 * (2 + 0.9 * 3.8)
        "the same with Nesterov: 0.078": Stated((0.078,), lambda: sgd(nesterov=True)),
        # G = 2.5, w = 0.75 ; G = 2.375, v = 2.25 + 2.375 = 4.625 ; 0.75 - 0.4625
        "the same with weight decay 0.5: 0.2875": Stated((0.2875,), lambda: sgd(weight_decay=0.5)),
        # by way of (1*1 + 3*5) / 4 and (1*0 + 3*4) / 4
        "models (1, 0) and (5, 4) of 1 and 3 samples have the mean (4, 3)": Stated(
            (4.0, 3.0), lambda: merged(FedAvg(), *models), 0.0
        ),
        "weighted uniformly, the mean of these models is (3, 2)": Stated(
            (3.0, 2.0), lambda: merged(FedAvg(weighting="uniform"), *models), 0.0
        ),
        # by way of (1*10 + 3*20) / 4
        "running statistics 10 and 20 have the mean 17.5": Stated(
            (17.5,), lambda: merged_buffers(FedAvg(), 0.0, *models), 0.0
        ),
        "weighted uniformly, their mean is 15": Stated(
            (15.0,), lambda: merged_buffers(FedAvg(weighting="uniform"), 0.0, *models), 0.0
        ),
    }


def sgd(**settings: object) -> Value:
    """Return where two gradients of 2 lead from 1."""
    return toy.ended(
        FedAvg(), toy.client({"weight": (1.0,)}, toy.slope(2.0), 2, momentum=0.9, **settings)
    )


# --- FedAvgM ------------------------------------------------------------------------------------


def fedavgm() -> Claims:
    """Return the claims about momentum on the server."""
    return {
        # d 1, v 1, 10 - (1 + 0.9) ; d 0.5, v 1.4, 8.1 - (0.5 + 0.9 * 1.4)
        "Nesterov: from 10, clients' means 9 and 7.6 lead to 8.1 and 6.34": Stated(
            (8.1, 6.34), lambda: path(FedAvgM(), 9.0, 7.6)
        ),
        # 10 - 1 ; v 0.9 + 0.5 = 1.4, 9 - 1.4
        "plain momentum is not damped: means 9 and 8.5 lead to 9 and 7.6": Stated(
            (9.0, 7.6), lambda: path(FedAvgM(nesterov=False), 9.0, 8.5)
        ),
        # by the rule of the weights: 1 - 1.9 * 0.8 = -0.52
        "a running variance is averaged to 0.2, not extrapolated to -0.52": Stated(
            (0.2,), lambda: merged_buffers(FedAvgM(), 1.0, toy.reply([0.0], buffers=[0.2])), 0.0
        ),
    }


# --- FedExP -------------------------------------------------------------------------------------


def fedexp() -> Claims:
    """Return the claims about the adaptive server step."""
    counter = [toy.reply([d, 0.0], buffers=[79.0]) for d in (3.0, -1.0)]
    return {
        # mean (1, 0), mean square 5: 5 / (2 * 1.001)
        "updates (3, 0) and (-1, 0) are followed 2.4975025 times": Stated(
            (2.4975025, 0.0),
            lambda: merged(FedExP(), toy.reply([3.0, 0.0]), toy.reply([-1.0, 0.0])),
            1e-7,
        ),
        # 4 / (2 * 2.001) < 1: the mean itself
        "the step is never below 1: (2, 0) and (0, 2) lead to (1, 1)": Stated(
            (1.0, 1.0), lambda: merged(FedExP(), toy.reply([2.0, 0.0]), toy.reply([0.0, 2.0])), 0.0
        ),
        "equal updates of all clients are followed once": Stated(
            (3.0, 4.0), lambda: merged(FedExP(), toy.reply([3.0, 4.0]), toy.reply([3.0, 4.0])), 0.0
        ),
        # with the counter's 79 in the norms it would be 6246 / 2 / 6242 -> 1
        "running statistics are in no norm: still 2.4975025": Stated(
            (2.4975025, 0.0), lambda: merged(FedExP(), *counter), 1e-7
        ),
        # by way of 5 / (2 * (1 + 2 * 0.001 * 0.998^2))
        "eps_rule authors: 2.4950299 in the first round": Stated(
            (2.4950299, 0.0),
            lambda: merged(
                FedExP(eps_rule="authors"), toy.reply([3.0, 0.0]), toy.reply([-1.0, 0.0])
            ),
            1e-7,
        ),
        "iterates 4 and 6 are tested as 4 and 5": Stated((4.0, 5.0), tested_iterates, 0.0),
    }


def tested_iterates() -> Value:
    """Return the weights tested after each of two rounds that end at 4 and at 6."""
    method, seen = FedExP(), []
    state = method.init(toy.params(0.0), toy.cohort(1, ONE))
    for moved in (4.0, 2.0):
        state = method.merge(state, [toy.reply([moved])])
        seen.append(float(method.deploy(state, toy.turn(0, 1), lambda *_: []).weights))
    return tuple(seen)


# --- FedDisco -----------------------------------------------------------------------------------


def feddisco() -> Claims:
    """Return the claims about the weights; clients move by (1, 0) and (0, 1), which shows them."""
    return {
        # p (0.5, 0.5), KL (ln 2, 0), d (1, 0): (0.5 - 0.5 + 0.1, 0.5 + 0.1) / 0.7
        "labels (10, 0) and (5, 5) have the weights 1/7 and 6/7": Stated(
            (1 / 7, 6 / 7), lambda: weights_of(FedDisco(), (10, 0), (5, 5))
        ),
        # 0.1 - 0.5 + 0.1 < 0
        "a small client with one class has weight 0": Stated(
            (0.0, 1.0), lambda: weights_of(FedDisco(), (10, 0), (45, 45)), 0.0
        ),
        # (0.5 - 0.5 * ln 2 + 0.1, 0.6), divided by their sum
        "without normalising the divergence: 0.2969517 and 0.7030483": Stated(
            (0.2969517, 0.7030483),
            lambda: weights_of(FedDisco(normalised=False), (10, 0), (5, 5)),
            1e-7,
        ),
        "equal sizes and equal label distributions have equal weights": Stated(
            (0.5, 0.5), lambda: weights_of(FedDisco(), (8, 2), (8, 2)), 1e-12
        ),
    }


def weights_of(method: Method, *label_counts: tuple[int, ...]) -> Value:
    """Return the aggregation weights of two clients."""
    first, second = label_counts
    return merged(method, toy.reply([1.0, 0.0], first), toy.reply([0.0, 1.0], second))


# --- FedAdam ------------------------------------------------------------------------------------


def fedadam() -> Claims:
    """Return the claims about Adam on the server, with server_lr 0.1 and tau 0.001."""
    zero = FedAdam(server_lr=0.1, second_start="zero")
    flower = FedAdam(server_lr=0.1, second_start="zero", bias_correction="flower")
    return {
        # m 0.1, v 0.01: 0.1 * 0.1 / 0.101 ; m 0.14, v 0.0124: 0.1 * 0.14 / (0.1113553 + 0.001)
        "v from 0: updates of 1 and 0.5 move by 0.0990099 and 0.1246047": Stated(
            (0.0990099, 0.0990099 + 0.1246047),
            lambda: path(zero, 1.0, 0.0990099 + 0.5, start=0.0),
            1e-6,
        ),
        # with v at 0.99e-6 + 0.01
        "v from tau squared: an update of 1 moves by 0.0990050": Stated(
            (0.0990050,), lambda: path(FedAdam(server_lr=0.1), 1.0, start=0.0), 1e-7
        ),
        # times sqrt(1 - 0.99^2) / (1 - 0.9^2) = 0.1410674 / 0.19
        # in the second round with powers of 3: 0.1246047 * 0.1723421 / 0.271
        "bias_correction flower: the same updates move by 0.0735109 and 0.0792411": Stated(
            (0.0735109, 0.0735109 + 0.0792411),
            lambda: path(flower, 1.0, 0.0735109 + 0.5, start=0.0),
            1e-6,
        ),
        # mean 0.5, m 0.05, v 0.0025: 0.1 * 0.05 / 0.051 ; from the mean of squares, v 0.005
        "the mean is squared, squares are not averaged: 1 and 0 move by 0.0980392": Stated(
            (0.0980392,),
            lambda: merged(zero, toy.reply([1.0]), toy.reply([0.0]), start=(0.0,)),
            1e-7,
        ),
        "running statistics are averaged, not adapted": Stated(
            (0.2,), lambda: merged_buffers(FedAdam(), 1.0, toy.reply([0.0], buffers=[0.2])), 0.0
        ),
    }


# --- FedMR --------------------------------------------------------------------------------------


class Orders:
    """A stream of given permutations."""

    def __init__(self, *orders: Sequence[int]) -> None:
        self.orders = iter(orders)

    def permutation(self, size: int) -> object:
        """Return the next one."""
        return np.array(next(self.orders))


def fedmr() -> Claims:
    """Return the claims about recombination."""
    return {
        "models (1, 10) and (3, 20), first layer swapped: (3, 10) and (1, 20) are sent": Stated(
            ((3.0, 10.0), (1.0, 20.0)), lambda: mixtures(Orders([1, 0], [0, 1])), 0.0
        ),
        "whatever the shuffle, each layer is dealt out once: 1, 3 and 10, 20": Stated(
            ((1.0, 3.0), (10.0, 20.0)), dealt, 0.0
        ),
        "the model that is tested is their mean (2, 15)": Stated((2.0, 15.0), tested_mean, 0.0),
    }


def mixtures(rng: object) -> tuple[tuple[float, ...], ...]:
    """Return what two clients receive after a round that ended at (1, 10) and (3, 20)."""
    models = toy.params(1.0, 10.0), toy.params(3.0, 20.0)
    state = State(models, models[0], toy.cohort(2, TWO).layout)
    sent = FedMR().send(state, toy.turn(1, 2, rng))
    return tuple(toy.numbers(message.params.weights) for message in sent)


def dealt() -> Value:
    """Return the values of each layer in ascending order."""
    return tuple(tuple(sorted(layer)) for layer in zip(*mixtures(None), strict=True))


def tested_mean() -> Value:
    """Return the model tested after two clients of unequal size sent theirs."""
    models = toy.params(1.0, 10.0), toy.params(3.0, 20.0)
    method = FedMR()
    state = method.init(toy.params(0.0, 0.0), toy.cohort(2, TWO))
    sizes = [toy.reply([], (n,)).client for n in (1, 9)]
    state = method.merge(state, [Reply(*pair) for pair in zip(sizes, models, strict=True)])
    return toy.numbers(method.deploy(state, toy.turn(0, 2), lambda *_: []).weights)
