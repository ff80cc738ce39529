"""All methods by name, in the order of the paper."""

from fedgps_ray.methods.base import Method
from fedgps_ray.methods.fedavg import FedAvg
from fedgps_ray.methods.fedgps import FedGPS
from fedgps_ray.methods.fedgps_cf import FedGPSCF

METHODS: dict[str, type[FedAvg]] = {
    "fedavg": FedAvg,
    "fedgps": FedGPS,
    "fedgps_cf": FedGPSCF,
}

__all__ = ["METHODS", "FedAvg", "Method"]
