"""Arrays of any shape to a Dataset: checked, put in order, and how they become network input."""

import math
from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedgps_ray.data.memory import check_room
from fedgps_ray.errors import UserError

Array = NDArray[Any]  # of any type
Labels = NDArray[np.int64]
Numbers = tuple[float, ...]
Augment = Literal["none", "flip_crop", "crop"]
Kind = Literal["images", "features", "tokens"]
Layout = Literal["hw", "hwc", "chw", "features", "tokens"]

LAYOUTS = {
    "hw": "grey images",
    "hwc": "images, channels last",
    "chw": "images, channels first",
    "features": "numbers",
    "tokens": "whole numbers that stand for words or letters",
}
IMAGE_AXES = {"hw": 2, "hwc": 3, "chw": 3}
USUAL_CHANNELS = ((1, 3), (2, 4))  # grey and colour; then the rarer grey or colour with opacity
BLOCK = 1024
REQUIRED = ("x_train", "y_train", "x_test", "y_test")
KEYS = (*REQUIRED, "classes", "client_train")


class Dataset(NamedTuple):
    """Examples, labels, and how the examples become network input.

    Images are bytes or floats, number x height x width x channels; features are floats and tokens
    whole numbers of any shape. Mean and deviation are those of the last axis; images in bytes are
    divided by 255 before.
    """

    x_train: Array
    y_train: Labels
    x_test: Array
    y_test: Labels
    num_classes: int
    class_names: tuple[str, ...]
    mean: Numbers
    std: Numbers
    augment: Augment
    kind: Kind = "images"
    client_train: Labels | None = None  # who holds each training example, where the data say so
    client_names: tuple[str, ...] = ()

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of one example as a network gets it: images have their channels first."""
        shape = tuple(self.x_train.shape[1:])
        return (shape[-1], *shape[:-1]) if self.kind == "images" else shape


class Treatment(NamedTuple):
    """What the user says about arrays that do not speak for themselves."""

    layout: Layout | None = None
    shape: str | None = None  # of one example, such as 28x28, where it is stored flat
    standardise: bool = True


AS_IT_IS = Treatment()


def from_arrays(arrays: object, name: str, treatment: Treatment = AS_IT_IS) -> Dataset:
    """Return the data set of arrays x_train, y_train, x_test, y_test, [classes], [client_train].

    They come as a mapping or a named tuple; name says in messages whose arrays they are.
    """
    given = _by_name(arrays, name)
    x_train, x_test = (_shaped(given, key, name, treatment) for key in ("x_train", "x_test"))
    _check_alike(name, x_train, x_test)
    layout = treatment.layout or recognised(x_train, name)
    x_train, x_test = (_put(x, layout, f"{name}: {k}") for k, x in _parts("x", x_train, x_test))
    kind: Kind = "images" if layout in IMAGE_AXES else layout  # type: ignore[assignment]
    y_train, y_test, class_names = _labels(given, name, len(x_train), len(x_test))
    mean, std = moments(x_train) if _is_scaled(kind, treatment) else _unchanged(x_train)
    owners, clients = _owners(given, name, len(x_train))
    return Dataset(
        x_train,
        y_train,
        x_test,
        y_test,
        num_classes=len(class_names),
        class_names=class_names,
        mean=mean,
        std=std,
        augment="none",
        kind=kind,
        client_train=owners,
        client_names=clients,
    )


def _parts(letter: str, train: object, test: object) -> tuple[tuple[str, Any], tuple[str, Any]]:
    return (f"{letter}_train", train), (f"{letter}_test", test)


def _by_name(arrays: object, name: str) -> dict[str, Array]:
    given = arrays._asdict() if hasattr(arrays, "_asdict") else arrays
    if not isinstance(given, Mapping):
        raise UserError(
            f"{name}: expected arrays by name (x_train, y_train, x_test, y_test),"
            f" got {type(arrays).__name__}"
        )
    for key in REQUIRED:
        if given.get(key) is None:
            raise UserError(f"{name} has no array '{key}'; it has: {', '.join(given) or 'none'}")
    return {
        key: _plain(name, key, value)
        for key, value in given.items()
        if key in KEYS and value is not None
    }


def _plain(name: str, key: str, value: object) -> Array:
    try:
        array = np.asarray(value)
        if array.dtype.kind == "S":
            array = np.char.decode(array, "utf-8")
        if array.dtype.kind == "U":
            np.char.encode(array, "utf-8")  # some code points are no characters
    except (ValueError, TypeError, SystemError) as problem:
        raise UserError(f"{name}: {key} cannot be read: {problem}") from None
    if array.dtype.kind not in "biufU":
        raise UserError(f"{name}: {key} has type {array.dtype}, expected a plain array")
    return array


def _shaped(given: Mapping[str, Array], key: str, name: str, treatment: Treatment) -> Array:
    """Return the examples in the shape that the user gave, if any."""
    x = given[key]
    if x.ndim < 2:
        raise UserError(
            f"{name}: {key} has shape {x.shape}, expected one row or more axes for each example"
        )
    if x.size == 0:
        raise UserError(f"{name}: {key} has shape {x.shape}, expected at least one example")
    if treatment.shape is None:
        return x
    wanted = tuple(int(part) for part in treatment.shape.split("x"))
    if math.prod(wanted) != math.prod(x.shape[1:]):
        raise UserError(
            f"{name}: {key} has examples of shape {x.shape[1:]}, which cannot become"
            f" {treatment.shape}, as given by shape"
        )
    return x.reshape(len(x), *wanted)


def _check_alike(name: str, x_train: Array, x_test: Array) -> None:
    expected, other = x_train.shape[1:], x_test.shape[1:]
    if expected != other:
        raise UserError(
            f"{name}: x_test has examples of shape {other}, expected {expected} as in x_train"
        )
    if _type_class(x_train) != _type_class(x_test):
        raise UserError(
            f"{name}: x_test has type {x_test.dtype}, expected {x_train.dtype} as in x_train"
        )


def _type_class(x: Array) -> str:
    if x.dtype == np.uint8:
        return "byte"
    return "int" if x.dtype.kind in "iu" else x.dtype.kind


def recognised(x: Array, name: str) -> Layout:
    """Return what the examples are, where type and shape leave no doubt; else ask for it."""
    axes, sort = x.ndim - 1, _type_class(x)
    if axes == 1 and sort in ("f", "b"):
        return "features"
    if axes == 1 and sort == "int":
        return "tokens"
    if axes == 2 and sort == "byte":
        return "hw"
    if axes == 3 and sort in ("byte", "f") and (layout := _image_layout(x.shape[1:])):
        return layout
    raise _doubt(x, name)


def _image_layout(shape: tuple[int, ...]) -> Layout | None:
    """Return where the channels are: in the only axis whose length is usual for them."""
    first, _, last = shape
    for usual in USUAL_CHANNELS:
        if (first in usual) != (last in usual):
            return "hwc" if last in usual else "chw"
        if first in usual:
            return None
    return None


def _doubt(x: Array, name: str) -> UserError:
    fitting = [layout for layout in LAYOUTS if _fits(x, layout)]
    pictures = [layout for layout in fitting if IMAGE_AXES.get(layout) == 3]
    possible = pictures or fitting  # three axes are almost always those of images
    if not possible:
        return UserError(f"{name}: x_train has type {x.dtype}, expected numbers")
    listed = " or ".join(f'"{layout}" ({LAYOUTS[layout]})' for layout in possible)
    return UserError(
        f"{name}: x_train has type {x.dtype} and examples of shape {x.shape[1:]}, which can be read"
        f" in more than one way: add the option layout, which is {listed}; for example"
        f' dataset = {{ name = "{name}", layout = "{possible[0]}" }} or --set'
        f" dataset.layout={possible[0]}"
    )


def _fits(x: Array, layout: str) -> bool:
    sort = _type_class(x)
    if layout in IMAGE_AXES:
        return x.ndim - 1 == IMAGE_AXES[layout] and sort in ("byte", "f")
    return sort in ("byte", "int") or (layout == "features" and sort in ("b", "f"))


def _put(x: Array, layout: Layout, where: str) -> Array:
    """Return the examples in our order and type, as they are if they have both already."""
    if not _fits(x, layout):
        raise UserError(
            f"{where} has type {x.dtype} and examples of shape {x.shape[1:]}, which cannot be"
            f' layout "{layout}" ({LAYOUTS[layout]}): {_wanted(layout)}'
        )
    if layout == "tokens":
        return _tokens(x, where)
    if layout == "chw":
        x = np.moveaxis(x, 1, -1)
    if layout == "hw":
        x = x[..., None]
    if layout in IMAGE_AXES and x.dtype == np.uint8:
        return np.ascontiguousarray(x)
    return _floats(x, where)


def _wanted(layout: Layout) -> str:
    if layout in IMAGE_AXES:
        return f"expected bytes (uint8) or floats with {IMAGE_AXES[layout]} axes for each image"
    return "expected whole numbers" if layout == "tokens" else "expected numbers"


def _floats(x: Array, where: str) -> NDArray[np.float32]:
    if x.dtype != np.float32 or not x.flags.c_contiguous:
        check_room(where, 4 * x.size)
    with np.errstate(over="ignore"):  # too large becomes infinite, which is refused below
        floats = np.ascontiguousarray(x, np.float32)
    if not all(np.isfinite(part).all() for part in blocks(floats)):
        raise UserError(f"{where} has values that are not finite in 32 bits")
    return floats


def _tokens(x: Array, where: str) -> Array:
    if (lowest := int(x.min())) < 0:
        raise UserError(f"{where} has the token {lowest}, expected 0 and above")
    if x.dtype not in (np.int32, np.int64):
        check_room(where, 8 * x.size)
        x = x.astype(np.int64)
    return np.ascontiguousarray(x)


def _is_scaled(kind: Kind, treatment: Treatment) -> bool:
    return treatment.standardise and kind != "tokens"


def _unchanged(x: Array) -> tuple[Numbers, Numbers]:
    width = x.shape[-1]
    return (0.0,) * width, (1.0,) * width


def moments(x: Array) -> tuple[Numbers, Numbers]:
    """Return mean and deviation of each column or channel; bytes count as 0 to 1."""
    return colours(x) if x.dtype == np.uint8 else _column_moments(x)


def _column_moments(x: Array) -> tuple[Numbers, Numbers]:
    columns = x.reshape(-1, x.shape[-1])
    mean = sum(part.sum(axis=0, dtype=np.float64) for part in blocks(columns)) / len(columns)
    squares = sum(((part - mean) ** 2).sum(axis=0) for part in blocks(columns)) / len(columns)
    constant = np.all([(part == columns[0]).all(axis=0) for part in blocks(columns)], axis=0)
    # A column of one value has nothing to scale: it is only centred.
    std = np.where(constant, 1.0, np.sqrt(squares))
    return tuple(np.asarray(mean).tolist()), tuple(np.where(std > 0, std, 1.0).tolist())


def colours(images: NDArray[np.uint8]) -> tuple[Numbers, Numbers]:
    """Return mean and deviation of each channel in [0, 1], from whole-number sums."""
    channels = [_channel_moments(images[..., channel]) for channel in range(images.shape[-1])]
    return tuple(mean for mean, _ in channels), tuple(std for _, std in channels)


def _channel_moments(channel: NDArray[np.uint8]) -> tuple[float, float]:
    counts = sum(np.bincount(part.ravel(), minlength=256) for part in blocks(channel))
    histogram = [int(n) for n in np.asarray(counts)]
    number = sum(histogram)
    total = sum(n * value for value, n in enumerate(histogram))
    squares = sum(n * value * value for value, n in enumerate(histogram))
    variance = (number * squares - total * total) / number**2
    # A channel of one value has nothing to scale: it is only centred.
    return total / number / 255, math.sqrt(variance) / 255 or 1.0


def blocks(array: Array, size: int = BLOCK) -> Iterator[Array]:
    """Yield an array in pieces, so that what is made of them stays small."""
    for start in range(0, len(array), size):
        yield array[start : start + size]


def _labels(
    given: Mapping[str, Array], name: str, num_train: int, num_test: int
) -> tuple[Labels, Labels, tuple[str, ...]]:
    """Return the labels as numbers from 0, and the names of the classes."""
    y_train, y_test = given["y_train"], given["y_test"]
    if y_train.dtype.kind in "U":
        y_train, y_test, class_names = _numbered_labels(name, y_train, y_test)
        given = {**given, "classes": np.array(class_names)}
    for (key, y), size in zip(_parts("y", y_train, y_test), (num_train, num_test), strict=True):
        check_labels(name, key, y, size)
    class_names, why = _class_names(given, name, y_train)
    for key, y in _parts("y", y_train, y_test):
        check_highest(name, key, y, len(class_names), why)
    return y_train.astype(np.int64), y_test.astype(np.int64), class_names


def _numbered_labels(
    name: str, y_train: Array, y_test: Array
) -> tuple[Labels, Labels, tuple[str, ...]]:
    """Return the numbers of labels that are words, which are numbered in sorted order."""
    words, numbers = np.unique(y_train, return_inverse=True)
    if y_test.dtype.kind != y_train.dtype.kind:
        raise UserError(f"{name}: y_test has type {y_test.dtype}, expected words as in y_train")
    absent = np.setdiff1d(y_test, words)
    if len(absent):
        raise UserError(f"{name}: y_test has the label '{absent[0]}', which y_train does not have")
    class_names = tuple(str(word) for word in words)
    return numbers, np.searchsorted(words, y_test), class_names


def check_labels(name: str, key: str, labels: Array, num_examples: int) -> None:
    """Refuse labels that are not one whole number, 0 or above, for each example."""
    if labels.dtype.kind not in "iu":
        raise UserError(f"{name}: {key} has type {labels.dtype}, expected whole numbers")
    if labels.shape != (num_examples,):
        raise UserError(
            f"{name}: {key} has shape {labels.shape}, expected ({num_examples},):"
            f" one label for each example of {key.replace('y', 'x')}"
        )
    if (lowest := int(labels.min())) < 0:
        raise UserError(f"{name}: {key} has the label {lowest}, expected 0 and above")


def check_highest(name: str, key: str, labels: Array, num_classes: int, why: str) -> None:
    """Refuse labels beyond the last class; why says where the number of classes is from."""
    if (highest := int(labels.max())) >= num_classes:
        raise UserError(
            f"{name}: {key} has the label {highest}, expected 0 to {num_classes - 1} ({why})"
        )


def _class_names(
    given: Mapping[str, Array], name: str, y_train: Array
) -> tuple[tuple[str, ...], str]:
    """Return the names of the classes, and how their number is known."""
    if "classes" in given:
        return _given_names(name, given["classes"]), "one for each name in classes"
    names = numbered(len(np.unique(y_train)))
    return names, f"y_train has {len(names)} different labels, counted from 0 without gaps"


def _given_names(name: str, classes: Array) -> tuple[str, ...]:
    if classes.dtype.kind != "U" or classes.ndim != 1:
        raise UserError(
            f"{name}: classes has type {classes.dtype} and shape {classes.shape},"
            " expected a list of names"
        )
    return tuple(str(word) for word in classes)


def numbered(num_classes: int) -> tuple[str, ...]:
    """Return names for classes that have none: their numbers."""
    return tuple(str(number) for number in range(num_classes))


def _owners(
    given: Mapping[str, Array], name: str, num_train: int
) -> tuple[Labels | None, tuple[str, ...]]:
    """Return the number of the client that holds each training example, and all clients' names."""
    if "client_train" not in given:
        return None, ()
    owners = given["client_train"]
    if owners.dtype.kind not in "iuU" or owners.shape != (num_train,):
        raise UserError(
            f"{name}: client_train has type {owners.dtype} and shape {owners.shape}, expected"
            f" {num_train} whole numbers or names: who holds each example of x_train"
        )
    names, numbers = np.unique(owners, return_inverse=True)
    return numbers.astype(np.int64), tuple(str(word) for word in names.tolist())
