import re
from statistics import NormalDist

import numpy as np
import pytest
from pydantic import ValidationError

from fedgps_ray import seeds
from fedgps_ray.data.surrogate import LabelledFile, Noise, file_images, noise_images
from fedgps_ray.errors import UserError

NORMAL = NormalDist()


def refused(words):
    return pytest.raises(UserError, match=re.escape(words))


def latents(how, label, size, channels):
    """Draw a class's small images as the recipe says: a mean, then noise around it."""
    rng = seeds.stream(how.seed, "surrogate images", client=label)
    shape = (channels, how.latent_hw, how.latent_hw)
    mean = rng.standard_normal(shape, np.float32)
    return mean + how.noise_std * rng.standard_normal((size, *shape), np.float32)


def bilinear(small, large):
    """Return the weights of small places in each of large ones: half-pixel centres, no corners."""
    place = np.clip((np.arange(large) + 0.5) * small / large - 0.5, 0, small - 1)
    lower = np.minimum(place.astype(int), small - 2)
    weights = np.zeros((large, small))
    weights[np.arange(large), lower] = 1 - (place - lower)
    weights[np.arange(large), lower + 1] = place - lower
    return weights


def to_bytes(values):
    """Times 255, plus 0.5, clamped, truncated: -0.3 -> 0, 0.5 -> 128, 1.2 -> 255."""
    return np.clip(values * 255 + 0.5, 0, 255).astype(np.uint8)


# --- noise


@pytest.fixture(scope="module")
def samples():
    """4000 images, of so many classes that chance in the class means hardly counts."""
    pixels, _ = noise_images(Noise(per_class=4), 1000, (32, 32, 3))
    return pixels


def test_statistics_are_those_of_the_recipe(samples):
    # Recorded from 4000 samples of ten classes, whose means are chance:
    # 10 * 192 latent numbers leave a deviation of 0.36 / sqrt(1920) = 0.008
    values = samples / 255
    assert values.mean() == pytest.approx(0.276, abs=0.015)
    assert values.std() == pytest.approx(0.362, abs=0.015)
    assert (samples == 0).mean() == pytest.approx(0.49, abs=0.015)
    assert (samples == 255).mean() == pytest.approx(0.10, abs=0.015)


def test_statistics_are_those_of_a_clipped_normal(samples):
    # A pixel is normal, of variance s^2 = (1 + 0.5^2) times the sum of its squared weights, and
    # clipped to [0, 1]; its mean is the integral s (phi(0) - phi(1/s)), plus P(Z > 1/s)
    squares = (bilinear(8, 32) ** 2).sum(1)
    deviations = np.sqrt(1.25 * np.outer(squares, squares)).ravel()
    means = [s * (NORMAL.pdf(0) - NORMAL.pdf(1 / s)) + NORMAL.cdf(-1 / s) for s in deviations]
    zeros = [NORMAL.cdf(0.5 / 255 / s) for s in deviations]
    ones = [NORMAL.cdf(-254.5 / 255 / s) for s in deviations]
    assert (samples / 255).mean() == pytest.approx(np.mean(means), abs=0.004)
    assert (samples == 0).mean() == pytest.approx(np.mean(zeros), abs=0.006)
    assert (samples == 255).mean() == pytest.approx(np.mean(ones), abs=0.003)


def test_images_as_small_as_the_latents_are_their_bytes():
    how = Noise(per_class=6, seed=3)
    pixels, labels = noise_images(how, 2, (8, 8, 1))
    assert (pixels.shape, pixels.dtype) == ((12, 8, 8, 1), np.uint8)
    for label in (0, 1):
        expected = to_bytes(latents(how, label, 6, channels=1)).transpose(0, 2, 3, 1)
        assert np.array_equal(pixels[labels == label], expected)


@pytest.mark.parametrize("shape", [(32, 32, 3), (8, 12, 2)])
def test_latents_are_enlarged_bilinearly(shape):
    height, width, channels = shape
    how = Noise(per_class=5, latent_hw=4, noise_std=0.2)
    pixels, labels = noise_images(how, 3, shape)
    small = latents(how, 2, 5, channels)
    large = bilinear(4, height) @ small @ bilinear(4, width).T
    difference = pixels[labels == 2].astype(int) - to_bytes(large).transpose(0, 2, 3, 1)
    assert abs(difference).max() <= 1  # the last bit of a float32 may cross a whole number
    assert (difference != 0).mean() < 0.001


def test_labels_are_in_order_and_as_many_as_asked_for():
    pixels, labels = noise_images(Noise(per_class=3), 4, (8, 8, 1))
    assert labels.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]
    assert labels.dtype == np.int64
    assert len(pixels) == 12
    assert pixels.flags.c_contiguous


@pytest.mark.parametrize(("num_classes", "per_class"), [(10, 5000), (100, 500), (7, 7142)])
def test_without_a_number_there_are_fifty_thousand_images(num_classes, per_class):
    _, labels = noise_images(Noise(latent_hw=1), num_classes, (1, 1, 1))
    assert np.bincount(labels).tolist() == [per_class] * num_classes


def test_images_are_a_function_of_the_seed():
    one, same, other = (
        noise_images(Noise(per_class=2, seed=seed), 3, (8, 8, 3))[0] for seed in (0, 0, 1)
    )
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)


def test_a_class_does_not_depend_on_how_many_others_there_are():
    few, many = (noise_images(Noise(per_class=2), count, (8, 8, 3))[0] for count in (2, 5))
    assert np.array_equal(few, many[:4])


def test_without_noise_a_class_is_its_mean():
    pixels, labels = noise_images(Noise(per_class=3, noise_std=0), 4, (8, 8, 3))
    classes = [np.unique(pixels[labels == label], axis=0) for label in range(4)]
    assert [len(alike) for alike in classes] == [1, 1, 1, 1]
    assert len(np.unique(np.concatenate(classes), axis=0)) == 4


def test_noise_spreads_images_around_the_mean_of_their_class():
    # Pixels well inside (0, 1) are mean + 0.05 * N(0, 1): deviation 0.05 within a class
    pixels, labels = noise_images(Noise(per_class=400, noise_std=0.05), 3, (8, 8, 3))
    for label in range(3):
        values = pixels[labels == label] / 255
        inside = abs(values.mean(0) - 0.5) < 0.25  # five deviations from either end
        assert values.std(0)[inside].mean() == pytest.approx(0.05, rel=0.03)


@pytest.mark.parametrize(
    "settings",
    [{"per_class": 0}, {"latent_hw": 0}, {"noise_std": -0.1}, {"batch_size": 0}, {"sead": 1}],
)
def test_settings_out_of_range_are_refused(settings):
    with pytest.raises(ValidationError, match=next(iter(settings))):
        Noise(**settings)


def test_kinds_are_told_apart():
    assert (Noise().kind, LabelledFile().kind) == ("noise", "file")
    assert (Noise().batch_size, LabelledFile().batch_size) == (128, 128)


# --- from a file


IMAGES = np.arange(3 * 4 * 5 * 2, dtype=np.uint8).reshape(3, 4, 5, 2)
LABELS = np.array([2, 0, 1])


def written(folder, **arrays):
    path = folder / "noise.npz"
    np.savez(path, **arrays)
    return str(path)


def test_a_labelled_file_is_read(tmp_path):
    path = written(tmp_path, x=np.asfortranarray(IMAGES), y=LABELS.astype(np.uint8), more=LABELS)
    x, y = file_images(path, 3, (4, 5, 2))
    assert np.array_equal(x, IMAGES)
    assert x.flags.c_contiguous
    assert (y.tolist(), y.dtype) == ([2, 0, 1], np.int64)


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"x": IMAGES}, " has no array 'y'; it has: x"),
        ({"y": LABELS}, " has no array 'x'; it has: y"),
        (
            {"x": IMAGES / 255, "y": LABELS},
            ": x has type float64 and shape (3, 4, 5, 2), expected uint8 and"
            " (number, 4, 5, 2), the images of the data set",
        ),
        (
            {"x": IMAGES.transpose(0, 3, 1, 2), "y": LABELS},
            ": x has type uint8 and shape (3, 2, 4, 5), expected uint8 and (number, 4, 5, 2)",
        ),
        (
            {"x": IMAGES[:0], "y": LABELS[:0]},
            ": x has shape (0, 4, 5, 2), expected at least one image",
        ),
        ({"x": IMAGES, "y": LABELS / 2}, ": y has type float64, expected whole numbers"),
        (
            {"x": IMAGES, "y": LABELS[:2]},
            ": y has shape (2,), expected (3,): one label for each example of x",
        ),
        ({"x": IMAGES, "y": LABELS[:, None]}, ": y has shape (3, 1), expected (3,)"),
        ({"x": IMAGES, "y": LABELS - 1}, ": y has the label -1, expected 0 and above"),
        (
            {"x": IMAGES, "y": LABELS + 1},
            ": y has the label 3, expected 0 to 2 (the classes of the data set)",
        ),
        (
            {"x": IMAGES, "y": np.array([None, 1, 2], object)},
            ": y cannot be read, expected a plain array: it holds Python objects",
        ),
    ],
)
def test_what_is_wrong_with_a_file_is_said(tmp_path, arrays, words):
    path = written(tmp_path, **arrays)
    with refused(path + words):
        file_images(path, 3, (4, 5, 2))


def test_a_file_that_is_absent_or_no_archive_is_refused(tmp_path):
    path = tmp_path / "noise.npz"
    with refused(f"cannot read {path}: No such file or directory"):
        file_images(str(path), 3, (4, 5, 2))
    for content in (b"", b"not arrays", b"PK\x03\x04"):
        path.write_bytes(content)
        with refused(f"{path} is not an .npz file: expected named arrays, as numpy.savez writes"):
            file_images(str(path), 3, (4, 5, 2))
