"""The model that a trial ends with."""

from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import nn

from fedgps_ray import seeds
from fedgps_ray.data import datasets
from fedgps_ray.errors import UserError
from fedgps_ray.models import build
from fedgps_ray.models.outside import followed, root, trained
from fedgps_ray.spec import TrialSpec


def final_model(folder: Path, spec: TrialSpec, source: datasets.Source) -> nn.Module:
    """Return the last global model of a trial that has ended, ready to be used for testing."""
    path = folder / "model.safetensors"
    if not path.is_file():
        raise UserError(f"{folder} has no model.safetensors: the trial has not ended yet")
    data = datasets.load(spec.dataset, source)
    outputs = spec.method.num_outputs(data.num_classes)
    dtype = torch.long if data.kind == "tokens" else torch.float32
    model = build(spec.model, data.input_shape, outputs, seeds.stream(spec.seed, "init"), dtype)
    tensors = load_file(path)
    with torch.no_grad():
        for name, values in (*trained(model), *followed(model)):
            values.data = tensors[name]  # also where the trial had another precision
    return root(model).eval()
