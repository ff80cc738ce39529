"""Imports code by name, when it is needed."""

import importlib
from typing import Any


def load(reference: str) -> Any:
    """Return the object that "package.module:name" refers to, importing the module.

    Commands and actors use this so that only the processes that need PyTorch import it.
    """
    module, _, name = reference.partition(":")
    return getattr(importlib.import_module(module), name)
