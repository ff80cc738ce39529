"""FedDisco (Ye et al., 2023): clients whose labels are far from balanced count less."""

import math
from collections.abc import Sequence
from typing import ClassVar

from pydantic.dataclasses import dataclass

from fedgps_ray.methods.base import STRICT, About, Ask, Turn
from fedgps_ray.methods.fedavg import FedAvg, State
from fedgps_ray.training.local import Client, NotNegative


@dataclass(frozen=True, config=STRICT)
class FedDisco(FedAvg):
    """FedAvg with weights max(0, p_k - a d_k + b), d_k how far labels are from balanced.

    d_k is the KL divergence from the uniform distribution; unless normalised is off, it is divided
    by its sum over the clients of the round, without which all weights can be zero. Where they are,
    the plain shares p_k are used and the row's metrics say so.
    """

    name: ClassVar[str] = "feddisco"
    title: ClassVar[str] = "FedDisco"
    about: ClassVar[About] = FedAvg.about._replace(
        server="mean weighted by size and balance of labels",
        source="Ye et al., ICML 2023",
    )

    a: NotNegative = 0.5
    b: NotNegative = 0.1
    normalised: bool = True

    def shares(self, clients: Sequence[Client]) -> list[float]:
        """Return the weights, times the sum of the plain ones; these, if no weight is positive."""
        weights = self.balanced(clients)
        return weights if any(weights) else super().shares(clients)

    def balanced(self, clients: Sequence[Client]) -> list[float]:
        """Return max(0, p_k - a d_k + b), times the sum of the plain weights."""
        plain = super().shares(clients)
        distances = [from_uniform(client.label_counts) for client in clients]
        total = sum(distances) if self.normalised else 1.0
        far = [d / total if total else 0.0 for d in distances]
        whole = sum(plain)
        return [
            max(0.0, n - whole * (self.a * d - self.b)) for n, d in zip(plain, far, strict=True)
        ]

    def measure(self, state: State, turn: Turn, ask: Ask) -> dict[str, float]:
        """Say whether the plain shares had to be used."""
        return {"plain_shares": float(not any(self.balanced(turn.clients)))}


def from_uniform(label_counts: Sequence[int]) -> float:
    """Return the KL divergence of the label distribution from the uniform one, in nats."""
    total, classes = sum(label_counts), len(label_counts)
    return sum(n / total * math.log(n / total * classes) for n in label_counts if n)
