"""Which device trials compute on: what options ask for, and whether it is there."""

from collections.abc import Callable, Mapping, Sequence

import torch

from fedgps_ray.errors import UserError
from fedgps_ray.experiment import Experiment
from fedgps_ray.identity import Settings
from fedgps_ray.spec import ExecutionSpec, TrialSpec


def device_settings(wanted: Settings) -> dict[str, str]:
    """Return the device that options ask for, as a setting: a share of a GPU means cuda."""
    asked = wanted.get("device", "auto")
    if asked != "auto":
        return {"device": asked}
    return {"device": "cuda"} if wanted.get("client_gpus") else {}


def placed(load: Callable[[Mapping[str, str]], Experiment], wanted: Settings) -> Experiment:
    """Load an experiment on the device that options, its trials or its share of a GPU name."""
    experiment = load(device_settings(wanted))
    implied = device_settings({**experiment.execution, **wanted})
    named = any("device" in cell.spec.model_fields_set for cell in experiment.cells)
    return load(implied) if implied and not named else experiment


def check_devices(trials: Sequence[TrialSpec], execution: ExecutionSpec) -> None:
    """Refuse a device without a share of it, and a share or a device that is not there."""
    share = execution.client_gpus
    if all(spec.device == "cpu" for spec in trials):
        if share:
            raise UserError(
                f"--client-gpus {share:g}: device cpu has no use for it; use --device cuda"
                ' (in a file: device = "cuda"), or leave it out'
            )
        return
    if execution.actors != 0 and not share:
        raise UserError(
            "device cuda: every actor needs a share of a GPU; add --client-gpus, such as 0.25 for"
            " four actors on a GPU"
        )
    if execution.address is None and not torch.cuda.is_available():
        raise UserError("device cuda: PyTorch finds no GPU here; use --device cpu, or doctor")


def unused_gpu(spec: TrialSpec, execution: ExecutionSpec) -> str | None:
    """Say how to use a GPU of this machine that a trial leaves idle, if there is one."""
    if spec.device == "cuda" or execution.address is not None or not torch.cuda.is_available():
        return None
    option = "--device cuda" if execution.actors == 0 else "--client-gpus 0.25"
    return f"this machine has a GPU that is not used ({torch.cuda.get_device_name()}): add {option}"
