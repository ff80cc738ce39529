"""Hand-computed numbers for FedGPS and FedGPS-CF."""

from collections.abc import Sequence

from fedgps_ray.data.batches import Batch
from fedgps_ray.identity import Table
from fedgps_ray.methods import fedgps_cf as cf
from fedgps_ray.methods.base import Method, Reply
from fedgps_ray.methods.fedgps import FedGPS, Memory, Message, Prototypes, Upload
from fedgps_ray.methods.fedgps_cf import FedGPSCF
from fedgps_ray.tools.verify import toy
from fedgps_ray.tools.verify.check import Check, Claims, Stated, Value, stated
from fedgps_ray.tools.verify.features import ALIKE, CORNERS, rows
from fedgps_ray.training.local import Client

TENSORS = {"weight": (0.0, 0.0), "bias": (0.0,)}
PLANE = {"weight": (0.0, 0.0)}
PATH: Table = {"goal": False}  # cross-entropy alone, so that the loss can be any function
# tensors (3, 4) and (12): norms 5 + 12 = 17, together 13
LONG = (3.0, 4.0, 12.0)
SUM, GLOBAL = (3 / 34, 4 / 34, 12 / 34), (3 / 26, 4 / 26, 12 / 26)
NEAR = 1e-6  # because 1e-7 is added to the norm


def checks() -> list[Check]:
    """Return all of them."""
    return stated(fedgps={**path(), **goal(), **prototypes()}, fedgps_cf=inferred_path())


# --- path: where the gradient is taken ----------------------------------------------------------


def path() -> Claims:
    """Return the claims about direction and size of the look-ahead."""
    old = Memory(-1, 0.5, None)
    return {
        "look-ahead along (3, 4), (12): per-tensor norms sum to rho = 0.5": Stated(
            SUM, lambda: ahead(FedGPS(**PATH), LONG, old), NEAR
        ),
        "perturb_norm global: the whole look-ahead has the norm 0.5": Stated(
            GLOBAL, lambda: ahead(FedGPS(perturb_norm="global", **PATH), LONG, old), NEAR
        ),
        # weights of norm 5, a tenth of that along (3, 4) of norm 5
        "rho_relative 0.1 at the weights (0, 5): the look-ahead along (3, 4) is (0.3, 0.4)": Stated(
            (0.3, 0.4), lambda: ahead_from(FedGPS(rho_relative=0.1, **PATH), (0.0, 5.0)), NEAR
        ),
        "ten times the update, the same look-ahead": Stated(
            SUM, lambda: ahead(FedGPS(**PATH), [10 * x for x in LONG], old), NEAR
        ),
        "direction -1 looks back": Stated(
            tuple(-x for x in SUM), lambda: ahead(FedGPS(direction=-1, **PATH), LONG, old), NEAR
        ),
        "a client's first participation is not perturbed": Stated(
            (0.0, 0.0, 0.0), lambda: ahead(FedGPS(**PATH), LONG, None), 0.0
        ),
        "first_time global_update: it follows the mean update": Stated(
            SUM, lambda: ahead(FedGPS(first_time="global_update", **PATH), LONG, None), NEAR
        ),
        # mean (0.5, 0.5) of two, own (1, 0): (2 * 0.5 - 1, 2 * 0.5) / 1
        "its own update is left out: mean (0.5, 0.5), own (1, 0), direction (0, 1)": Stated(
            (0.0, 0.5),
            lambda: ahead(FedGPS(**PATH), (0.5, 0.5), Memory(0, 0.5, toy.vector(1.0, 0.0))),
            NEAR,
        ),
        "with two clients, the direction of each is the other's last update": Stated(
            ((-0.05, -0.55), (-0.55, -0.05)), lambda: two_clients(FedGPS(**PATH)), NEAR
        ),
        # theta after one round is -0.1, the look-ahead along it: -0.1 - 0.5
        "with identical clients, the direction is also the client's own update": Stated(
            ((-0.6,), (-0.6,), (-0.6,)), lambda: three_alike(FedGPS(**PATH)), 1e-5
        ),
    }


def ahead(method: Method, update: Sequence[float], memory: object) -> Value:
    """Return how far from the weights a client takes its gradient in round 1."""
    local = toy.client(PLANE if len(update) == 2 else TENSORS, toy.slope(*[0.0] * len(update)))
    local.round = 1
    start = toy.params(*[0.0] * len(update))
    method.work(local, Message(start, toy.vector(*update), None, 2.0), memory)
    return toy.points(local)[0]


def ahead_from(method: Method, at: tuple[float, float]) -> Value:
    """Return how far from given weights a client takes its gradient along (3, 4) in round 1."""
    local = toy.client(PLANE, toy.slope(0.0, 0.0))
    local.round = 1
    sent = Message(toy.params(*at), toy.vector(3.0, 4.0), None, 2.0)
    method.work(local, sent, Memory(-1, 0.5, None))
    (x, y), *_ = [toy.points(local)[0]]
    return x - at[0], y - at[1]


def two_clients(method: Method) -> Value:
    """Return where two clients, whose updates are (-0.1, 0) and (0, -0.1), look in round 1."""
    clients = toy.Federation(method, PLANE, toy.slope(1.0, 0.0), toy.slope(0.0, 1.0))
    points = clients.round(0, 1).round(0, 1).points
    return points[0], points[1]


def three_alike(method: FedGPS) -> Value:
    """Return where three clients with the same loss look in round 1."""
    clients = toy.Federation(method, {"weight": (0.0,)}, *[toy.slope(1.0)] * 3)
    return tuple(clients.round(0, 1, 2).round(0, 1, 2).points.values())


# --- goal: the objective ------------------------------------------------------------------------


def goal() -> Claims:
    """Return the claims about the objective; a head of zeros with four outputs has ln 4 twice."""
    noise = toy.batch(ALIKE, [0, 0, 1])
    matched = FedGPS(align_labels="matched", temperature=1.0)
    return {
        # no two rows share a label
        "distinct labels: real and noise class c are not positives of each other, 2 ln 4": Stated(
            2.7725887, lambda: objective(FedGPS(temperature=1.0)), 1e-6
        ),
        # and ln(e + 2) - 1
        "matched labels: they are, 2 ln 4 + 0.5514447": Stated(
            3.3240334, lambda: objective(matched), 1e-6
        ),
        # and 0.1 * 0.2088411
        "contrast among noise features counts a tenth: 2 ln 4 + 0.0208841": Stated(
            2.7934728, lambda: objective(FedGPS(w_align=0.0, temperature=1.0), noise), 1e-6
        ),
        # prototypes (0, 0) and (0, 1) for features (1, 0) and (0, 1): (1 + 0 + 0 + 0) / 4
        "squared distance to the prototypes counts a tenth: 2 ln 4 + 0.025": Stated(
            2.7975887,
            lambda: objective(FedGPS(temperature=1.0), known=Prototypes(PROTOTYPES, KNOWN)),
            1e-6,
        ),
    }


PROTOTYPES, KNOWN = rows([0.0, 0.0], [0.0, 1.0]), rows([1.0, 1.0])[0].bool()


def objective(method: FedGPS, noise: Batch | None = None, known: Prototypes | None = None) -> float:
    """Return the loss of real images (1, 0), (0, 1), by default with identical noise images."""
    images = toy.batch(CORNERS, [0, 1])
    local = toy.featured(images, noise or images, outputs=4)
    return toy.loss_of(method, local, Message(local.network.params(), None, known, 1.0))


# --- prototypes ---------------------------------------------------------------------------------


def prototypes() -> Claims:
    """Return the claims about how the clients' class means are pooled."""
    return {
        # the first mean is (1 + 3) / 2, together (2 * 2 + 1 * 5) / 3
        "class means 2 of two samples and 5 of one pool to 3, as 1, 3, 5 at one client": Stated(
            (3.0, 3.0),
            lambda: (pooled(FedGPS(), [1.0, 3.0], [5.0]), pooled(FedGPS(), [1.0, 3.0, 5.0])),
        ),
        # the weight of one sample is the feature dimension 4: (2 * 2 + 4 * 5) / 6
        "single_sample_weight feature_dim, as in the public code: 4": Stated(
            4.0, lambda: pooled(FedGPS(single_sample_weight="feature_dim"), [1.0, 3.0], [5.0])
        ),
    }


def pooled(method: Method, *clients: Sequence[float]) -> float:
    """Return the prototype of class 0, from clients that drew noise with these features."""
    state, replies = None, []
    for k, values in enumerate(clients):
        noise = toy.batch([[value, 0.0, 0.0, 0.0] for value in values], [0] * len(values))
        local = toy.featured(toy.batch([[1.0, 0.0, 0.0, 0.0]], [1]), noise, outputs=4)
        start = local.network.params()
        state = method.init(start, toy.cohort(2, PLANE))
        upload: Upload = method.work(local, Message(start, None, None, 1.0), None).upload
        replies.append(Reply(Client(k, (1,)), upload))
    merged: Prototypes = method.merge(state, replies).prototypes
    return float(merged.values[0, 0])


# --- FedGPS-CF ----------------------------------------------------------------------------------


def inferred_path() -> Claims:
    """Return the claims about the direction inferred from two received models."""
    adjacent, always = FedGPSCF(**PATH), FedGPSCF(cf_remove_own="always", **PATH)
    return {
        # the model went (3, 4) since the round before, own part of two (0, 8): 2 (3, 4) - (0, 8)
        "present in the round before: its own update is left out, (6, 0) remains": Stated(
            (0.5, 0.0), lambda: inferred(adjacent, 0), NEAR
        ),
        "after a missed round: the model's whole movement (3, 4)": Stated(
            (0.3, 0.4), lambda: inferred(adjacent, -1), NEAR
        ),
        # by way of (3, 4) - (0, 8) / 2
        "cf_remove_own always: its own share (0, 4) is subtracted": Stated(
            (0.5, 0.0), lambda: inferred(always, -1), NEAR
        ),
        "a client's first participation is not perturbed": Stated(
            (0.0, 0.0), lambda: ahead(adjacent, (3.0, 4.0), None), 0.0
        ),
        "with two clients, the direction of each is the other's last update": Stated(
            ((-0.05, -0.55), (-0.55, -0.05)), lambda: two_clients(FedGPSCF(**PATH)), NEAR
        ),
        # client 0 saw 0 in round 0 and now sees -0.2, the sum of two rounds: -0.2 - 0.5
        "over two rounds the direction is the sum of their updates": Stated(
            (-0.7,), lambda: comes_back(FedGPSCF(**PATH)), 1e-5
        ),
    }


def inferred(method: FedGPSCF, last_round: int) -> Value:
    """Return the look-ahead in round 1 of a client that received (-3, -4) and now gets zero."""
    memory = cf.Memory(last_round, 0.5, toy.vector(0.0, 8.0), toy.vector(-3.0, -4.0))
    return ahead(method, (0.0, 0.0), memory)


def comes_back(method: FedGPSCF) -> Value:
    """Return where a client takes its gradient that took part in rounds 0 and 2."""
    clients = toy.Federation(method, {"weight": (0.0,)}, *[toy.slope(1.0)] * 2)
    return clients.round(0, 1).round(1).round(0).points[0]
