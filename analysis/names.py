"""What is known of the published methods without importing them: names, and what each sends."""

from typing import NamedTuple


class Known(NamedTuple):
    """A method's name in print, and what a client sends and receives in a round (M: a model)."""

    name: str
    up: str = "M"
    down: str = "M"


KNOWN = {
    "centralized": Known("Centralized"),
    "fedavg": Known("FedAvg"),
    "fedavgm": Known("FedAvgM"),
    "fedprox": Known("FedProx"),
    "scaffold": Known("SCAFFOLD", "2M", "2M"),
    "ccvr": Known("CCVR", "M; and from every client C(d + d^2)", "M; and to every client M"),
    "vhl": Known("VHL", "M (head of 2C outputs)", "M (head of 2C outputs)"),
    "fedasam": Known("FedASAM"),
    "fedexp": Known("FedExP"),
    "feddecorr": Known("FedDecorr"),
    "feddisco": Known("FedDisco"),
    "fedinit": Known("FedInit"),
    "fedlesam": Known("FedLESAM", "2M", "2M"),
    "nucfl": Known("NUCFL"),
    "fedadam": Known("FedAdam"),
    "delta_sgd": Known("Delta-SGD"),
    "fedmr": Known("FedMR"),
    "fedgps": Known("FedGPS", "M + Cd", "2M + Cd"),
    "fedgps_cf": Known("FedGPS-CF", "M + Cd", "M + Cd"),
}
FORMULAS = {method: (known.up, known.down) for method, known in KNOWN.items()}


def published_name(method: str) -> str:
    """Return a method's name in print; methods from elsewhere keep the name they have."""
    return KNOWN[method].name if method in KNOWN else method
