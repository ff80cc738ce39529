"""How each method is drawn, in every figure alike: colour-blind safe colours, strokes, markers."""

from collections import Counter
from collections.abc import Iterable
from itertools import cycle, product
from typing import NamedTuple

from fedgps_ray.titles import TITLES

OURS = (TITLES["fedgps"], TITLES["fedgps_cf"])
REFERENCE = TITLES["fedavg"]
OWN_COLOURS = {OURS[0]: "#D55E00", OURS[1]: "#0072B2", REFERENCE: "#000000"}
COLOURS = (  # the muted scheme of Paul Tol; above: Okabe and Ito
    *("#117733", "#CC6677", "#88CCEE", "#AA4499", "#999933"),
    *("#332288", "#44AA99", "#882255", "#DDCC77"),
)
STROKES = ("-", "--", "-.", ":")
MARKERS = "osD^vP*X<>hp8d"


class Look(NamedTuple):
    """How a method is drawn."""

    color: str
    linestyle: str
    marker: str
    linewidth: float


def looks(labels: Iterable[str]) -> dict[str, Look]:
    """Return each label's look; pass all labels of a comparison, so that figures agree.

    FedAvg and ours have colours of their own, unless several of their variants are compared.
    """
    ordered = sorted(set(labels))
    variants = Counter(method_of(label) for label in ordered)
    others = cycle(product(STROKES, COLOURS))
    made = {}
    for number, label in enumerate(ordered):
        method = method_of(label)
        own = label in OWN_COLOURS or (method in OWN_COLOURS and variants[method] == 1)
        stroke, colour = ("-", OWN_COLOURS[method]) if own else next(others)
        width = 2.2 if method in OURS else 1.3
        made[label] = Look(colour, stroke, MARKERS[number % len(MARKERS)], width)
    return made


def plain_looks(names: Iterable[str]) -> dict[str, Look]:
    """Return looks for series that are not methods, in the order given."""
    choices = zip(cycle(COLOURS), cycle(MARKERS), strict=False)
    return {name: Look(*(c, "-", m, 1.5)) for name, (c, m) in zip(names, choices, strict=False)}


def method_of(label: str) -> str:
    """Return the method of a label, which may go on to name its options."""
    return label.split(" (")[0].split(",")[0]
