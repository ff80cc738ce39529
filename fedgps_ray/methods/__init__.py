"""All methods by name, in the order of the paper."""

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
from fedgps_ray.methods.nucfl import NUCFL
from fedgps_ray.methods.scaffold import Scaffold
from fedgps_ray.methods.vhl import VHL

METHODS: dict[str, type[FedAvg]] = {
    "fedavg": FedAvg,
    "fedavgm": FedAvgM,
    "fedprox": FedProx,
    "scaffold": Scaffold,
    "ccvr": CCVR,
    "vhl": VHL,
    "fedasam": FedASAM,
    "fedexp": FedExP,
    "feddecorr": FedDecorr,
    "feddisco": FedDisco,
    "fedinit": FedInit,
    "fedlesam": FedLESAM,
    "nucfl": NUCFL,
    "fedadam": FedAdam,
    "delta_sgd": DeltaSGD,
    "fedmr": FedMR,
    "fedgps": FedGPS,
    "fedgps_cf": FedGPSCF,
    "centralized": Centralized,
}

__all__ = ["METHODS", "FedAvg", "Method"]
