"""The shared noise set of VHL and FedGPS: class-wise Gaussian images, or any labelled arrays."""

from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from fedgps_ray import seeds
from fedgps_ray.data.arrays import Dataset, check_highest, check_labels
from fedgps_ray.data.npz import named_arrays
from fedgps_ray.errors import UserError

STRICT = ConfigDict(extra="forbid")
NORMAL = ((0.5,), (0.25,))  # mean and std of every channel, whatever the real data set is
DEFAULT_SIZE = 50_000
Count = Annotated[int, Field(ge=1)]
Labelled = tuple[NDArray[np.uint8], NDArray[np.int64]]


@dataclass(frozen=True, config=STRICT)
class Noise:
    """Gaussian noise around a random mean per class, drawn small and enlarged to image size."""

    kind: Literal["noise"] = "noise"
    per_class: Count | None = None  # None: 50,000 images divided by the number of classes
    latent_hw: Count = 8
    noise_std: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.5
    seed: int = 0
    batch_size: Count = 128


@dataclass(frozen=True, config=STRICT)
class LabelledFile:
    """Arrays x (8-bit images, channels last) and y of an .npz file, known by its content."""

    kind: Literal["file"] = "file"
    file: str = ""
    sha256: str = ""
    batch_size: Count = 128


SurrogateSpec = Noise | LabelledFile


def image_shape(data: Dataset) -> tuple[int, int, int]:
    """Return (height, width, channels) of the images that a surrogate set must be like."""
    if data.kind != "images":
        raise UserError(
            "the method needs a surrogate set, which exists for images only, and the data set"
            f" holds {data.kind}: choose a method without one, such as fedavg"
        )
    height, width, channels = data.x_train.shape[1:]
    return height, width, channels


def noise_images(noise: Noise, num_classes: int, shape: tuple[int, int, int]) -> Labelled:
    """Return 8-bit images of shape (height, width, channels) and their labels 0..C-1."""
    per_class = noise.per_class or max(1, DEFAULT_SIZE // num_classes)
    pixels = np.empty((num_classes * per_class, *shape), np.uint8)
    for label in range(num_classes):
        first = label * per_class
        pixels[first : first + per_class] = _one_class(noise, label, per_class, shape)
    return pixels, np.repeat(np.arange(num_classes, dtype=np.int64), per_class)


def _one_class(
    noise: Noise, label: int, size: int, shape: tuple[int, int, int]
) -> NDArray[np.uint8]:
    height, width, channels = shape
    rng = seeds.stream(noise.seed, "surrogate images", client=label)
    latent = (channels, noise.latent_hw, noise.latent_hw)
    mean = rng.standard_normal(latent, np.float32)
    drawn = mean + noise.noise_std * rng.standard_normal((size, *latent), np.float32)
    large = F.interpolate(torch.from_numpy(drawn), (height, width), mode="bilinear")
    bytes_ = large.mul_(255).add_(0.5).clamp_(0, 255).to(torch.uint8)
    return bytes_.permute(0, 2, 3, 1).numpy()


def file_images(path: str, num_classes: int, shape: tuple[int, int, int]) -> Labelled:
    """Read a labelled surrogate set; its images must have the shape of the real ones."""
    arrays = named_arrays(Path(path), ("x", "y"))
    x, y = arrays["x"], arrays["y"]
    if x.dtype != np.uint8 or x.shape[1:] != shape:
        height, width, channels = shape
        raise UserError(
            f"{path}: x has type {x.dtype} and shape {x.shape}, expected uint8 and"
            f" (number, {height}, {width}, {channels}), the images of the data set"
        )
    if len(x) == 0:
        raise UserError(f"{path}: x has shape {x.shape}, expected at least one image")
    check_labels(path, "y", y, len(x))
    check_highest(path, "y", y, num_classes, "the classes of the data set")
    return np.ascontiguousarray(x), y.astype(np.int64)
