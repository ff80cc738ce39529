"""A part of a network that PyTorch has compiled for the batches of a trial."""

import importlib.util
import os
import shutil
import sysconfig
from collections.abc import Callable, Collection
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from fedgps_ray.errors import UserError

Part = Callable[[Tensor], Tensor]
INSTEAD = "or leave out compile"


class Compiled:
    """Computes batches of some sizes with compiled code, and all others as they are.

    Which code a batch meets depends on its shape alone, never on the batches before it: code that
    fits itself to what it has seen would make results depend on which actor saw what.
    """

    def __init__(self, part: Part, rows: Collection[int], device: torch.device) -> None:
        self._part, self._rows, self._device = part, frozenset(rows), device

    def __call__(self, x: Tensor) -> Tensor:
        """Return the output of the part."""
        is_step = torch.is_grad_enabled() and len(x) in self._rows
        return self._code(x) if is_step else self._part(x)

    @cached_property
    def _code(self) -> Part:
        check_compiler(self._device)
        os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # or each actor starts helpers
        torch.compiler.reset()  # what earlier trials of this process left counts against a limit
        repeats = torch.are_deterministic_algorithms_enabled()
        options: dict[str, str | int | bool | Callable[..., object]] = {"deterministic": repeats}
        return torch.compile(self._part, fullgraph=True, dynamic=False, options=options)


def check_compiler(device: torch.device) -> None:
    """Raise an error if code for a device cannot be compiled here."""
    compiler = os.environ.get("CXX", "g++")
    if shutil.which(compiler) is None:
        raise UserError(
            f"compile: there is no C++ compiler {compiler} here; install it (on Debian and Ubuntu:"
            f" apt-get install g++), {INSTEAD}"
        )
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        raise UserError(
            "compile: Python's header files are not here; install them (on Debian and Ubuntu:"
            f" apt-get install python3-dev), {INSTEAD}"
        )
    if device.type == "cuda" and importlib.util.find_spec("triton") is None:
        raise UserError(f"compile: Triton is not here; install it (pip install triton), {INSTEAD}")
