"""How far the clients' labels are from the data set's as a whole, in a few numbers."""

from math import log
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


class Skew(NamedTuple):
    """The label and size skew of a partition; a client without samples counts for sizes only."""

    mean_divergence: float  # Jensen-Shannon, base 2, to all clients' labels: 0 alike, 1 disjoint
    max_divergence: float
    mean_effective_classes: float  # e^entropy of a client's labels: n for n equally frequent ones
    min_effective_classes: float
    size_gini: float  # 0 for equal clients, near 1 when one client has almost all
    smallest_size: int
    largest_size: int


def skew(counts: NDArray[np.int64]) -> Skew:
    """Return the skew of a table of label counts, one row per client, one column per class."""
    sizes = counts.sum(axis=1)
    if sizes.sum() == 0:
        raise ValueError("skew needs at least one sample")
    held = counts[sizes > 0]
    shares = held / held.sum(axis=1, keepdims=True)
    divergences = _divergences(shares, counts.sum(axis=0) / counts.sum())
    effective = np.exp(_entropies(shares))
    return Skew(
        mean_divergence=float(divergences.mean()),
        max_divergence=float(divergences.max()),
        mean_effective_classes=float(effective.mean()),
        min_effective_classes=float(effective.min()),
        size_gini=_gini(sizes),
        smallest_size=int(sizes.min()),
        largest_size=int(sizes.max()),
    )


def _entropies(shares: Floats) -> Floats:
    logs = np.log(shares, where=shares > 0, out=np.zeros_like(shares))
    return np.asarray(-(shares * logs).sum(axis=-1))


def _divergences(shares: Floats, overall: Floats) -> Floats:
    """Return H((p + q) / 2) - (H(p) + H(q)) / 2 in bits for each row p and the overall q."""
    middle = _entropies((shares + overall) / 2)
    bits = (middle - (_entropies(shares) + _entropies(overall)) / 2) / log(2)
    return bits.clip(min=0)  # rounding may leave a little less than 0


def _gini(sizes: NDArray[np.int64]) -> float:
    """Return sum_i (2i - n - 1) x_i / (n sum x) for the ascending sizes x_1 .. x_n."""
    n = len(sizes)
    ranks = 2 * np.arange(1, n + 1) - n - 1
    return float((ranks * np.sort(sizes)).sum() / (n * sizes.sum()))
