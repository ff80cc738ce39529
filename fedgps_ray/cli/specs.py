"""Options to specs."""

from collections.abc import Sequence
from typing import Any

import torch

from fedgps_ray.errors import UserError
from fedgps_ray.experiment import resolve
from fedgps_ray.experiment.tables import parse_setting, put
from fedgps_ray.spec import ExecutionSpec, TrialSpec, execution_spec


def trial(values: dict[str, Any], settings: Sequence[str]) -> tuple[TrialSpec, dict[str, str]]:
    """Return the spec, and where the .npz files are that it names by content."""
    for setting in settings:
        put(values, *parse_setting(setting))
    return resolve(values)


def execution(**values: object) -> ExecutionSpec:
    """Return how trials are to run, on a device that exists."""
    found = execution_spec(**values)
    if found.device == "cuda" and not torch.cuda.is_available():
        raise UserError("--device cuda: PyTorch finds no GPU here; use --device auto or cpu")
    return found
