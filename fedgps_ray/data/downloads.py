"""CIFAR-10, CIFAR-100 and SVHN, from a folder of the user or fetched into it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np

from fedgps_ray.data.npz import Contents, channels_last, numbered
from fedgps_ray.errors import UserError


def cifar(title: Literal["CIFAR10", "CIFAR100"], data_dir: Path | None, download: bool) -> Contents:
    """Read CIFAR-10 or CIFAR-100 (fine labels) in its original files, or in their archive."""
    from torchvision import datasets

    reader = getattr(datasets, title)
    folder = data_folder(data_dir)
    _unpack(reader, folder)
    with _explained(title, reader.filename, folder):
        train, test = (reader(folder, train=part, download=download) for part in (True, False))
    x_train, x_test = (np.ascontiguousarray(part.data) for part in (train, test))
    y_train, y_test = (np.array(part.targets, np.int64) for part in (train, test))
    return Contents(x_train, y_train, x_test, y_test, tuple(train.classes))


def svhn(data_dir: Path | None, download: bool) -> Contents:
    """Read the two cropped parts of SVHN; the digit 0, stored as 10, is class 0."""
    from torchvision.datasets import SVHN

    folder = data_folder(data_dir)
    with _explained("SVHN", "train_32x32.mat and test_32x32.mat", folder):
        train, test = (SVHN(folder, split=part, download=download) for part in ("train", "test"))
    x_train, x_test = (channels_last(part.data) for part in (train, test))
    return Contents(x_train, train.labels, x_test, test.labels, numbered(10))


def data_folder(data_dir: Path | None) -> Path:
    """Return where the original files are looked for."""
    return data_dir or Path.home() / ".cache" / "fedgps-ray" / "data"


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
