"""First values of a model, drawn from a given stream: PyTorch's default distributions."""

import math

import numpy as np
import torch
from torch import Tensor, nn

from fedgps_ray.models.outside import Adapted
from fedgps_ray.models.vit import Positions


@torch.no_grad()
def initialise(model: nn.Module, rng: np.random.Generator) -> None:
    """Fill every parameter and buffer in place, module by module; equal on every device.

    A network from outside is made once more, and its values are taken over.
    """
    if isinstance(model, Adapted):
        model.initialise(rng)
        return
    generator = torch.Generator("cpu").manual_seed(int(rng.integers(2**63)))
    for module in model.modules():
        _fill(module, generator)


def _fill(module: nn.Module, generator: torch.Generator) -> None:
    match module:
        case nn.Conv2d() | nn.Linear():
            _draw_affine(module, generator)
        case nn.BatchNorm2d() | nn.LayerNorm():
            _reset_norm(module)
        case Positions():
            drawn = torch.empty(module.values.shape, dtype=torch.float32, device="cpu")
            module.values.copy_(drawn.normal_(0.0, 0.02, generator=generator))
        case _ if list(module.parameters(recurse=False)):
            raise TypeError(f"no first values are known for {type(module).__name__}")


def _draw_affine(module: nn.Conv2d | nn.Linear, generator: torch.Generator) -> None:
    bound = 1 / math.sqrt(module.weight[0].numel())  # one over the root of the fan-in
    for values in module.parameters(recurse=False):
        # float32 whatever the model's type, so that a float64 model starts at the same values
        drawn = torch.empty(values.shape, dtype=torch.float32, device="cpu")
        values.copy_(drawn.uniform_(-bound, bound, generator=generator))


def _reset_norm(module: nn.BatchNorm2d | nn.LayerNorm) -> None:
    state: dict[str, Tensor] = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    for name, values in state.items():
        values.fill_(1.0 if name in ("weight", "running_var") else 0.0)
