"""Data sets that need no file of the user: the embedded digits, and generated images."""

import math
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedgps_ray.data.arrays import Dataset, Labels, Treatment, blocks, from_arrays, numbered
from fedgps_ray.data.npz import named_arrays
from fedgps_ray.data.specs import Synthetic
from fedgps_ray.seeds import stream

NUM_PATTERNS = 8  # few, so that synthetic classes lie close enough to be confused


def digits() -> Dataset:
    """Return the digits of the UCI repository (Alpaydin and Kaynak), as in scikit-learn (BSD)."""
    stored = named_arrays(Path(__file__).with_name("digits.npz"), ("x", "y"))
    images = np.rint(stored["x"].astype(np.float64) * (255 / 16)).astype(np.uint8)
    labels = stored["y"].astype(np.int64)
    order = stream(0, "digits split").permutation(len(labels))
    by_class = order[np.argsort(labels[order], kind="stable")]
    in_test = np.zeros(len(labels), dtype=bool)
    in_test[by_class[::5]] = True  # every fifth of each class
    train, test = ((images[part], labels[part]) for part in (~in_test, in_test))
    return _dataset(train, test, "digits", Treatment("hw"), 10)


def _dataset(
    train: tuple[object, object],
    test: tuple[object, object],
    name: str,
    treatment: Treatment,
    classes: int,
) -> Dataset:
    arrays = {"x_train": train[0], "y_train": train[1], "x_test": test[0], "y_test": test[1]}
    return from_arrays(arrays | {"classes": np.array(numbered(classes))}, name, treatment)


def synthetic(spec: Synthetic) -> Dataset:
    """Return images that mix a few smooth patterns, each class in its own way."""
    rng = stream(spec.seed, "synthetic classes")
    patterns = _smooth_patterns(rng, spec.channels, spec.image_size)
    mixtures = rng.standard_normal((spec.num_classes, NUM_PATTERNS))
    train, test = (
        _draw_images(spec, size, mixtures, patterns, stream(spec.seed, f"synthetic {part}"))
        for part, size in (("train", spec.train_size), ("test", spec.test_size))
    )
    return _dataset(train, test, spec.name, Treatment("chw"), spec.num_classes)


def _smooth_patterns(rng: np.random.Generator, channels: int, size: int) -> NDArray[np.float64]:
    coarse = rng.standard_normal((NUM_PATTERNS, channels, 4, 4))
    places = np.linspace(0, 3, size)
    stretch = np.stack([np.interp(places, range(4), row) for row in np.eye(4)], axis=1)
    smooth = stretch @ coarse @ stretch.T
    flat = smooth.reshape(NUM_PATTERNS, -1)
    unit: NDArray[np.float64] = flat / flat.std(axis=1, keepdims=True)
    return unit


def _draw_images(
    spec: Synthetic,
    size: int,
    mixtures: NDArray[np.float64],
    patterns: NDArray[np.float64],
    rng: np.random.Generator,
) -> tuple[NDArray[np.uint8], Labels]:
    labels = rng.permutation(np.arange(size, dtype=np.int64) % spec.num_classes)
    images = np.empty((size, patterns.shape[1]), dtype=np.uint8)
    scale = 40 / math.sqrt(NUM_PATTERNS * (1 + spec.noise**2))
    for some, out in zip(blocks(labels), blocks(images), strict=True):
        weights = mixtures[some] + spec.noise * rng.standard_normal((len(some), NUM_PATTERNS))
        values = weights @ patterns + spec.noise * rng.standard_normal(out.shape)
        out[:] = np.clip(np.rint(128 + scale * values), 0, 255)
    shape = (size, spec.channels, spec.image_size, spec.image_size)
    return images.reshape(shape), labels
