"""A user's own images: .npz files, checked before anything is made of them."""

import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedgps_ray.errors import UserError

REQUIRED = ("x_train", "y_train", "x_test", "y_test")
UNREADABLE = (ValueError, OSError, EOFError, zipfile.BadZipFile, zlib.error)

Images = NDArray[np.uint8]
Labels = NDArray[np.int64]


class Contents(NamedTuple):
    """What a data set's files hold; images are number x height x width x channels."""

    x_train: Images
    y_train: Labels
    x_test: Images
    y_test: Labels
    class_names: tuple[str, ...]


def read(path: Path) -> Contents:
    """Return the checked images, labels and class names of a file."""
    arrays = named_arrays(path, REQUIRED, optional=("classes",))
    for part in ("train", "test"):
        _check_images(path, f"x_{part}", arrays[f"x_{part}"])
        check_labels(path, f"y_{part}", arrays[f"y_{part}"], len(arrays[f"x_{part}"]))
    expected, found = (arrays[key].shape[1:] for key in ("x_train", "x_test"))
    if expected != found:
        raise UserError(f"{path}: x_test has images of {found}, expected {expected} as in x_train")
    class_names = _class_names(path, arrays)
    x_train, x_test = (_in_order(arrays[key]) for key in ("x_train", "x_test"))
    y_train, y_test = (arrays[key].astype(np.int64) for key in ("y_train", "y_test"))
    return Contents(x_train, y_train, x_test, y_test, class_names)


def named_arrays(
    path: Path, required: tuple[str, ...], optional: tuple[str, ...] = ()
) -> dict[str, NDArray[Any]]:
    """Return the arrays of these names; only the optional ones may be absent."""
    try:
        with path.open("rb") as file:
            archive = _archive(path, file)
            for key in required:
                if key not in archive:
                    found = ", ".join(archive) or "none"
                    raise UserError(f"{path} has no array '{key}'; it has: {found}")
            keys = [key for key in (*required, *optional) if key in archive]
            return {key: _array(path, archive, key) for key in keys}
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from None


def _archive(path: Path, file: BinaryIO) -> Mapping[str, Any]:
    try:
        archive = np.load(file, allow_pickle=False)
    except UNREADABLE:
        archive = None
    if not isinstance(archive, Mapping):
        raise UserError(f"{path} is not an .npz file: expected named arrays, as numpy.savez writes")
    return archive


def _array(path: Path, archive: Mapping[str, Any], key: str) -> NDArray[Any]:
    try:
        return np.asarray(archive[key])
    except UNREADABLE as error:
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


def check_labels(path: Path, key: str, labels: NDArray[Any], num_images: int) -> None:
    """Refuse labels that are not one whole number, 0 or above, for each image."""
    if labels.dtype.kind not in "iu":
        raise UserError(f"{path}: {key} has type {labels.dtype}, expected whole numbers")
    if labels.shape != (num_images,):
        raise UserError(
            f"{path}: {key} has shape {labels.shape}, expected ({num_images},):"
            f" one label for each image of {key.replace('y', 'x')}"
        )
    if (lowest := int(labels.min())) < 0:
        raise UserError(f"{path}: {key} has the label {lowest}, expected 0 and above")


def check_highest(path: Path, key: str, labels: NDArray[Any], num_classes: int, why: str) -> None:
    """Refuse labels beyond the last class; why says where the number of classes is from."""
    if (highest := int(labels.max())) >= num_classes:
        raise UserError(
            f"{path}: {key} has the label {highest}, expected 0 to {num_classes - 1} ({why})"
        )


def _class_names(path: Path, arrays: Mapping[str, NDArray[Any]]) -> tuple[str, ...]:
    if "classes" in arrays:
        names, why = _given_names(path, arrays["classes"]), "one for each name in classes"
    else:
        names = numbered(len(np.unique(arrays["y_train"])))
        why = f"y_train has {len(names)} different labels, counted from 0 without gaps"
    for key in ("y_train", "y_test"):
        check_highest(path, key, arrays[key], len(names), why)
    return names


def _given_names(path: Path, classes: NDArray[Any]) -> tuple[str, ...]:
    if classes.dtype.kind != "U" or classes.ndim != 1:
        raise UserError(
            f"{path}: classes has type {classes.dtype} and shape {classes.shape},"
            " expected a list of names"
        )
    return tuple(str(name) for name in classes)


def numbered(num_classes: int) -> tuple[str, ...]:
    """Return names for classes that have none: their numbers."""
    return tuple(str(number) for number in range(num_classes))


def _in_order(images: NDArray[Any]) -> Images:
    if images.ndim == 3:
        return np.ascontiguousarray(images[..., None])
    is_first = images.shape[1] in (1, 3) and images.shape[-1] not in (1, 3)
    return channels_last(images) if is_first else np.ascontiguousarray(images)


def channels_last(images: NDArray[Any]) -> Images:
    """Return channels-first images with the channels behind the pixels' places."""
    return np.ascontiguousarray(np.moveaxis(images, 1, -1))
