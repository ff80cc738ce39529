"""The study's images are found again in any copy of CIFAR."""

from pathlib import Path

import numpy as np
import pytest

from fedgps_ray.data import npz
from fedgps_ray.errors import UserError
from fedgps_ray.experiments.evidence.images import listed, pick, prefixes, smaller

DATA = Path(__file__).parents[3] / "shared" / "data"


def contents(number=6, seed=0):
    rng = np.random.default_rng(seed)
    images = rng.integers(0, 256, (2 * number, 4, 4, 3), dtype=np.uint8)
    labels = rng.integers(0, 3, 2 * number)
    train = {"x_train": images[:number], "y_train": labels[:number]}
    return train | {"x_test": images[number:], "y_test": labels[number:], "classes": list("abc")}


def test_a_hash_is_the_start_of_sha256():
    # printf '\0\0\0' | sha256sum begins with 709e80c88487a241
    assert prefixes(np.zeros((1, 1, 1, 3), np.uint8)).tolist() == [0x709E80C88487A241]


def test_listed_images_come_in_the_order_of_the_list():
    source = contents()
    train, test = prefixes(source["x_train"]), prefixes(source["x_test"])
    picked = pick(source, {"train": train[[4, 1]], "test": test[[3]]})
    assert (picked["x_train"] == source["x_train"][[4, 1]]).all()
    assert picked["y_train"].tolist() == source["y_train"][[4, 1]].tolist()
    assert (picked["x_test"] == source["x_test"][[3]]).all()


def test_missing_images_are_counted():
    wanted = {"train": prefixes(contents(seed=1)["x_train"]), "test": np.array([], np.uint64)}
    with pytest.raises(UserError, match="6 of the study's 6 train images"):
        pick(contents(), wanted)


def test_a_smaller_image_holds_the_means_of_blocks():
    # (0 + 1 + 2 + 3) / 4 = 1.5, rounded up to 2; (10 + 10 + 10 + 11) / 4 = 10.25 to 10
    image = np.array([[0, 1, 10, 10], [2, 3, 10, 11], [8] * 4, [8] * 4], np.uint8)
    assert smaller(image[None, :, :, None], 2)[0, :, :, 0].tolist() == [[2, 10], [8, 8]]
    with pytest.raises(UserError, match="--side 3"):
        smaller(image[None, :, :, None], 3)


@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
def test_the_real_images_are_found_in_a_shuffled_copy(name):
    path = DATA / f"{name}_small.npz"
    if not path.exists():
        pytest.skip("needs the small CIFAR files")
    original = npz.read(path)
    order = np.random.default_rng(0).permutation(len(original["y_train"]))
    shuffled = {
        **original,
        "x_train": original["x_train"][order],
        "y_train": original["y_train"][order],
    }
    picked = pick(shuffled, listed(name))
    assert (picked["x_train"] == original["x_train"]).all()
    assert (picked["y_train"] == original["y_train"]).all()
    assert (picked["x_test"] == original["x_test"]).all()
