"""Imports code by name, when it is needed."""

import gc
import importlib
from typing import Any


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
