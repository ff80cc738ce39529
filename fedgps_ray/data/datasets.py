"""Data sets as arrays of bytes: embedded, generated, downloaded, or from a user's own file."""

import hashlib
import math
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict, Field, ValidationError
from pydantic.dataclasses import dataclass
from pydantic_core import ErrorDetails

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

REQUIRED = ("x_train", "y_train", "x_test", "y_test")  # the arrays of a user's file

Images = NDArray[np.uint8]
Labels = NDArray[np.int64]
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


def _reason(item: ErrorDetails) -> str:
    place = " ".join(str(part) for part in item["loc"])
    if item["type"] == "value_error":  # our own words
        return item["msg"].removeprefix("Value error, ")
    if item["type"] == "missing":
        return f"{place} is missing"
    return f"{place}: {item['msg']}, got {item['input']!r}"


def load(spec: DatasetSpec, source: Source = NO_SOURCE) -> Dataset:
    """Return the images and labels that a spec describes."""
    match spec:
        case Synthetic():
            return _synthetic(spec)
        case Npz():
            return _read_npz(locate(spec.file, spec.sha256, source))
        case Named(name="digits"):
            return _digits()
        case Named(name="svhn"):
            return _svhn(source)
        case Named(name="cifar100"):
            return _cifar("CIFAR100", CIFAR100_COLOURS, source)
    return _cifar("CIFAR10", CIFAR10_COLOURS, source)


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


def _plain(
    train: tuple[Images, Labels], test: tuple[Images, Labels], class_names: tuple[str, ...]
) -> Dataset:
    mean, std = colours(train[0])
    return Dataset(*train, *test, len(class_names), class_names, mean, std, "none")


def _numbered(num_classes: int) -> tuple[str, ...]:
    return tuple(str(number) for number in range(num_classes))


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
    return _plain(train, test, _numbered(10))


def _synthetic(spec: Synthetic) -> Dataset:
    rng = stream(spec.seed, "synthetic classes")
    patterns = _smooth_patterns(rng, spec.channels, spec.image_size)
    mixtures = rng.standard_normal((spec.num_classes, NUM_PATTERNS))
    train, test = (
        _draw_images(spec, size, mixtures, patterns, stream(spec.seed, f"synthetic {part}"))
        for part, size in (("train", spec.train_size), ("test", spec.test_size))
    )
    return _plain(train, test, _numbered(spec.num_classes))


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
    return _channels_last(images.reshape(shape)), labels


def _cifar(title: str, mean_and_std: Colours, source: Source) -> Dataset:
    from torchvision import datasets

    reader = getattr(datasets, title)
    folder = _data_dir(source)
    _unpack(reader, folder)
    with _explained(title, reader.filename, folder):
        train, test = (
            reader(folder, train=part, download=source.download) for part in (True, False)
        )
    arrays = [(np.ascontiguousarray(p.data), np.array(p.targets, np.int64)) for p in (train, test)]
    names = tuple(train.classes)
    return Dataset(*arrays[0], *arrays[1], len(names), names, *mean_and_std, "flip_crop")


def _svhn(source: Source) -> Dataset:
    from torchvision.datasets import SVHN

    folder = _data_dir(source)
    with _explained("SVHN", "train_32x32.mat and test_32x32.mat", folder):
        parts = [SVHN(folder, split=split, download=source.download) for split in ("train", "test")]
    train, test = ((_channels_last(part.data), part.labels) for part in parts)
    return Dataset(*train, *test, 10, _numbered(10), *SVHN_COLOURS, "crop")


def _data_dir(source: Source) -> Path:
    return source.data_dir or Path.home() / ".cache" / "fedgps-ray" / "data"


def _unpack(reader: Any, folder: Path) -> None:
    from torchvision.datasets.utils import check_integrity, extract_archive

    archive = folder / reader.filename
    if not (folder / reader.base_folder).exists() and check_integrity(archive, reader.tgz_md5):
        extract_archive(archive, folder)


@contextmanager
def _explained(title: str, files: str, folder: Path) -> Iterator[None]:
    try:
        yield
    except RuntimeError:  # what torchvision raises for files that are missing or not the originals
        raise UserError(
            f"no intact copy of {title} in {folder}; let it be fetched with --download,"
            f" or put {files} there"
        ) from None
    except OSError as error:
        raise UserError(f"cannot get {title} into {folder}: {error}") from None


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


def _read_npz(path: Path) -> Dataset:
    arrays = _arrays(path)
    for part in ("train", "test"):
        _check_images(path, f"x_{part}", arrays[f"x_{part}"])
        _check_labels(path, f"y_{part}", arrays[f"y_{part}"], len(arrays[f"x_{part}"]))
    expected, found = (arrays[key].shape[1:] for key in ("x_train", "x_test"))
    if expected != found:
        raise UserError(f"{path}: x_test has images of {found}, expected {expected} as in x_train")
    class_names = _class_names(path, arrays)
    train, test = (
        (_in_order(arrays[f"x_{part}"]), arrays[f"y_{part}"].astype(np.int64))
        for part in ("train", "test")
    )
    return _plain(train, test, class_names)


def _arrays(path: Path) -> dict[str, NDArray[Any]]:
    with path.open("rb") as file:
        archive = _archive(path, file)
        for key in REQUIRED:
            if key not in archive:
                found = ", ".join(archive) or "none"
                raise UserError(f"{path} has no array '{key}'; it has: {found}")
        keys = [key for key in (*REQUIRED, "classes") if key in archive]
        return {key: _array(path, archive, key) for key in keys}


def _archive(path: Path, file: BinaryIO) -> Mapping[str, Any]:
    try:
        archive = np.load(file, allow_pickle=False)
    except (ValueError, OSError, EOFError, zipfile.BadZipFile):
        archive = None
    if not isinstance(archive, Mapping):
        raise UserError(f"{path} is not an .npz file: expected named arrays, as numpy.savez writes")
    return archive


def _array(path: Path, archive: Mapping[str, Any], key: str) -> NDArray[Any]:
    try:
        return np.asarray(archive[key])
    except (ValueError, OSError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise UserError(f"{path}: {key} cannot be read, expected a plain array: {error}") from None


def _check_images(path: Path, key: str, images: NDArray[Any]) -> None:
    if images.dtype != np.uint8:
        raise UserError(f"{path}: {key} has type {images.dtype}, expected uint8 (0 to 255)")
    if images.ndim not in (3, 4):
        raise UserError(
            f"{path}: {key} has shape {images.shape}, expected (number, height, width)"
            " or (number, height, width, channels)"
        )
    if images.size == 0:
        raise UserError(f"{path}: {key} has shape {images.shape}, expected at least one image")


def _check_labels(path: Path, key: str, labels: NDArray[Any], num_images: int) -> None:
    if labels.dtype.kind not in "iu":
        raise UserError(f"{path}: {key} has type {labels.dtype}, expected whole numbers")
    if labels.shape != (num_images,):
        raise UserError(
            f"{path}: {key} has shape {labels.shape}, expected ({num_images},):"
            f" one label for each image of {key.replace('y', 'x')}"
        )
    if (lowest := int(labels.min())) < 0:
        raise UserError(f"{path}: {key} has the label {lowest}, expected 0 and above")


def _class_names(path: Path, arrays: Mapping[str, NDArray[Any]]) -> tuple[str, ...]:
    if "classes" in arrays:
        names, reason = _given_names(path, arrays["classes"]), "one for each name in classes"
    else:
        names = _numbered(len(np.unique(arrays["y_train"])))
        reason = f"y_train has {len(names)} different labels, counted from 0 without gaps"
    for key in ("y_train", "y_test"):
        if (highest := int(arrays[key].max())) >= len(names):
            raise UserError(
                f"{path}: {key} has the label {highest}, expected 0 to {len(names) - 1} ({reason})"
            )
    return names


def _given_names(path: Path, classes: NDArray[Any]) -> tuple[str, ...]:
    if classes.dtype.kind != "U" or classes.ndim != 1:
        raise UserError(
            f"{path}: classes has type {classes.dtype} and shape {classes.shape},"
            " expected a list of names"
        )
    return tuple(str(name) for name in classes)


def _in_order(images: NDArray[Any]) -> Images:
    if images.ndim == 3:
        return np.ascontiguousarray(images[..., None])
    is_first = images.shape[1] in (1, 3) and images.shape[-1] not in (1, 3)
    return _channels_last(images) if is_first else np.ascontiguousarray(images)


def _channels_last(images: NDArray[Any]) -> Images:
    return np.ascontiguousarray(np.moveaxis(images, 1, -1))
