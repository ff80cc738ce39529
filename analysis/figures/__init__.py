"""Figures: each function takes frames and returns a Chart; save() writes it as PNG and PDF."""

from fedgps_ray.analysis.figures.ablation import ablation
from fedgps_ray.analysis.figures.chart import Chart, to_json
from fedgps_ray.analysis.figures.convergence import convergence
from fedgps_ray.analysis.figures.cost import accuracy_against_bytes
from fedgps_ray.analysis.figures.critical import average_ranks, critical_difference, figure_1
from fedgps_ray.analysis.figures.divergence import divergence
from fedgps_ray.analysis.figures.diversity import update_diversity
from fedgps_ray.analysis.figures.fairness import class_accuracy, client_accuracy
from fedgps_ray.analysis.figures.frames import labelled
from fedgps_ray.analysis.figures.paint import paint, save
from fedgps_ray.analysis.figures.partitions import partitions
from fedgps_ray.analysis.figures.scores import best_accuracy
from fedgps_ray.analysis.figures.settings import accuracy_by
from fedgps_ray.analysis.figures.stability import rank_stability

__all__ = [
    "Chart",
    "ablation",
    "accuracy_against_bytes",
    "accuracy_by",
    "average_ranks",
    "best_accuracy",
    "class_accuracy",
    "client_accuracy",
    "convergence",
    "critical_difference",
    "divergence",
    "figure_1",
    "labelled",
    "paint",
    "partitions",
    "rank_stability",
    "save",
    "to_json",
    "update_diversity",
]
