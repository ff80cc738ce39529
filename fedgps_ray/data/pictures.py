"""Images in their usual files: decoded, brought to one size, stacked."""

import warnings
from collections.abc import Iterable, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fedgps_ray.data.memory import check_room
from fedgps_ray.data.own import files_of
from fedgps_ray.errors import UserError
from fedgps_ray.identity import Table

GREY_MODES = ("1", "L")
FORMATS = ("PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP", "PPM")  # others may start programs
Pixels = NDArray[np.uint8]


def read_folder(folder: Path, size: int | None, test: str) -> Table:
    """Read a folder of train/<class>/<image> and test/<class>/<image>."""
    files = files_of(folder, "image_folder")
    by_part = {
        part: [file for file in files if file.relative_to(folder).parts[0] == part]
        for part in ("train", test)
    }
    if not by_part[test]:
        raise UserError(
            f"{folder} has no images in {test}/<class>/; the option test names another folder"
        )
    classes = sorted({file.parent.name for file in by_part["train"]})
    x_train, x_test = (_read(by_part[part], size) for part in ("train", test))
    y_train, y_test = (_numbers(by_part[part], classes) for part in ("train", test))
    x_train, x_test = same_colours(x_train, x_test)
    names = np.array(classes)
    return {
        "x_train": x_train,
        "y_train": y_train,
        "x_test": x_test,
        "y_test": y_test,
        "classes": names,
    }


def _numbers(files: Sequence[Path], classes: Sequence[str]) -> NDArray[np.int64]:
    for file in files:
        if file.parent.name not in classes:
            raise UserError(f"{file} is of class '{file.parent.name}', which train/ does not have")
    return np.array([classes.index(file.parent.name) for file in files], np.int64)


def _read(files: Sequence[Path], size: int | None) -> Pixels:
    return together((_content(file) for file in files), list(map(str, files)), size)


def _content(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as problem:
        raise UserError(f"{file} cannot be read: {problem.strerror}") from None


def together(contents: Iterable[bytes], names: Sequence[str], size: int | None) -> Pixels:
    """Decode images of one size and stack them; what cannot fit is refused after the first."""
    images: list[Pixels] = []
    for content, name in zip(contents, names, strict=True):
        images.append(decoded(content, name, size))
        if len(images) == 1:
            check_room(name, images[0].nbytes * len(names))
        _check_alike(images[0], names[0], images[-1], name)
    return _stacked(images, names[0])


def decoded(content: bytes, where: str, size: int | None) -> Pixels:
    """Return an image as bytes, height x width x 1 if it is grey and x 3 if not."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            image: Any = Image.open(BytesIO(content), formats=FORMATS)
            image = image.convert("L" if image.mode in GREY_MODES else "RGB")
    except (*UNREADABLE, *BOMBS) as error:
        raise UserError(f"{where} cannot be read as an image: {error}") from None
    if size is not None:
        image = image.resize((size, size), Image.Resampling.BILINEAR)
    pixels = np.asarray(image, np.uint8)
    return pixels if pixels.ndim == 3 else pixels[..., None]


UNREADABLE = (OSError, ValueError, TypeError, LookupError, SyntaxError, EOFError, MemoryError)
BOMBS = (Image.DecompressionBombError, Image.DecompressionBombWarning)


def _check_alike(first: Pixels, first_name: str, image: Pixels, name: str) -> None:
    (height, width), (other_height, other_width) = first.shape[:2], image.shape[:2]
    if (height, width) != (other_height, other_width):
        raise UserError(
            f"{name} has {other_height}x{other_width} pixels, {first_name} has {height}x{width}:"
            " add the option size, to which all images are scaled; for example size = 64"
        )


def _stacked(images: Sequence[Pixels], name: str) -> Pixels:
    """Return images of one size as one array; if some have colours, all have three channels."""
    channels = max(image.shape[2] for image in images)
    check_room(name, len(images) * images[0][..., 0].size * channels)
    return np.stack([coloured(image, channels) for image in images])


def coloured(pixels: Pixels, channels: int) -> Pixels:
    """Repeat the only channel of grey images where other images have three."""
    return np.repeat(pixels, channels, axis=-1) if pixels.shape[-1] < channels else pixels


def same_colours(x_train: Pixels, x_test: Pixels) -> tuple[Pixels, Pixels]:
    """Give grey images three channels if those of the other part have three."""
    channels = max(x_train.shape[-1], x_test.shape[-1])
    return coloured(x_train, channels), coloured(x_test, channels)
