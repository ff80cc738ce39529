"""How a process computes: the type of its numbers, and PyTorch's settings for a GPU."""

import os
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal, NamedTuple

import torch
from torch.utils import deterministic as memory

from fedgps_ray.identity import Table

Precision = Literal["float32", "float64", "bf16", "tf32"]
WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"


class Arithmetic(NamedTuple):
    """The type of weights and updates, and that of the forward pass and the loss, if another."""

    dtype: torch.dtype = torch.float32
    cast: torch.dtype | None = None

    def casting(self, device: torch.device) -> AbstractContextManager[Any]:
        """Return the context in which a model and its loss are computed."""
        if self.cast is None:
            return nullcontext()
        # no cache: weights that were first cast without gradients would keep having none
        return torch.autocast(device.type, self.cast, cache_enabled=False)


def arithmetic(precision: Precision) -> Arithmetic:
    """Return the types of a precision; tf32 is a way to multiply numbers that stay float32."""
    if precision == "float64":
        return Arithmetic(torch.float64)
    return Arithmetic(cast=torch.bfloat16 if precision == "bf16" else None)


def settle(device: torch.device, precision: Precision, deterministic: bool) -> None:
    """Make PyTorch's settings for a process that works on a GPU, before CUDA starts there.

    Without them a float32 convolution is computed in TF32 on most GPUs, and equal trials may give
    other numbers. The sizes of cuBLAS's workspaces are read once, so they are always set.
    """
    if device.type != "cuda":
        return
    os.environ.setdefault(WORKSPACE, ":4096:8")
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    torch.backends.cudnn.allow_tf32 = precision == "tf32"
    torch.backends.cudnn.deterministic = deterministic
    torch.backends.cudnn.benchmark = not deterministic
    torch.use_deterministic_algorithms(deterministic)
    memory.fill_uninitialized_memory = False  # type: ignore[attr-defined]  # never read by us


def limit_memory(device: torch.device, share: float) -> None:
    """Let a process take no more of its GPU's memory than its share."""
    if device.type == "cuda" and 0 < share < 1:
        torch.cuda.set_per_process_memory_fraction(share, device)


def facts(device: torch.device) -> Table:
    """Say on what, and with which settings, this process computes."""
    if device.type != "cuda":
        return {"device": device.type}
    return {
        "device": torch.cuda.get_device_name(device),
        "cuda": torch.version.cuda,
        "tf32": torch.backends.cudnn.allow_tf32,
        "deterministic": torch.are_deterministic_algorithms_enabled(),
    }
