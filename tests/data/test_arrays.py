import re
from typing import Any, NamedTuple

import numpy as np
import pytest

from fedgps_ray.data.arrays import LAYOUTS, Treatment, colours, from_arrays
from fedgps_ray.errors import UserError

RNG = np.random.default_rng(0)
LABELS = np.array([0, 1, 2, 0])
IMAGES = np.arange(4 * 4 * 5 * 3, dtype=np.uint8).reshape(4, 4, 5, 3)


def refused(words):
    return pytest.raises(UserError, match=re.escape(words))


def arrays(x=IMAGES, **changes):
    valid = {"x_train": x, "y_train": LABELS, "x_test": x[:2], "y_test": np.array([2, 1])}
    merged = {**valid, **changes}
    return {key: value for key, value in merged.items() if value is not None}


def made(x, layout=None, shape=None, standardise=True, **changes):
    return from_arrays(arrays(x, **changes), "own", Treatment(layout, shape, standardise))


def in_order(found, expected):
    return found.flags.c_contiguous and np.array_equal(found, expected)


# --- images


def test_images_with_channels_last_are_taken_as_they_are():
    data = from_arrays(arrays(y_train=LABELS.astype(np.uint8)), "own")
    assert np.shares_memory(data.x_train, IMAGES)
    assert in_order(data.x_test, IMAGES[:2])
    assert (data.y_train.tolist(), data.y_train.dtype) == ([0, 1, 2, 0], np.int64)
    assert (data.y_test.tolist(), data.class_names) == ([2, 1], ("0", "1", "2"))
    assert (data.kind, data.augment, data.input_shape) == ("images", "none", (3, 4, 5))
    assert (data.mean, data.std) == colours(IMAGES)


@pytest.mark.parametrize("axis", [1, 3])
@pytest.mark.parametrize("channels", [1, 2, 3, 4])
@pytest.mark.parametrize("sort", [np.uint8, np.float16, np.float32, np.float64])
def test_both_places_of_the_channels_give_the_same_images(axis, channels, sort):
    images = np.arange(4 * 72 * channels).reshape(4, 8, 9, channels) % 256
    data = made(np.moveaxis(images, 3, axis).astype(sort))
    assert in_order(data.x_train, images)
    assert in_order(data.x_test, images[:2])
    assert data.x_train.dtype == (np.uint8 if sort is np.uint8 else np.float32)


def test_grey_images_with_their_channel_first_have_one_channel():
    assert made(np.zeros((4, 1, 8, 8), np.uint8)).input_shape == (1, 8, 8)


@pytest.mark.parametrize("shape", [(4, 3, 8, 3), (4, 1, 8, 3), (4, 16, 16, 5), (4, 2, 9, 4)])
@pytest.mark.parametrize("sort", [np.uint8, np.float32])
def test_in_doubt_the_place_of_the_channels_is_asked_for(shape, sort):
    x = np.zeros(shape, sort)
    with refused('add the option layout, which is "hwc" (images, channels last) or "chw"'):
        made(x)
    assert made(x, "hwc").x_train.shape == shape
    assert made(x, "chw").x_train.shape == (4, shape[2], shape[3], shape[1])


def test_the_question_shows_how_to_answer():
    words = 'for example dataset = { name = "my.npz", layout = "hwc" } or --set dataset.layout=hwc'
    with refused(words):
        from_arrays(arrays(np.zeros((4, 3, 8, 3), np.uint8)), "my.npz")


def test_grey_images_may_go_without_channels():
    assert in_order(made(IMAGES[..., 0]).x_train, IMAGES[..., :1])
    assert in_order(made(IMAGES[..., 0] / 4, "hw").x_train, (IMAGES[..., :1] / 4))


def test_images_stored_column_by_column_are_put_in_order():
    assert in_order(made(np.asfortranarray(IMAGES)).x_train, IMAGES)


def test_flat_images_take_the_shape_that_is_given():
    flat = IMAGES.reshape(4, 60)
    assert in_order(made(flat, shape="4x5x3").x_train, IMAGES)
    with refused("x_train has examples of shape (60,), which cannot become 4x5, as given by shape"):
        made(flat, shape="4x5")


def test_float_images_are_standardised_channel_by_channel():
    x = RNG.normal([1, 20, 300], [1, 2, 3], (4, 6, 7, 3))
    data = made(x)
    assert data.mean == pytest.approx(x.astype(np.float32).mean((0, 1, 2)), rel=1e-6)
    assert data.std == pytest.approx(x.astype(np.float32).std((0, 1, 2)), rel=1e-6)


def test_standardising_can_be_switched_off():
    data = made(IMAGES, standardise=False)
    assert (data.mean, data.std) == ((0.0,) * 3, (1.0,) * 3)
    data = made(np.ones((4, 2)), standardise=False)
    assert (data.mean, data.std) == ((0.0,) * 2, (1.0,) * 2)


# --- features and tokens


@pytest.mark.parametrize("sort", [np.float16, np.float32, np.float64, np.bool_])
def test_columns_of_numbers_are_features(sort):
    x = (np.array([[1, 4], [3, 4], [1, 4], [3, 4]]) - 1).astype(sort)
    data = made(x)
    assert (data.kind, data.input_shape, data.x_train.dtype) == ("features", (2,), np.float32)
    assert in_order(data.x_train, x.astype(np.float32))
    spread = 0.5 if sort is np.bool_ else 1.0  # 0 2 0 2, or as truth values 0 1 0 1
    assert data.mean == (spread, 1.0 if sort is np.bool_ else 3.0)
    assert data.std == (spread, 1.0)  # a column of one value is only centred


def test_a_constant_column_is_only_centred_whatever_rounding_says():
    data = made(np.full((4, 1), 0.1))
    assert data.std == (1.0,)


def test_moments_of_many_rows():
    x = RNG.normal(5, 3, (3000, 4)).astype(np.float32)
    data = made(x, y_train=np.arange(3000) % 3)
    assert data.mean == pytest.approx(x.astype(np.float64).mean(0), rel=1e-12)
    assert data.std == pytest.approx(x.astype(np.float64).std(0), rel=1e-12)


def test_series_of_features_are_standardised_by_their_last_axis():
    x = RNG.normal(0, 1, (4, 7, 2))
    data = made(x, "features")
    assert (data.input_shape, len(data.mean)) == ((7, 2), 2)


@pytest.mark.parametrize("sort", [np.int8, np.int16, np.uint16, np.int32, np.int64])
def test_rows_of_whole_numbers_are_tokens(sort):
    x = np.array([[0, 7, 3]] * 4, sort)
    data = made(x)
    assert (data.kind, data.input_shape) == ("tokens", (3,))
    assert in_order(data.x_train, x)
    assert data.x_train.dtype in (np.int32, np.int64)


def test_whole_numbers_can_be_features():
    data = made(np.array([[0, 7, 3]] * 4), "features")
    assert (data.kind, data.x_train.dtype) == ("features", np.float32)


@pytest.mark.parametrize(
    ("x", "listed"),
    [
        (np.zeros((4, 9), np.uint8), '"features" (numbers) or "tokens" (whole numbers that'),
        (np.zeros((4, 9, 9)), '"hw" (grey images) or "features" (numbers)'),
        (np.zeros((4, 9, 9), int), '"features" (numbers) or "tokens" (whole numbers that'),
        (np.zeros((4, 2, 3, 4, 5)), 'which is "features" (numbers); for example'),
    ],
)
def test_other_shapes_need_a_layout(x, listed):
    with refused(listed):
        made(x)


def test_arrays_that_lie_in_a_file_are_not_copied(tmp_path):
    np.save(tmp_path / "x.npy", RNG.normal(size=(4, 3)).astype(np.float32))
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    data = made(mapped)
    assert np.shares_memory(data.x_train, mapped)
    assert type(data.x_train) is np.ndarray


# --- labels, names, clients


def test_names_of_classes_count_the_classes():
    data = made(IMAGES, classes=np.array(["cat", "dog", "eel", "fox"]))
    assert (data.class_names, data.num_classes) == (("cat", "dog", "eel", "fox"), 4)


@pytest.mark.parametrize("sort", [np.str_, np.bytes_])
def test_labels_may_be_words(sort):
    words = np.array(["dog", "cat", "cat", "eel"]).astype(sort)
    data = made(IMAGES, y_train=words, y_test=words[2:])
    assert (data.y_train.tolist(), data.y_test.tolist()) == ([1, 0, 0, 2], [0, 2])
    assert data.class_names == ("cat", "dog", "eel")


@pytest.mark.parametrize(
    ("owners", "numbers", "names"),
    [
        (["w10", "w9", "w10", "a"], [1, 2, 1, 0], ("a", "w10", "w9")),
        ([10, 9, 10, -1], [2, 1, 2, 0], ("-1", "9", "10")),
    ],
)
def test_clients_are_numbered_in_the_order_of_their_names(owners, numbers, names):
    data = made(IMAGES, client_train=np.array(owners))
    assert (data.client_train.tolist(), data.client_names) == (numbers, names)
    assert made(IMAGES).client_train is None


class Given(NamedTuple):
    x_train: Any
    y_train: Any
    x_test: Any
    y_test: Any
    client_train: Any = None


def test_arrays_come_as_a_named_tuple_or_as_lists_too():
    data = from_arrays(Given([[0.5], [1.5]], [0, 1], [[1.0]], [1]), "mine.py:make")
    assert (data.x_train.tolist(), data.y_test.tolist()) == ([[0.5], [1.5]], [1])


NAN = np.array([[0.0], [1.0], [np.nan], [2.0]])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"y_test": None}, "own has no array 'y_test'; it has: x_train, y_train, x_test"),
        ({"x_train": IMAGES / 2}, "x_test has type uint8, expected float64 as in x_train"),
        ({"x_test": IMAGES[0, 0]}, "x_test has examples of shape (3,), expected (4, 5, 3)"),
        ({"x_test": np.zeros(3)}, "x_test has shape (3,), expected one row or more axes"),
        (
            {"x_train": IMAGES[:0], "y_train": np.array([], int)},
            "x_train has shape (0, 4, 5, 3), expected at least one example",
        ),
        ({"x_train": np.array([None] * 4)}, "x_train has type object, expected a plain array"),
        ({"x_train": LABELS[:, None] * 1j}, "x_train has type complex128, expected a plain array"),
        (
            {"x_train": np.array([["a"]] * 4), "x_test": np.array([["a"]] * 2)},
            "x_train has type <U1, expected numbers",
        ),
        ({"x_train": NAN, "x_test": NAN[:2]}, "x_train has values that are not finite"),
        (
            {"x_train": NAN[:2] + 1e300, "x_test": NAN[:2], "y_train": LABELS[:2]},
            "x_train has values that are not finite in 32 bits",
        ),
        (
            {"x_train": LABELS[:, None] - 1, "x_test": LABELS[:2, None]},
            "x_train has the token -1, expected 0 and above",
        ),
        ({"y_train": np.ones(4)}, "y_train has type float64, expected whole numbers"),
        (
            {"y_train": np.array([0, 1])},
            "y_train has shape (2,), expected (4,): one label for each example of x_train",
        ),
        ({"y_test": np.array([[2], [1]])}, "y_test has shape (2, 1), expected (2,)"),
        ({"y_train": np.array([0, -1, 2, 0])}, "y_train has the label -1, expected 0 and above"),
        (
            {"x_test": IMAGES[:2, :3]},
            "x_test has examples of shape (3, 5, 3), expected (4, 5, 3) as in x_train",
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
            {"y_train": np.array(list("abca")), "y_test": np.array(["a", "d"])},
            "y_test has the label 'd', which y_train does not have",
        ),
        (
            {"y_train": np.array(list("abca"))},
            "y_test has type int64, expected words as in y_train",
        ),
        (
            {"client_train": np.array([1.0, 2.0, 3.0, 4.0])},
            "client_train has type float64 and shape (4,), expected 4 whole numbers or names",
        ),
        ({"client_train": np.array([1, 2])}, "client_train has type int64 and shape (2,)"),
    ],
)
def test_what_is_wrong_with_arrays_is_said(changes, words):
    with refused(words) as caught:
        from_arrays(arrays(**changes), "own")
    assert str(caught.value).startswith("own")


@pytest.mark.parametrize(
    ("x", "layout"),
    [
        (IMAGES, "hw"),
        (IMAGES[..., 0], "chw"),
        (IMAGES.astype(int), "hwc"),
        (IMAGES / 2, "tokens"),
    ],
)
def test_a_layout_that_does_not_fit_is_refused(x, layout):
    with refused(f'which cannot be layout "{layout}" ({LAYOUTS[layout]})'):
        made(x, layout)


def test_what_is_not_arrays_by_name_is_refused():
    with refused("mine.py:make: expected arrays by name (x_train, y_train, x_test, y_test), got"):
        from_arrays([IMAGES, LABELS], "mine.py:make")
