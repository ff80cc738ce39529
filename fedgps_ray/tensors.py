"""Model state as two flat vectors, the layout that names their pieces, and arithmetic on them."""

import hashlib
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from fedgps_ray.errors import UserError
from fedgps_ray.sums import ExactSum, normalised

_F64 = torch.float64


class Params(NamedTuple):
    """The trained weights, and the buffers (BatchNorm statistics)."""

    weights: Tensor
    buffers: Tensor


class Update(NamedTuple):
    """What local training did: the change of the weights, and the new buffers."""

    delta: Tensor
    buffers: Tensor


class Piece(NamedTuple):
    """One named tensor inside a flat vector."""

    name: str
    shape: tuple[int, ...]
    start: int
    channels_last: bool = False  # a convolution's weights, in the order that GPUs multiply in

    def of(self, vector: Tensor) -> Tensor:
        """Return the tensor in a vector, sharing its memory."""
        values = vector[self.start : self.end]
        if not self.channels_last:
            return values.view(self.shape)
        out, channels, *window = self.shape
        return values.view(out, *window, channels).movedim(-1, 1)

    @property
    def end(self) -> int:
        """Where the next piece begins."""
        size = 1
        for extent in self.shape:
            size *= extent
        return self.start + size


class Layout(NamedTuple):
    """Where each tensor of a model lies in the two vectors of its Params."""

    weights: tuple[Piece, ...]
    buffers: tuple[Piece, ...]
    head: str | None = "head"  # the layer that gives the logits; None: it is not known

    @property
    def head_weight(self) -> Piece:
        """The matrix of the head."""
        piece = self._of_head("weight")
        if piece is None or len(piece.shape) != 2:
            raise UserError("this method needs a model whose output comes from a linear layer")
        return piece

    @property
    def head_bias(self) -> Piece | None:
        """The bias of the head, if it has one."""
        return self._of_head("bias")

    def _of_head(self, part: str) -> Piece | None:
        return next((p for p in self.weights if p.name == f"{self.head}.{part}"), None)


def pieces(named: Sequence[tuple[str, Sequence[int]]]) -> tuple[Piece, ...]:
    """Place named shapes one after the other."""
    laid: list[Piece] = []
    for name, shape in named:
        laid.append(Piece(name, tuple(shape), laid[-1].end if laid else 0))
    return tuple(laid)


def views(vector: Tensor, layout: tuple[Piece, ...]) -> dict[str, Tensor]:
    """Return each piece by its name, sharing memory with the vector."""
    return {p.name: p.of(vector) for p in layout}


def logical(vector: Tensor, layout: tuple[Piece, ...]) -> Tensor:
    """Return the numbers in the order of their names and indices, however they lie in memory."""
    if not any(p.channels_last for p in layout):
        return vector
    return torch.cat([p.of(vector).flatten() for p in layout])


def mean(vectors: Sequence[Tensor], shares: Sequence[float]) -> Tensor:
    """Return the mean weighted by shares, exact up to its last rounding."""
    result = ExactSum()
    for vector, share in zip(vectors, normalised(shares), strict=True):
        result.add(vector, share)
    return result.total()


def norm(vector: Tensor) -> float:
    """Return the Euclidean norm, accumulated in float64."""
    return float(torch.linalg.vector_norm(vector, dtype=_F64))


def sum_of_norms(vector: Tensor, layout: tuple[Piece, ...]) -> float:
    """Return the sum over the pieces of their Euclidean norms."""
    sizes = [torch.linalg.vector_norm(vector[p.start : p.end], dtype=_F64) for p in layout]
    return float(sum(torch.stack(sizes).tolist()))


def moved(start: Params, end: Params) -> Update:
    """Return the change of the weights, and the buffers at the end."""
    return Update(end.weights - start.weights, end.buffers)


def step(params: Params, update: Update, scale: float = 1.0) -> Params:
    """Move the weights along the update and take over its buffers."""
    return Params(params.weights.add(update.delta, alpha=scale), update.buffers)


def leaves(value: object) -> Iterator[object]:
    """Yield what tuples, lists and dicts hold, at any depth."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for item in value:
            yield from leaves(item)
    else:
        yield value


def num_bytes(payload: object) -> int:
    """Return the size of a message or upload: its tensors, and 8 bytes for each number."""
    total = 0
    for leaf in leaves(payload):
        if isinstance(leaf, Tensor):
            total += leaf.numel() * leaf.element_size()
        elif isinstance(leaf, int | float):
            total += 8
    return total


def all_finite(payload: object) -> bool:
    """Say whether no tensor in the payload holds NaN or infinity, reading from its device once.

    Smallest and largest value are looked at: NaN and infinity come through, in one pass.
    """
    tensors = [leaf for leaf in leaves(payload) if isinstance(leaf, Tensor) and leaf.numel()]
    ends = [end.to(_F64) for t in tensors if t.is_floating_point() for end in torch.aminmax(t)]
    return not ends or all(map(math.isfinite, torch.stack(ends).tolist()))


def sha256(vector: Tensor) -> str:
    """Return the digest of a vector's bytes."""
    return hashlib.sha256(vector.detach().cpu().contiguous().numpy().data).hexdigest()
