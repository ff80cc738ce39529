"""One named random stream for each purpose, from (seed, purpose, round, client)."""

import hashlib

import numpy as np


def number(seed: int, purpose: str, round_index: int = 0, client: int = 0) -> int:
    """Return the 128-bit seed of this stream."""
    key = f"{seed}/{purpose}/{round_index}/{client}".encode()
    return int.from_bytes(hashlib.sha256(key).digest()[:16], "little")


def stream(seed: int, purpose: str, round_index: int = 0, client: int = 0) -> np.random.Generator:
    """Return a new generator: equal arguments give equal draws, different ones unrelated draws."""
    return np.random.Generator(np.random.PCG64(number(seed, purpose, round_index, client)))
