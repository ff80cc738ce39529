"""Imports code by name, when it is needed."""

import importlib
from typing import Any


def load(reference: str) -> Any:
    """Return the object that "package.module:name" refers to, importing the module.

    Commands and actors use this so that only the processes that need PyTorch import it.
    """
    module, _, name = reference.partition(":")
    return getattr(importlib.import_module(module), name)


def use_large_pages() -> None:
    """Let PyTorch, not imported yet, keep large tensors in large pages where the system has them.

    It saves a few percent of the time of a training step; whoever set it otherwise is obeyed.
    """
    os.environ.setdefault(LARGE_PAGES, "1")
