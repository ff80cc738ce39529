"""Centralized training: one model on the data of all clients, the upper bound of the comparison."""

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic.dataclasses import dataclass

from fedgps_ray.methods.base import STRICT, About
from fedgps_ray.methods.fedavg import FedAvg


@dataclass(frozen=True, config=STRICT)
class Centralized(FedAvg):
    """FedAvg with a single client that holds all data; a round is its local epochs.

    The bytes counted are those between the server and this client.
    """

    name: ClassVar[str] = "centralized"
    title: ClassVar[str] = "Centralized"
    about: ClassVar[About] = FedAvg.about._replace(
        client="SGD on the pooled data",
        server="takes over the model",
        source="the usual upper bound",
    )
    overrides: ClassVar[Mapping[str, Any]] = {
        "clients": 1,
        "sampling_rate": 1.0,
        "partition": {"kind": "iid"},
    }
