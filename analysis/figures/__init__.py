"""Figures: each function takes frames and returns a matplotlib Figure; save() writes it."""

from analysis.figures.ablation import ablation
from analysis.figures.convergence import convergence
from analysis.figures.cost import accuracy_against_bytes
from analysis.figures.critical import critical_difference, figure_1
from analysis.figures.divergence import divergence
from analysis.figures.drift import client_drift
from analysis.figures.frames import labelled
from analysis.figures.partitions import partitions
from analysis.figures.settings import accuracy_by
from analysis.figures.stability import rank_stability
from analysis.figures.style import save

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
