"""Figures: each function takes frames and returns a matplotlib Figure; save() writes it."""

from fedgps_ray.analysis.figures.ablation import ablation
from fedgps_ray.analysis.figures.convergence import convergence
from fedgps_ray.analysis.figures.cost import accuracy_against_bytes
from fedgps_ray.analysis.figures.critical import critical_difference, figure_1
from fedgps_ray.analysis.figures.divergence import divergence
from fedgps_ray.analysis.figures.drift import client_drift
from fedgps_ray.analysis.figures.frames import labelled
from fedgps_ray.analysis.figures.partitions import partitions
from fedgps_ray.analysis.figures.settings import accuracy_by
from fedgps_ray.analysis.figures.stability import rank_stability
from fedgps_ray.analysis.figures.style import save

__all__ = [
    "ablation",
    "accuracy_against_bytes",
    "accuracy_by",
    "client_drift",
    "convergence",
    "critical_difference",
    "divergence",
    "figure_1",
    "labelled",
    "partitions",
    "rank_stability",
    "save",
]
