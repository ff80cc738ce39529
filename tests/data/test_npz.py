import re
import zipfile

import numpy as np
import pytest

from fedgps_ray.data.npz import named_arrays, read
from fedgps_ray.errors import UserError


def refused(words):
    return pytest.raises(UserError, match=re.escape(words))


def arrays(**changes):
    images = np.arange(6 * 4 * 5 * 3, dtype=np.uint8).reshape(6, 4, 5, 3)
    valid = {
        "x_train": images[:4],
        "y_train": np.array([0, 1, 2, 0]),
        "x_test": images[4:],
        "y_test": np.array([2, 1]),
    }
    merged = {**valid, **changes}
    return {key: value for key, value in merged.items() if value is not None}


def written(folder, **changes):
    np.savez(folder / "own.npz", **arrays(**changes))
    return folder / "own.npz"


def stored_alike(found, stored):
    return found.flags.c_contiguous and np.array_equal(found, stored)


def test_images_with_channels_last_are_taken_as_they_are(tmp_path):
    data = read(written(tmp_path, y_train=np.array([0, 1, 2, 0], np.uint8)))
    assert stored_alike(data.x_train, arrays()["x_train"])
    assert stored_alike(data.x_test, arrays()["x_test"])
    assert (data.y_train.tolist(), data.y_train.dtype) == ([0, 1, 2, 0], np.int64)
    assert (data.y_test.tolist(), data.class_names) == ([2, 1], ("0", "1", "2"))


@pytest.mark.parametrize("axis", [1, 3])
@pytest.mark.parametrize("channels", [1, 3])
def test_both_places_of_the_channels_give_the_same_images(tmp_path, axis, channels):
    images = np.arange(4 * 20 * channels, dtype=np.uint8).reshape(4, 4, 5, channels)
    stored = np.moveaxis(images, 3, axis)
    data = read(written(tmp_path, x_train=stored, x_test=stored[:2]))
    assert stored_alike(data.x_train, images)
    assert stored_alike(data.x_test, images[:2])


@pytest.mark.parametrize("shape", [(4, 8, 9, 2), (4, 2, 8, 9), (4, 3, 8, 3), (4, 1, 8, 3)])
def test_in_doubt_the_channels_are_last(tmp_path, shape):
    stored = np.zeros(shape, np.uint8)
    assert read(written(tmp_path, x_train=stored, x_test=stored[:2])).x_train.shape == shape


def test_grey_images_may_go_without_channels(tmp_path):
    grey = arrays()["x_train"][..., 0]
    data = read(written(tmp_path, x_train=grey, x_test=grey[:2]))
    assert stored_alike(data.x_train, grey[..., None])


def test_images_stored_column_by_column_are_put_in_order(tmp_path):
    stored = np.asfortranarray(arrays()["x_train"])
    data = read(written(tmp_path, x_train=stored))
    assert stored_alike(data.x_train, arrays()["x_train"])


def test_names_of_classes_count_the_classes(tmp_path):
    data = read(written(tmp_path, classes=np.array(["cat", "dog", "eel", "fox"])))
    assert data.class_names == ("cat", "dog", "eel", "fox")


IMAGES = np.zeros((4, 4, 5, 3), np.uint8)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"y_test": None}, "has no array 'y_test'; it has: x_train, y_train, x_test"),
        ({"x_train": IMAGES / 2}, "x_train has type float64, expected uint8 (0 to 255)"),
        ({"x_test": IMAGES[0, 0]}, "x_test has shape (5, 3), expected (number, height, width)"),
        ({"x_test": IMAGES[None]}, "or (number, height, width, channels)"),
        (
            {"x_train": IMAGES[:0], "y_train": np.array([], int)},
            "x_train has shape (0, 4, 5, 3), expected at least one image",
        ),
        ({"y_train": np.ones(4)}, "y_train has type float64, expected whole numbers"),
        (
            {"y_train": np.array([0, 1])},
            "y_train has shape (2,), expected (4,): one label for each image of x_train",
        ),
        ({"y_test": np.array([[2], [1]])}, "y_test has shape (2, 1), expected (2,)"),
        ({"y_train": np.array([0, -1, 2, 0])}, "y_train has the label -1, expected 0 and above"),
        (
            {"x_test": IMAGES[:2, :3]},
            "x_test has images of (3, 5, 3), expected (4, 5, 3) as in x_train",
        ),
        (
            {"y_test": np.array([3, 0])},
            "y_test has the label 3, expected 0 to 2"
            " (y_train has 3 different labels, counted from 0 without gaps)",
        ),
        (
            {"y_train": np.array([1, 2, 3, 1])},
            "y_train has the label 3, expected 0 to 2"
            " (y_train has 3 different labels, counted from 0 without gaps)",
        ),
        (
            {"classes": np.array(["cat", "dog"])},
            "y_train has the label 2, expected 0 to 1 (one for each name in classes)",
        ),
        (
            {"classes": np.array([1, 2, 3])},
            "classes has type int64 and shape (3,), expected a list of names",
        ),
        (
            {"x_train": np.array([None, 1], object)},
            "x_train cannot be read, expected a plain array: Object arrays cannot be loaded",
        ),
    ],
)
def test_what_is_wrong_with_a_file_is_said(tmp_path, changes, words):
    path = written(tmp_path, **changes)
    with refused(words) as caught:
        read(path)
    assert str(caught.value).startswith(str(path))


def as_text(path):
    path.write_text("not arrays")


def as_nothing(path):
    path.write_bytes(b"")


def as_one_array(path):
    with path.open("wb") as file:
        np.save(file, np.zeros(3))


def as_the_start_of_an_archive(path):
    path.write_bytes(path.read_bytes()[:200])


@pytest.mark.parametrize("spoil", [as_text, as_nothing, as_one_array, as_the_start_of_an_archive])
def test_a_file_that_is_no_archive_is_refused(tmp_path, spoil):
    path = written(tmp_path)
    spoil(path)
    with refused(f"{path} is not an .npz file: expected named arrays, as numpy.savez writes"):
        read(path)


def test_a_damaged_array_is_refused(tmp_path):
    path = written(tmp_path)
    with zipfile.ZipFile(path) as archive:
        start = archive.getinfo("x_train.npy").header_offset
    content = bytearray(path.read_bytes())
    content[start + 300] ^= 255  # among the pixels, so that the checksum fails
    path.write_bytes(content)
    with refused(f"{path}: x_train cannot be read, expected a plain array"):
        read(path)


def test_an_absent_file_is_refused(tmp_path):
    path = tmp_path / "absent.npz"
    with refused(f"cannot read {path}: No such file or directory"):
        read(path)


def test_optional_arrays_may_be_absent_and_others_are_left_alone(tmp_path):
    path = written(tmp_path)
    found = named_arrays(path, ("y_test",), optional=("classes", "y_train"))
    assert {key: value.tolist() for key, value in found.items()} == {
        "y_test": [2, 1],
        "y_train": [0, 1, 2, 0],
    }
