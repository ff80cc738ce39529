"""Batches of normalised, augmented examples as whole-batch tensor operations on the device."""

import warnings
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedgps_ray.data.arrays import Array, Dataset
from fedgps_ray.errors import UserError

Augment = Literal["none", "flip_crop", "crop", "crop_flip"]
Part = Literal["train", "test"]
Place = tuple[torch.device, torch.dtype]
Rng = np.random.Generator
Numbers = NDArray[np.int64]  # draws on the host, a row for each kind
Normal = tuple[Sequence[float], Sequence[float]]  # mean and deviation of each channel or column
PLAIN_BATCH = 256
ON_CPU: Place = (torch.device("cpu"), torch.float32)


class Batch(NamedTuple):
    """Network input, labels, and the local epoch it belongs to."""

    x: Tensor
    y: Tensor
    epoch: int = 0


class Draws(NamedTuple):
    """One random window and mirror decision for each image."""

    top: Tensor
    left: Tensor
    flip: Tensor

    @classmethod
    def of(cls, numbers: Tensor) -> "Draws":
        """Return the three rows of what `Images.numbers` drew, wherever they are by now."""
        return cls(numbers[0], numbers[1], numbers[2] != 0)


@dataclass(frozen=True)
class Images:
    """Labelled images on a device, in bytes or floats, and how they become network input.

    `flip_crop` mirrors, then cuts a window out of the reflect-padded image; `crop` cuts it out of
    the zero-padded image; `crop_flip` does the same and then mirrors.
    """

    pixels: Tensor  # examples x height x width x channels
    labels: Tensor
    scale: Tensor
    shift: Tensor
    augment: Augment = "none"

    @property
    def padding(self) -> int:
        """Pixels added on each side before a window is cut: 4 for 32 x 32 images."""
        return max(1, min(self.pixels.shape[1:3]) // 8)

    def draw(self, rng: Rng, size: int) -> Draws | None:
        """Draw the augmentation of a number of images."""
        numbers = self.numbers(rng, size)
        return Draws.of(_moved(numbers, self.pixels)) if len(numbers) else None

    def numbers(self, rng: Rng, size: int) -> Numbers:
        """Draw the same on the host: rows of tops, lefts and flips, or no row."""
        if self.augment == "none":
            return np.empty((0, size), np.int64)
        numbers = np.zeros((3, size), np.int64)
        numbers[:2] = rng.integers(2 * self.padding + 1, size=(2, size))
        if self.augment != "crop":
            numbers[2] = rng.random(size) < 0.5
        return numbers

    def take(self, index: Tensor, draws: Draws | None = None) -> Tensor:
        """Return the images of an index as network input (channels-last memory)."""
        picked = self.pixels.index_select(0, index) if draws is None else self._cut(index, draws)
        x = picked.to(self.scale.dtype).mul_(self.scale).add_(self.shift)
        return x.permute(0, 3, 1, 2)

    def _cut(self, index: Tensor, draws: Draws) -> Tensor:
        """Cut each image's window, pixel by pixel from its source; outside the image is black."""
        _, height, width, channels = self.pixels.shape
        rows, columns = self._sources(draws, height, width)
        row_starts = (index[:, None] * height + rows.clamp(0, height - 1)) * width
        places = row_starts[:, :, None] + columns.clamp(0, width - 1)[:, None, :]
        picked = self.pixels.view(-1, channels).index_select(0, places.view(-1))
        if self.augment != "flip_crop":
            # line by line: a mask repeated along the channels takes four times as long
            in_columns = _within(columns, width).repeat_interleave(channels, dim=1)
            lines = picked.view(*rows.shape, width * channels)
            lines.mul_(_within(rows, height)[:, :, None]).mul_(in_columns[:, None, :])
        return picked.view(*places.shape, channels)

    def _sources(self, draws: Draws, height: int, width: int) -> tuple[Tensor, Tensor]:
        """Return from which row and column each pixel of the windows comes."""
        rows, columns = self._span(draws.top, height), self._span(draws.left, width)
        if self.augment == "flip_crop":
            rows, columns = _reflect(rows, height), _reflect(columns, width)
            return rows, torch.where(draws.flip[:, None], width - 1 - columns, columns)
        return rows, torch.where(draws.flip[:, None], columns.flip(1), columns)

    def _span(self, offset: Tensor, extent: int) -> Tensor:
        return torch.arange(extent, device=offset.device) + offset[:, None] - self.padding


@dataclass(frozen=True)
class Rows:
    """Labelled features or tokens on a device; tokens have no scale and stay whole numbers."""

    values: Tensor
    labels: Tensor
    scale: Tensor | None = None
    shift: Tensor | None = None
    augment: Augment = "none"

    def numbers(self, rng: Rng, size: int) -> Numbers:
        """Draw nothing: only images are augmented."""
        return np.empty((0, size), np.int64)

    def take(self, index: Tensor, draws: Draws | None = None) -> Tensor:
        """Return the examples of an index as network input."""
        picked = self.values.index_select(0, index)
        if self.scale is None or self.shift is None:
            return picked.long()
        return picked.to(self.scale.dtype).mul_(self.scale).add_(self.shift)


Examples = Images | Rows


def _reflect(place: Tensor, extent: int) -> Tensor:
    return extent - 1 - (extent - 1 - place.abs()).abs()


def _moved(numbers: Numbers, to: Tensor) -> Tensor:
    return torch.from_numpy(numbers).to(to.device)


def _within(place: Tensor, extent: int) -> Tensor:
    return ((place >= 0) & (place < extent)).to(torch.uint8)


def images(
    pixels: Array,
    labels: NDArray[np.int64],
    normal: Normal,
    augment: Augment = "none",
    to: Place = ON_CPU,
) -> Images:
    """Put arrays on a device; bytes become (v / 255 - mean) / std, floats (v - mean) / std."""
    highest = 255 if pixels.dtype == np.uint8 else 1
    # spread over a whole image: a multiplication along three channels only is ten times slower
    scale, shift = (
        v.expand(pixels.shape[1:]).contiguous() for v in _scale_and_shift(normal, highest, to)
    )
    here = to[0]
    return Images(as_tensor(pixels).to(here), as_tensor(labels).to(here), scale, shift, augment)


def _scale_and_shift(normal: Normal, highest: int, to: Place) -> tuple[Tensor, Tensor]:
    mean, std = (torch.tensor(values, dtype=torch.float64) for values in normal)
    return (1 / (highest * std)).to(*to), (-mean / std).to(*to)


def examples(data: Dataset, part: Part, augment: Augment, to: Place) -> Examples:
    """Put the training or the test examples of a data set on a device."""
    is_train = part == "train"
    x, y = (data.x_train, data.y_train) if is_train else (data.x_test, data.y_test)
    normal = data.mean, data.std
    if data.kind == "images":
        return images(x, y, normal, augment, to)
    if augment != "none":
        raise UserError(f"augment {augment} is for images, the data set holds {data.kind}")
    values, labels = (as_tensor(array).to(to[0]) for array in (x, y))
    if data.kind == "tokens":
        return Rows(values, labels)
    return Rows(values, labels, *_scale_and_shift(normal, 1, to))


def as_tensor(array: Array) -> Tensor:
    """Wrap an array without copying, also one that may not be written to: we only read it."""
    return torch.from_numpy(array)


def _spend_warning() -> None:
    """Swallow the warning about read-only arrays, which PyTorch gives only once."""
    array = np.zeros(1)
    array.flags.writeable = False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.from_numpy(array)


_spend_warning()


@dataclass(frozen=True)
class Batches:
    """Some examples of a set, in batches."""

    examples: Examples
    index: Tensor
    batch_size: int = PLAIN_BATCH
    order_rng: Rng | None = None
    augment_rng: Rng | None = None

    def shuffled(self, epochs: int) -> Iterator[Batch]:
        """Yield every example once an epoch in random order; the last batch may be smaller."""
        assert self.order_rng is not None
        size = len(self.index)
        for epoch in range(epochs):
            drawn = _moved(self._numbers(self.order_rng), self.index)
            order, draws = self.index.index_select(0, drawn[0]), None
            if len(drawn) > 1:
                draws = Draws.of(drawn[1:])
            for start in range(0, size, self.batch_size):
                here = slice(start, start + self.batch_size)
                now = None if draws is None else Draws(*(d[here] for d in draws))
                chosen = order[here]
                labels = self.examples.labels.index_select(0, chosen)
                yield Batch(self.examples.take(chosen, now), labels, epoch)

    def _numbers(self, order_rng: Rng) -> Numbers:
        """Draw order and augmentation of a whole epoch: they go to the device in one copy.

        Both streams may be the same one.
        """
        size = len(self.index)
        order = order_rng.permutation(size)[None]
        if self.augment_rng is None:
            return order
        return np.concatenate([order, self.examples.numbers(self.augment_rng, size)])

    def plain(self) -> Iterator[Batch]:
        """Yield every example once, in order, without augmentation."""
        for number in range(-(-len(self.index) // PLAIN_BATCH)):
            yield self.batch(number)

    def batch(self, number: int) -> Batch:
        """Return one batch of `plain` by its number."""
        chosen = self.index[number * PLAIN_BATCH : (number + 1) * PLAIN_BATCH]
        return Batch(self.examples.take(chosen), self.examples.labels[chosen])


@dataclass(frozen=True)
class Surrogate:
    """The labelled noise images every client shares."""

    images: Images
    batch_size: int
    rng: Rng
    ahead: int = 1  # batches drawn at a time: their numbers go to the device in one copy
    _drawn: deque[Tensor] = field(default_factory=deque, init=False, repr=False, compare=False)

    def draw(self) -> Batch:
        """Return distinct images, drawn uniformly from the whole set whatever came before."""
        if not self._drawn:
            numbers = np.stack([self._numbers() for _ in range(self.ahead)])
            self._drawn.extend(_moved(numbers, self.images.labels))
        drawn = self._drawn.popleft()
        x = self.images.take(drawn[0], Draws.of(drawn[1:]) if len(drawn) > 1 else None)
        return Batch(x, self.images.labels[drawn[0]])

    def _numbers(self) -> Numbers:
        size = len(self.images.labels)
        chosen = self.rng.choice(size, min(self.batch_size, size), replace=False)
        return np.concatenate([chosen[None], self.images.numbers(self.rng, len(chosen))])

    def plain(self) -> Iterator[Batch]:
        """Yield the whole set once, in order, without augmentation."""
        index = torch.arange(len(self.images.labels), device=self.images.labels.device)
        return Batches(self.images, index).plain()
