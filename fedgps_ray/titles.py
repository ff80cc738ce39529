"""The methods of the published comparison: their published names, in the order of its tables."""

TITLES = {
    "fedavg": "FedAvg",
    "fedavgm": "FedAvgM",
    "fedprox": "FedProx",
    "scaffold": "SCAFFOLD",
    "ccvr": "CCVR",
    "vhl": "VHL",
    "fedasam": "FedASAM",
    "fedexp": "FedExP",
    "feddecorr": "FedDecorr",
    "feddisco": "FedDisco",
    "fedinit": "FedInit",
    "fedlesam": "FedLESAM",
    "nucfl": "NUCFL",
    "fedadam": "FedAdam",
    "delta_sgd": "Delta-SGD",
    "fedmr": "FedMR",
    "fedgps": "FedGPS",
    "fedgps_cf": "FedGPS-CF",
    "centralized": "Centralized",
}


def rank(name: str) -> tuple[int, str]:
    """Sort published methods in the paper's order, all others after them by name."""
    published = list(TITLES)
    return (published.index(name) if name in TITLES else len(published), name)
