"""Code that is imported when it is needed, by its name."""

import importlib
from typing import Any


def load(reference: str) -> Any:
    """Return what "package.module:name" names, importing the module now.

    Commands and actors use it, so that PyTorch is imported only by the processes that need it.
    """
    module, _, name = reference.partition(":")
    return getattr(importlib.import_module(module), name)
