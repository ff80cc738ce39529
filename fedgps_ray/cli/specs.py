"""Options to specs."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from fedgps_ray.errors import UserError
from fedgps_ray.experiment import resolve
from fedgps_ray.experiment.suited import suited, suited_noise
from fedgps_ray.experiment.tables import parse_setting, put
from fedgps_ray.spec import ExecutionSpec, TrialSpec, execution_spec


class Trial(NamedTuple):
    """A spec, where the files are that it names by content, and what was chosen for the user."""

    spec: TrialSpec
    files: dict[str, str]
    chosen: dict[str, Any]


def trial(values: dict[str, Any], settings: Sequence[str]) -> Trial:
    """Return the spec of settings; those that are None or missing suit the data set."""
    for setting in settings:
        put(values, *parse_setting(setting))
    chosen = suited(values)
    spec, files = resolve({**values, **chosen})
    if spec.method.needs_surrogate and (noise := suited_noise(values, spec.batch_size)):
        chosen |= noise
        spec, files = resolve({**values, **chosen})
    return Trial(spec, files, chosen)


def execution(**values: object) -> ExecutionSpec:
    """Return how trials are to run, on a device that exists."""
    found = execution_spec(**values)
    if found.device == "cuda" and not torch.cuda.is_available():
        raise UserError("--device cuda: PyTorch finds no GPU here; use --device auto or cpu")
    return found
