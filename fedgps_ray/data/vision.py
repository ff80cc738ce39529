"""Well-known image sets in the files that torchvision reads, from a folder or fetched into it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from torchvision import datasets
from torchvision.datasets.utils import check_integrity, extract_archive

from fedgps_ray.data.arrays import numbered
from fedgps_ray.errors import UserError

Arrays = dict[str, Any]
Part = Any  # a data set of torchvision, which has no types


def cifar(title: Literal["CIFAR10", "CIFAR100"], folder: Path, download: bool) -> Arrays:
    """Read CIFAR-10 or CIFAR-100 (fine labels) in its original files, or in their archive."""
    reader = getattr(datasets, title)
    _unpack(reader, folder)
    with _explained(title, reader.filename, folder):
        train, test = (reader(folder, train=part, download=download) for part in (True, False))
    return _arrays(train, test, train.classes)


def svhn(folder: Path, download: bool) -> Arrays:
    """Read the two cropped parts of SVHN; the digit 0, stored as 10, is class 0."""
    with _explained("SVHN", "train_32x32.mat and test_32x32.mat", folder):
        train, test = (
            datasets.SVHN(folder, split=part, download=download) for part in ("train", "test")
        )
    return _arrays(train, test, numbered(10))


def mnist(title: str, folder: Path, download: bool) -> Arrays:
    """Read MNIST or one of the sets that are stored as it is."""
    reader = getattr(datasets, title)
    files = f"its original files in {title}/raw"
    with _explained(title, files, folder):
        train, test = (reader(folder, train=part, download=download) for part in (True, False))
    return _arrays(train, test, train.classes)


def emnist(split: str, folder: Path, download: bool) -> Arrays:
    """Read a part of EMNIST; its letters, stored as 1 to 26, are classes 0 to 25."""
    with _explained("EMNIST", "its original files in EMNIST/raw", folder):
        train, test = (
            datasets.EMNIST(folder, split=split, train=part, download=download)
            for part in (True, False)
        )
    arrays = _arrays(train, test, train.classes)
    if split == "letters":
        arrays["classes"] = arrays["classes"][1:]
        arrays |= {key: arrays[key] - 1 for key in ("y_train", "y_test")}
    return arrays


def usps(folder: Path, download: bool) -> Arrays:
    """Read USPS, grey 16x16 images of digits."""
    with _explained("USPS", "usps.bz2 and usps.t.bz2", folder):
        train, test = (
            datasets.USPS(folder, train=part, download=download) for part in (True, False)
        )
    return _arrays(train, test, numbered(10))


def stl10(folder: Path, download: bool) -> Arrays:
    """Read the labelled images of STL-10."""
    with _explained("STL10", "stl10_binary", folder):
        train, test = (
            datasets.STL10(folder, split=part, download=download) for part in ("train", "test")
        )
    return _arrays(train, test, getattr(train, "classes", None) or numbered(10))


def _arrays(train: Part, test: Part, classes: Any) -> Arrays:
    return {
        "x_train": _pixels(train.data),
        "y_train": _labels(train),
        "x_test": _pixels(test.data),
        "y_test": _labels(test),
        "classes": np.array(classes),
    }


def _pixels(data: object) -> NDArray[np.uint8]:
    """Return images with their channels last; only SVHN and STL10 have them first."""
    pixels = np.asarray(data)
    is_first = pixels.ndim == 4 and pixels.shape[-1] != 3
    ordered = np.moveaxis(pixels, 1, -1) if is_first else pixels
    return ordered if ordered.ndim == 4 else ordered[..., None]


def _labels(part: Part) -> NDArray[np.int64]:
    labels = np.asarray(part.labels if hasattr(part, "labels") else part.targets).astype(np.int64)
    return labels if labels.ndim == 1 else labels[:, 0]  # QMNIST: the others are about the writer


def _unpack(reader: Part, folder: Path) -> None:
    archive = folder / reader.filename
    if not (folder / reader.base_folder).exists() and check_integrity(archive, reader.tgz_md5):
        extract_archive(archive, folder)


@contextmanager
def _explained(title: str, files: str, folder: Path) -> Iterator[None]:
    missing = UserError(
        f"no intact copy of {title} in {folder}; download it with --download, or put {files} there"
    )
    try:
        yield
    except (RuntimeError, FileNotFoundError):  # torchvision's ways to say that files are missing
        raise missing from None
    except OSError as error:
        raise UserError(f"cannot get {title} into {folder}: {error}") from None
    except (ValueError, TypeError, AssertionError, EOFError) as error:  # damaged: no checksum
        raise UserError(f"{title} in {folder} cannot be read: {error}") from None
