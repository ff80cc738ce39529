"""Estimates the cost of a trial: counted in tiny rounds, timed on this machine."""

from fedgps_ray.tools.cost.estimate import (
    GPU_SPEEDUP,
    Budget,
    Cost,
    budget,
    estimate,
    gpu_hours,
    sentence,
    size_of,
)
from fedgps_ray.tools.cost.timing import Measured, measure_seconds_per_image

__all__ = [
    "GPU_SPEEDUP",
    "Budget",
    "Cost",
    "Measured",
    "budget",
    "estimate",
    "gpu_hours",
    "measure_seconds_per_image",
    "sentence",
    "size_of",
]
