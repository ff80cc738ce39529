"""Rounds copied to where people look at curves: CSV, TensorBoard, Weights & Biases, MLflow."""

from fedgps_ray.loggers.follow import following

__all__ = ["following"]
