import random
import subprocess
import sys
from itertools import pairwise, product

import numpy as np
import pytest
import torch

from fedgps_ray.data.arrays import Treatment, from_arrays
from fedgps_ray.data.batches import PLAIN_BATCH, Batches, Draws, Surrogate, examples, images
from fedgps_ray.errors import UserError

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)
DOUBLE = (torch.device("cpu"), torch.float64)
AUGMENTS = ("none", "flip_crop", "crop", "crop_flip")
# side of the image -> padding: an eighth of the shorter side, at least one pixel
SHAPES = {(32, 32, 3): 4, (8, 8, 1): 1, (17, 24, 2): 2, (24, 16, 3): 2, (5, 9, 3): 1}


def random_pixels(number, shape):
    return np.random.default_rng(0).integers(0, 256, (number, *shape), dtype=np.uint8)


def numbered(number, augment="none", to=DOUBLE, shape=(2, 2, 1)):
    """Images whose only value is their number, normalised to itself; labels are the numbers + 1000.

    (v / 255 - 0) / (1 / 255) = v
    """
    values = np.arange(number, dtype=np.uint8)
    pixels = np.broadcast_to(values[:, None, None, None], (number, *shape)).copy()
    return images(pixels, np.arange(number) + 1000, ((0.0,), (1 / 255,)), augment, to)


def numbers(x):
    """Return the numbers that numbered images show, from their lower right pixel."""
    return x[:, 0, -1, -1].round().int().tolist()


def window(padded, top, left, shape):
    return padded[top : top + shape[0], left : left + shape[1]]


def by_definition(image, augment, top, left, flip, padding):
    """Treat one image as the words say, in float64: channels first, as networks want it."""
    around = ((padding, padding), (padding, padding), (0, 0))
    if augment == "flip_crop":
        turned = image[:, ::-1] if flip else image
        image = window(np.pad(turned, around, mode="reflect"), top, left, image.shape)
    if augment in ("crop", "crop_flip"):
        image = window(np.pad(image, around), top, left, image.shape)
    if augment == "crop_flip" and flip:
        image = image[:, ::-1]
    channels = image.shape[-1]
    values = (image.astype(np.float64) / 255 - MEAN[:channels]) / STD[:channels]
    return values.transpose(2, 0, 1)


# --- augmentation and normalisation


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("augment", ["flip_crop", "crop", "crop_flip"])
def test_every_window_and_mirror_is_as_defined(augment, shape):
    padding, channels = SHAPES[shape], shape[-1]
    flips = (False,) if augment == "crop" else (False, True)
    offsets = range(2 * padding + 1)
    tops, lefts, mirrored = zip(*product(offsets, offsets, flips), strict=True)
    pixels = random_pixels(7, shape)
    index = np.arange(len(tops)) * 3 % 7
    normal = MEAN[:channels], STD[:channels]
    some = images(pixels, np.arange(7), normal, augment, DOUBLE)
    draws = Draws(torch.tensor(tops), torch.tensor(lefts), torch.tensor(mirrored))
    expected = [
        by_definition(pixels[i], augment, top, left, flip, padding)
        for i, top, left, flip in zip(index, tops, lefts, mirrored, strict=True)
    ]
    assert some.padding == padding
    found = some.take(torch.from_numpy(index), draws)
    np.testing.assert_allclose(found.numpy(), expected, rtol=0, atol=1e-13)


@pytest.mark.parametrize("augment", AUGMENTS)
@pytest.mark.parametrize("shape", SHAPES)
def test_without_draws_images_are_only_normalised(augment, shape):
    pixels, channels = random_pixels(5, shape), shape[-1]
    some = images(pixels, np.arange(5), (MEAN[:channels], STD[:channels]), augment, DOUBLE)
    expected = [by_definition(pixels[i], "none", 0, 0, False, 0) for i in (4, 0, 4)]
    found = some.take(torch.tensor([4, 0, 4]))
    np.testing.assert_allclose(found.numpy(), expected, rtol=0, atol=1e-13)


def test_no_augmentation_draws_nothing():
    rng, untouched = np.random.default_rng(5), np.random.default_rng(5)
    assert numbered(3).draw(rng, 100) is None
    assert rng.random() == untouched.random()


def test_one_mean_and_deviation_serve_every_channel():  # (102 / 255 - 0.5) / 0.25 = -0.4
    pixels = np.full((1, 4, 4, 3), 102, np.uint8)
    x = images(pixels, np.array([0]), ((0.5,), (0.25,)), to=DOUBLE).take(torch.tensor([0]))
    assert x.shape == (1, 3, 4, 4)
    np.testing.assert_allclose(x.numpy(), -0.4, rtol=1e-14)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("augment", AUGMENTS)
def test_network_input_has_its_type_and_channels_last_memory(augment, dtype):
    some = images(
        random_pixels(6, (8, 8, 3)), np.arange(6), (MEAN, STD), augment, (DOUBLE[0], dtype)
    )
    x = some.take(torch.tensor([1, 5]), some.draw(np.random.default_rng(0), 2))
    assert (x.dtype, x.shape) == (dtype, (2, 3, 8, 8))
    assert x.is_contiguous(memory_format=torch.channels_last)
    assert not x.is_contiguous()


def test_single_precision_is_the_rounding_of_double():
    pixels, index = random_pixels(6, (8, 8, 3)), torch.arange(6)
    single, double = (
        images(pixels, np.arange(6), (MEAN, STD), to=(DOUBLE[0], dtype)).take(index)
        for dtype in (torch.float32, torch.float64)
    )
    torch.testing.assert_close(single.double(), double, rtol=0, atol=1e-6)


def test_taking_leaves_the_stored_images_alone():
    pixels = random_pixels(4, (8, 8, 3))
    before = pixels.copy()
    some = images(pixels, np.arange(4), (MEAN, STD), "crop_flip")
    some.take(torch.arange(4)).fill_(0)
    some.take(torch.arange(4), some.draw(np.random.default_rng(0), 4)).fill_(0)
    assert np.array_equal(pixels, before)


# --- draws


@pytest.mark.parametrize(("augment", "flips"), [("flip_crop", 2), ("crop", 1), ("crop_flip", 2)])
def test_draws_cover_all_windows_and_mirrors_evenly(augment, flips):
    some = numbered(3, augment, shape=(16, 16, 1))  # padding 2: offsets 0 to 4
    draws = some.draw(np.random.default_rng(0), 20_000)
    cells = (draws.top * 5 + draws.left) * 2 + draws.flip
    counts = np.bincount(cells, minlength=50).reshape(25, 2)[:, :flips]
    expected = 20_000 / (25 * flips)
    assert counts.sum() == 20_000
    assert abs(counts - expected).max() < 5 * expected**0.5  # five standard deviations


def test_equal_generators_draw_alike_and_others_do_not():
    some = numbered(3, "flip_crop", shape=(16, 16, 1))
    one, same, other = (some.draw(np.random.default_rng(seed), 50) for seed in (7, 7, 8))
    assert all(torch.equal(a, b) for a, b in zip(one, same, strict=True))
    assert not any(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def test_global_generators_are_left_alone():
    before = random.getstate(), np.random.get_state()[1].tobytes(), torch.get_rng_state().tolist()
    some = numbered(20, "crop_flip")
    list(shuffled_batches(some, torch.arange(20), 4).shuffled(2))
    list(Batches(some, torch.arange(20)).plain())
    Surrogate(some, 5, np.random.default_rng(0)).draw()
    after = random.getstate(), np.random.get_state()[1].tobytes(), torch.get_rng_state().tolist()
    assert before == after


# --- batches of a client


def shuffled_batches(some, index, batch_size, seed=0):
    order_rng, augment_rng = np.random.default_rng(seed).spawn(2)
    return Batches(some, index, batch_size, order_rng, augment_rng)


def epochs_of(batches, epochs):
    """Return the numbers of the images seen in each epoch."""
    seen = [[] for _ in range(epochs)]
    for batch in batches.shuffled(epochs):
        seen[batch.epoch] += numbers(batch.x)
    return seen


def test_every_example_comes_once_an_epoch_in_new_order():
    index = torch.arange(3, 90, 2)
    first, second, third = epochs_of(shuffled_batches(numbered(100), index, 10), 3)
    assert sorted(first) == sorted(second) == sorted(third) == index.tolist()
    assert first != index.tolist()
    assert first != second != third != first


def test_the_last_batch_is_kept_and_epochs_are_numbered():
    batches = list(shuffled_batches(numbered(30), torch.arange(23), 10).shuffled(2))
    assert [len(batch.y) for batch in batches] == [10, 10, 3] * 2
    assert [batch.epoch for batch in batches] == [0, 0, 0, 1, 1, 1]
    assert all(batch.x.shape == (len(batch.y), 1, 2, 2) for batch in batches)


def test_labels_go_with_their_images():
    batches = shuffled_batches(numbered(60), torch.arange(10, 60), 16)
    for batch in [*batches.shuffled(1), *batches.plain()]:
        assert batch.y.tolist() == [number + 1000 for number in numbers(batch.x)]


def test_equal_generators_give_equal_batches():
    some = images(random_pixels(20, (8, 8, 3)), np.arange(20), (MEAN, STD), "flip_crop")
    one, same, other = (
        [batch.x for batch in shuffled_batches(some, torch.arange(20), 8, seed).shuffled(2)]
        for seed in (0, 0, 1)
    )
    assert all(torch.equal(a, b) for a, b in zip(one, same, strict=True))
    assert not any(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def test_the_order_does_not_depend_on_the_augmentation():
    orders = [
        epochs_of(shuffled_batches(numbered(50, augment), torch.arange(50), 8), 2)
        for augment in ("none", "flip_crop")  # reflected pixels of one value are that value
    ]
    assert orders[0] == orders[1]


def test_each_batch_gets_its_own_part_of_the_draws():
    pixels, index = random_pixels(20, (8, 8, 3)), torch.arange(20)
    some = images(pixels, np.arange(20), (MEAN, STD), "crop_flip")
    parts = [batch.x for batch in shuffled_batches(some, index, 6).shuffled(1)]
    (whole,) = shuffled_batches(some, index, 20).shuffled(1)
    assert torch.equal(torch.cat(parts), whole.x)


def test_windows_differ_from_epoch_to_epoch():
    some = images(random_pixels(1, (32, 32, 3)), np.arange(1), (MEAN, STD), "flip_crop")
    batches = list(shuffled_batches(some, torch.tensor([0]), 1).shuffled(20))
    views = {batch.x.numpy().tobytes() for batch in batches}
    assert len(views) > 10  # of 162 equally likely ones


@pytest.mark.parametrize("augment", AUGMENTS)
def test_plain_batches_are_in_order_and_not_augmented(augment):
    some = images(random_pixels(600, (8, 8, 3)), np.arange(600), (MEAN, STD), augment)
    index = torch.arange(599, 0, -1)
    batches = list(Batches(some, index, batch_size=7).plain())
    assert [len(batch.y) for batch in batches] == [PLAIN_BATCH, PLAIN_BATCH, 599 - 2 * PLAIN_BATCH]
    assert torch.equal(torch.cat([batch.x for batch in batches]), some.take(index))
    assert torch.equal(torch.cat([batch.y for batch in batches]), index)
    assert {batch.epoch for batch in batches} == {0}


def test_a_client_without_examples_has_no_batches():
    batches = shuffled_batches(numbered(5, "crop"), torch.tensor([], dtype=torch.int64), 4)
    assert [*batches.shuffled(2), *batches.plain()] == []


# --- arrays that may not be written to, as shared memory hands them out


def test_read_only_arrays_are_wrapped_without_copy():
    pixels, labels = random_pixels(4, (8, 8, 3)), np.arange(4)
    for array in (pixels, labels):
        array.flags.writeable = False
    some = images(pixels, labels, (MEAN, STD))
    assert some.pixels.data_ptr() == pixels.ctypes.data
    assert some.labels.data_ptr() == labels.ctypes.data
    assert np.array_equal(some.pixels.numpy(), pixels)
    assert some.labels.tolist() == [0, 1, 2, 3]


def test_wrapping_a_read_only_array_warns_of_nothing():
    # In a process of its own: torch gives this warning once and then never again.
    code = (
        "import numpy as np; from fedgps_ray.data.batches import images;"
        "pixels = np.zeros((1, 8, 8, 3), np.uint8); pixels.flags.writeable = False;"
        "images(pixels, np.arange(1), ((0.5,), (0.5,)))"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


# --- the surrogate set


def test_surrogate_draws_are_distinct_with_their_labels():
    surrogate = Surrogate(numbered(200), 128, np.random.default_rng(0))
    batch = surrogate.draw()
    chosen = numbers(batch.x)
    assert len(set(chosen)) == len(chosen) == 128
    assert chosen != sorted(chosen)
    assert batch.y.tolist() == [number + 1000 for number in chosen]


def test_surrogate_draws_do_not_depend_on_earlier_ones():
    # 30 of 200 each time; were it a pass over the set, two draws would have no image in common.
    # Mean overlap 30 * 30 / 200 = 4.5, variance 30 * .15 * .85 * 170 / 199 = 3.27 a pair:
    # the mean of 400 pairs deviates by 0.09.
    surrogate = Surrogate(numbered(200), 30, np.random.default_rng(0))
    drawn = [set(numbers(surrogate.draw().x)) for _ in range(401)]
    overlaps = [len(one & next_) for one, next_ in pairwise(drawn)]
    assert np.mean(overlaps) == pytest.approx(4.5, abs=0.45)
    assert np.var(overlaps) == pytest.approx(3.27, rel=0.35)


def test_every_surrogate_image_is_equally_likely():
    # 2000 draws of 10 out of 40: 500 each, deviation sqrt(2000 * 1/4 * 3/4) = 19.4
    surrogate = Surrogate(numbered(40), 10, np.random.default_rng(1))
    labels = torch.cat([surrogate.draw().y for _ in range(2000)]) - 1000
    counts = np.bincount(labels, minlength=40)
    assert abs(counts - 500).max() < 5 * 19.4


def test_a_surrogate_batch_is_at_most_the_whole_set():
    batch = Surrogate(numbered(7), 128, np.random.default_rng(0)).draw()
    assert sorted(numbers(batch.x)) == list(range(7))


def test_surrogate_images_are_augmented():
    pixels = random_pixels(1, (32, 32, 3))
    some = images(pixels, np.arange(1), (MEAN, STD), "crop_flip", DOUBLE)
    batch = Surrogate(some, 1, np.random.default_rng(3)).draw()
    rng = np.random.default_rng(3)
    rng.choice(1, 1, replace=False)
    (top, left), flip = rng.integers(9, size=(2, 1)), rng.random(1) < 0.5
    expected = by_definition(pixels[0], "crop_flip", top[0], left[0], flip[0], 4)
    np.testing.assert_allclose(batch.x[0].numpy(), expected, rtol=0, atol=1e-13)


def test_equal_generators_draw_equal_surrogate_batches():
    some = numbered(200, "crop_flip")
    one, same, other = (
        Surrogate(some, 20, np.random.default_rng(seed)).draw().y.tolist() for seed in (0, 0, 1)
    )
    assert one == same != other


def test_the_whole_surrogate_set_comes_in_order_and_plain():
    batches = list(Surrogate(numbered(250, "crop_flip"), 10, np.random.default_rng(0)).plain())
    assert [number for batch in batches for number in numbers(batch.x)] == list(range(250))


# --- features, tokens and images in floats


def dataset(x, layout=None):
    y = np.arange(len(x)) % 2
    given = {"x_train": x, "y_train": y, "x_test": x[:2], "y_test": y[:2]}
    return from_arrays(given, "own", Treatment(layout))


def test_features_are_standardised_column_by_column():  # 1 3: mean 2, deviation 1; 5 5: only 0
    some = examples(dataset(np.array([[1.0, 5.0], [3.0, 5.0]])), "train", "none", DOUBLE)
    batch = Batches(some, torch.tensor([1, 0, 1])).batch(0)
    assert batch.x.tolist() == [[1.0, 0.0], [-1.0, 0.0], [1.0, 0.0]]
    assert (batch.x.dtype, batch.y.tolist()) == (torch.float64, [1, 0, 1])
    assert some.take(torch.tensor([0])).tolist() == [[-1.0, 0.0]]  # taking changes nothing


@pytest.mark.parametrize("sort", [np.int32, np.int64])
def test_tokens_stay_whole_numbers(sort):
    tokens = np.array([[4, 0, 9], [1, 2, 3]], sort)
    some = examples(dataset(tokens), "test", "none", DOUBLE)
    (batch,) = Batches(some, torch.arange(2)).plain()
    assert (batch.x.tolist(), batch.x.dtype) == (tokens.tolist(), torch.int64)


def test_float_images_are_standardised_and_have_their_channels_first():
    x = np.array([1.0, 3.0]).repeat(75).reshape(2, 5, 5, 3)
    batch = Batches(examples(dataset(x), "train", "none", DOUBLE), torch.arange(2)).batch(0)
    assert batch.x.shape == (2, 3, 5, 5)
    assert (batch.x[0] == -1).all()
    assert (batch.x[1] == 1).all()


@pytest.mark.parametrize("augment", ["flip_crop", "crop", "crop_flip"])
def test_float_images_are_augmented_as_bytes_are(augment):
    pixels = random_pixels(6, (8, 8, 3))
    same = (0.0,) * 3, (1 / 255,) * 3  # v / 255 / (1 / 255) = v
    one = images(pixels, np.arange(6), same, augment, DOUBLE)
    plain = (0.0,) * 3, (1.0,) * 3
    other = images(pixels.astype(np.float32), np.arange(6), plain, augment, DOUBLE)
    index, draws = torch.arange(6), one.draw(np.random.default_rng(0), 6)
    torch.testing.assert_close(one.take(index, draws), other.take(index, draws))


def test_shuffled_features_come_once_an_epoch_without_draws():
    some = examples(dataset(np.arange(10.0)[:, None]), "train", "none", DOUBLE)
    rng, untouched = np.random.default_rng(0), np.random.default_rng(1)
    batches = [*Batches(some, torch.arange(10), 4, rng, untouched).shuffled(2)]
    assert [len(batch.y) for batch in batches] == [4, 4, 2] * 2
    seen = torch.cat([batch.x for batch in batches[:3]]).flatten()
    assert seen.sort().values.tolist() == some.take(torch.arange(10)).flatten().tolist()
    assert untouched.random() == np.random.default_rng(1).random()


def test_only_images_are_augmented():
    with pytest.raises(UserError, match="augment crop is for images, the data set holds features"):
        examples(dataset(np.zeros((2, 3))), "train", "crop", DOUBLE)
