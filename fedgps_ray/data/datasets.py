"""Data sets as arrays of bytes: embedded, generated, downloaded, or from a user's own file."""

import hashlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict, Field, ValidationError
from pydantic.dataclasses import dataclass

from fedgps_ray.data import downloads
from fedgps_ray.data.npz import Contents, Images, Labels, channels_last, numbered, read
from fedgps_ray.errors import UserError, unknown
from fedgps_ray.seeds import stream

DATASETS: dict[str, str] = {
    "digits": "1,797 grey 8x8 images of handwritten digits, embedded; 10 classes",
    "synthetic": "generated images of any size and number of classes; nothing to download",
    "cifar10": "60,000 colour 32x32 images, 10 classes; downloaded or from a folder",
    "cifar100": "60,000 colour 32x32 images, 100 classes; downloaded or from a folder",
    "svhn": "99,289 colour 32x32 images of house numbers, 10 classes; downloaded or from a folder",
    "npz": "your own images: the path of a .npz file with x_train, y_train, x_test, y_test",
}

CIFAR10_COLOURS = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)
CIFAR100_COLOURS = (0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)
SVHN_COLOURS = (0.4377, 0.4438, 0.4728), (0.1980, 0.2010, 0.1970)

NUM_PATTERNS = 8  # few, so that synthetic classes lie close enough to be confused

Augment = Literal["none", "flip_crop", "crop"]
Colours = tuple[tuple[float, ...], tuple[float, ...]]  # mean and deviation of each channel


class Dataset(NamedTuple):
    """Images as bytes (number x height x width x channels), labels, and how to treat them."""

    x_train: Images
    y_train: Labels
    x_test: Images
    y_test: Labels
    num_classes: int
    class_names: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    augment: Augment


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class Named:
    """A data set that a name says everything about."""

    name: Literal["digits", "cifar10", "cifar100", "svhn"]


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class Synthetic:
    """Generated images: every class is a mixture of smooth patterns, blurred by noise."""

    name: Literal["synthetic"] = "synthetic"
    num_classes: Annotated[int, Field(ge=2, le=1000)] = 10
    image_size: Annotated[int, Field(ge=4, le=256)] = 16
    channels: Annotated[int, Field(ge=1, le=16)] = 3
    train_size: Annotated[int, Field(ge=1)] = 2000
    test_size: Annotated[int, Field(ge=1)] = 500
    noise: Annotated[float, Field(ge=0, le=10, allow_inf_nan=False)] = 0.5
    seed: Annotated[int, Field(ge=0)] = 0

    def __post_init__(self) -> None:
        if self.train_size < self.num_classes:
            raise ValueError(
                f"train_size {self.train_size} is below num_classes {self.num_classes}"
            )


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class Npz:
    """A user's file, known by its content and not by where it lies."""

    file: str
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    name: Literal["npz"] = "npz"


DatasetSpec = Named | Synthetic | Npz


class Source(NamedTuple):
    """Where this machine keeps its data; nothing here changes what is read."""

    data_dir: Path | None = None
    download: bool = False
    files: Mapping[str, str] = {}  # the sha256 of a user's file, and its path


NO_SOURCE = Source()


def parse(value: str | Mapping[str, Any] | DatasetSpec) -> DatasetSpec:
    """Return the spec for a name, or for a table with a name and settings."""
    if isinstance(value, Named | Synthetic | Npz):
        return value
    given = _table(value)
    name = given["name"]
    kind = {"synthetic": Synthetic, "npz": Npz}.get(name, Named)
    known = [field.name for field in fields(kind)]
    for key in given:
        if key not in known:
            raise unknown(f"{name} setting", key, known)
    try:
        spec: DatasetSpec = kind(**given)
    except ValidationError as error:
        raise UserError(f"data set '{name}': {_reasons(error)}") from None
    return spec


def _table(value: str | Mapping[str, Any]) -> dict[str, Any]:
    table = {"name": value} if isinstance(value, str) else value
    if not isinstance(table, Mapping) or not isinstance(table.get("name"), str):
        raise UserError(f"a data set is a name, or a table with a name and settings; got {value!r}")
    if table["name"] not in DATASETS:
        raise unknown("data set", table["name"], DATASETS)
    if value == "npz":
        raise UserError("data set 'npz' is given by the path of its file, such as images.npz")
    return dict(table)


def _reasons(error: ValidationError) -> str:
    return "; ".join(_reason(item) for item in error.errors())


def _reason(item: Mapping[str, Any]) -> str:
    """Return what is wrong with one setting, from one of Pydantic's errors."""
    place = " ".join(str(part) for part in item["loc"])
    if item["type"] == "value_error":  # our own words
        return str(item["msg"]).removeprefix("Value error, ")
    if item["type"] == "missing":
        return f"{place} is missing"
    return f"{place}: {item['msg']}, got {item['input']!r}"


def load(spec: DatasetSpec, source: Source = NO_SOURCE) -> Dataset:
    """Return the images and labels that a spec describes."""
    match spec:
        case Synthetic():
            return _synthetic(spec)
        case Npz():
            return _plain(read(locate(spec.file, spec.sha256, source)))
        case Named(name="digits"):
            return _digits()
        case Named(name="cifar10"):
            contents = downloads.cifar("CIFAR10", source.data_dir, source.download)
            return _treated(contents, CIFAR10_COLOURS, "flip_crop")
        case Named(name="cifar100"):
            contents = downloads.cifar("CIFAR100", source.data_dir, source.download)
            return _treated(contents, CIFAR100_COLOURS, "flip_crop")
    return _treated(downloads.svhn(source.data_dir, source.download), SVHN_COLOURS, "crop")


def npz_spec(path: Path) -> Npz:
    """Return the spec of a user's file, which is hashed for it."""
    if not path.is_file():
        near = sorted(file.name for file in path.parent.glob("*.npz") if file.is_file())
        found = ", ".join(near[:10]) or "none"
        raise UserError(f"no file {path}; .npz files in {path.parent}: {found}")
    return Npz(path.name, _sha256(path))


def colours(images: Images) -> Colours:
    """Return mean and deviation of each channel in [0, 1], from whole-number sums."""
    moments = [_moments(images[..., channel]) for channel in range(images.shape[-1])]
    return tuple(mean for mean, _ in moments), tuple(std for _, std in moments)


def _moments(channel: Images) -> tuple[float, float]:
    counts = sum(np.bincount(part.ravel(), minlength=256) for part in _blocks(channel))
    histogram = [int(n) for n in np.asarray(counts)]
    number = sum(histogram)
    total = sum(n * value for value, n in enumerate(histogram))
    squares = sum(n * value * value for value, n in enumerate(histogram))
    variance = (number * squares - total * total) / number**2
    # A channel of one value has nothing to scale: it is only centred.
    return total / number / 255, math.sqrt(variance) / 255 or 1.0


def _blocks(array: NDArray[Any], size: int = 1024) -> Iterator[NDArray[Any]]:
    for start in range(0, len(array), size):
        yield array[start : start + size]


def _treated(contents: Contents, mean_and_std: Colours, augment: Augment) -> Dataset:
    names = contents.class_names
    return Dataset(*contents[:4], len(names), names, *mean_and_std, augment)


def _plain(contents: Contents) -> Dataset:
    return _treated(contents, colours(contents.x_train), "none")


def _digits() -> Dataset:
    from sklearn.datasets import load_digits

    bunch = load_digits()
    images = np.rint(bunch.images * (255 / 16)).astype(np.uint8)[..., None]
    labels = bunch.target.astype(np.int64)
    order = stream(0, "digits split").permutation(len(labels))
    by_class = order[np.argsort(labels[order], kind="stable")]
    in_test = np.zeros(len(labels), dtype=bool)
    in_test[by_class[::5]] = True  # every fifth of each class
    train, test = ((images[part], labels[part]) for part in (~in_test, in_test))
    return _plain(Contents(*train, *test, numbered(10)))


def _synthetic(spec: Synthetic) -> Dataset:
    rng = stream(spec.seed, "synthetic classes")
    patterns = _smooth_patterns(rng, spec.channels, spec.image_size)
    mixtures = rng.standard_normal((spec.num_classes, NUM_PATTERNS))
    train, test = (
        _draw_images(spec, size, mixtures, patterns, stream(spec.seed, f"synthetic {part}"))
        for part, size in (("train", spec.train_size), ("test", spec.test_size))
    )
    return _plain(Contents(*train, *test, numbered(spec.num_classes)))


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
) -> tuple[Images, Labels]:
    labels = rng.permutation(np.arange(size, dtype=np.int64) % spec.num_classes)
    images = np.empty((size, patterns.shape[1]), dtype=np.uint8)
    scale = 40 / math.sqrt(NUM_PATTERNS * (1 + spec.noise**2))
    for some, out in zip(_blocks(labels), _blocks(images), strict=True):
        weights = mixtures[some] + spec.noise * rng.standard_normal((len(some), NUM_PATTERNS))
        values = weights @ patterns + spec.noise * rng.standard_normal(out.shape)
        out[:] = np.clip(np.rint(128 + scale * values), 0, 255)
    shape = (size, spec.channels, spec.image_size, spec.image_size)
    return channels_last(images.reshape(shape)), labels


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def locate(file: str, sha256: str, source: Source) -> Path:
    """Return where a file known by its content lies, after checking that it is still the same."""
    if sha256 not in source.files:
        raise UserError(f"nothing says where {file} (sha256 {sha256[:12]}) is; give its path")
    path = Path(source.files[sha256])
    if not path.is_file():
        raise UserError(f"{file} is no longer at {path}; put it back, or give its new path")
    if (found := _sha256(path)) != sha256:
        raise UserError(
            f"{path} is not the file the trial was made with: expected sha256"
            f" {sha256[:12]}, found {found[:12]}; restore it, or start a new trial"
        )
    return path
