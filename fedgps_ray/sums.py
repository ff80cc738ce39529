"""Sums of vectors that are exact: the same bits in any order, however they are split up.

A float64 number that is rounded to a multiple of 2^e and is at most 2^(e + 51) in size adds up with
others of its kind without any rounding until the total exceeds 2^(e + 53). Every vector goes to a
grid that follows from its own largest value alone; each grid has a sum of its own.
"""

import math
from collections.abc import Sequence
from functools import reduce
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

BASE = -44  # the grid of vectors whose largest value is at most 2^7 and above 2^-13
WIDTH = 20  # binary digits between two grids
FINER = 32  # binary digits by which the second grid of float64 vectors is finer
LEVELS = range(-40, 51)  # outside of them the grids' own numbers would leave float64's range
HUGE = 2.0**1007  # larger numbers count as infinite
WHOLE = 10_000  # the place of a vector that is the only one to count: it is not rounded
BLOCK = 1 << 16  # numbers at a time on a CPU, so that they stay in its cache


class ExactSum:
    """Adds up vectors times their shares, which add up to one."""

    def __init__(self) -> None:
        self.parts: dict[int, Tensor] = {}  # the exponent of a grid -> the sum of what lies on it
        self.shape, self.dtype = torch.Size(), torch.float32

    def add(self, vector: Tensor, share: float) -> None:
        """Take in share times a vector."""
        self.shape, self.dtype = vector.shape, vector.dtype
        if share == 1:
            self.parts[WHOLE] = vector.reshape(-1).to(torch.float64, copy=True)
            return
        peak = largest(vector)
        exponents = grids(peak, vector.dtype)
        share = share if peak < HUGE else math.nan
        sums = [self._part(exponent, vector) for exponent in exponents]
        flat = vector.reshape(-1)
        block = BLOCK if flat.device.type == "cpu" else max(1, len(flat))
        for start in range(0, len(flat), block):
            here = slice(start, start + block)
            rest = flat[here].to(torch.float64, copy=True).mul_(share)
            _spread(rest, exponents, [total[here] for total in sums])

    def join(self, other: "ExactSum") -> None:
        """Take in another sum, whose tensors are not changed."""
        self.shape, self.dtype = other.shape, other.dtype
        for exponent, part in other.parts.items():
            known = self.parts.get(exponent)
            self.parts[exponent] = part if known is None else known + part

    def total(self) -> Tensor:
        """Return the sum as a new tensor, rounded once."""
        coarse_first = [self.parts[exponent] for exponent in sorted(self.parts, reverse=True)]
        return reduce(torch.add, coarse_first).to(self.dtype, copy=True).view(self.shape)

    def _part(self, exponent: int, like: Tensor) -> Tensor:
        if exponent not in self.parts:
            zeros = torch.zeros(like.numel(), dtype=torch.float64, device=like.device)
            self.parts[exponent] = zeros
        return self.parts[exponent]

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel as arrays, which other processes can map."""
        arrays = {exponent: part.cpu().numpy() for exponent, part in self.parts.items()}
        return _arrived, (tuple(self.shape), self.dtype, arrays)


def _arrived(
    shape: tuple[int, ...], dtype: torch.dtype, arrays: dict[int, NDArray[Any]]
) -> ExactSum:
    arrived = ExactSum()
    arrived.shape, arrived.dtype = torch.Size(shape), dtype
    arrived.parts = {exponent: torch.from_numpy(array) for exponent, array in arrays.items()}
    return arrived


def _spread(rest: Tensor, exponents: Sequence[int], sums: Sequence[Tensor]) -> None:
    """Round to the first grid, what is left to the next, and add each part to its sum."""
    for exponent, total in zip(exponents[:-1], sums, strict=False):
        far = _far(exponent)
        rounded = rest.add(far).sub_(far)
        total.add_(rounded)
        rest.sub_(rounded)
    far = _far(exponents[-1])
    sums[-1].add_(rest.add_(far).sub_(far))


def _far(exponent: int) -> float:
    """Return a number next to which others lie 2^exponent apart."""
    return math.ldexp(1.5, exponent + 52)


def grids(peak: float, dtype: torch.dtype) -> list[int]:
    """Return the exponents of the grids for a vector: one, and for float64 a finer one."""
    level = -(-(math.frexp(peak)[1] - BASE - 51) // WIDTH)
    coarse = BASE + WIDTH * min(max(level, LEVELS[0]), LEVELS[-1])
    return [coarse, coarse - FINER] if dtype == torch.float64 else [coarse]


def largest(tensor: Tensor) -> float:
    """Return the largest magnitude; NaN and infinity come through."""
    if not tensor.numel():
        return 0.0
    low, high = torch.stack(torch.aminmax(tensor)).tolist()
    return max(-low, high) if low == low else math.nan


def normalised(shares: Sequence[float]) -> list[float]:
    """Return the shares of a mean, which add up to one."""
    total = float(sum(shares))
    if not total > 0 or min(shares) < 0:
        raise ValueError(f"the shares of a mean must be positive, got {list(shares)}")
    return [share / total for share in shares]
