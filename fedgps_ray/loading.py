"""Imports code by name, when it is needed."""

import gc
import importlib
import os
from typing import Any

LARGE_PAGES = "THP_MEM_ALLOC_ENABLE"  # read by PyTorch with its first tensor


def load(reference: str) -> Any:
    """Return the object that "package.module:name" refers to, importing the module.

    Commands and actors use this so that only the processes that need PyTorch import it.
    """
    module, _, name = reference.partition(":")
    collects = gc.isenabled()
    gc.disable()  # a fifth of the time goes to it otherwise: modules leave next to no garbage
    try:
        return getattr(importlib.import_module(module), name)
    finally:
        if collects:
            gc.enable()


def use_large_pages() -> None:
    """Let PyTorch, not imported yet, keep large tensors in large pages where the system has them.

    It saves a few percent of the time of a training step; whoever set it otherwise is obeyed.
    """
    os.environ.setdefault(LARGE_PAGES, "1")
