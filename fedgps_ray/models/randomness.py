"""Code that draws from global generators, made to draw from a given seed."""

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


@contextmanager
def seeded(seed: int, device: torch.device | None = None) -> Iterator[None]:
    """Seed the global generators of PyTorch, NumPy and Python, and restore them afterwards."""
    gpus = [device] if device is not None and device.type == "cuda" else []
    legacy, plain = np.random.get_state(), random.getstate()
    with torch.random.fork_rng(devices=gpus):
        torch.default_generator.manual_seed(seed)
        for gpu in gpus:
            with torch.cuda.device(gpu):
                torch.cuda.manual_seed(seed)
        np.random.seed(seed % 2**32)
        random.seed(seed)
        try:
            yield
        finally:
            np.random.set_state(legacy)
            random.setstate(plain)
