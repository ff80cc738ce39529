"""Data sets of torchvision.datasets, in their formats on disk."""

import bz2
import re
import struct

import numpy as np
import pytest

from fedgps_ray.data.datasets import Emnist, Named, Source, load, parse
from fedgps_ray.errors import UserError


def write_idx(path, array):
    """Write the format of MNIST: type, number of axes and extents, big endian, then the values."""
    code = {"uint8": 8, "int32": 12}[array.dtype.name]
    path.parent.mkdir(parents=True, exist_ok=True)
    head = struct.pack(f">HBB{array.ndim}I", 0, code, array.ndim, *array.shape)
    path.write_bytes(head + array.astype(array.dtype.newbyteorder(">")).tobytes())


def write_mnist(folder, prefix="{}", shift=0):
    """Write three training and two test images, whose pixels are all 10 times their label."""
    for part, labels in (("train", [1, 0, 2]), ("t10k", [2, 1])):
        numbers = np.array(labels, np.uint8)
        images = np.broadcast_to(10 * numbers[:, None, None], (len(labels), 28, 28))
        write_idx(folder / f"{prefix.format(part)}-images-idx3-ubyte", images)
        write_idx(folder / f"{prefix.format(part)}-labels-idx1-ubyte", numbers + shift)


def check(data, num_classes):
    assert (data.x_train.shape, data.x_test.shape) == ((3, 28, 28, 1), (2, 28, 28, 1))
    assert (data.x_train.dtype, data.y_train.dtype) == (np.uint8, np.int64)
    assert data.x_train[:, 5, 7, 0].tolist() == [10, 0, 20]
    assert (data.y_train.tolist(), data.y_test.tolist()) == ([1, 0, 2], [2, 1])
    assert (data.num_classes, len(data.class_names)) == (num_classes, num_classes)
    assert (data.kind, data.augment, data.input_shape) == ("images", "none", (1, 28, 28))
    assert data.mean == pytest.approx((10 / 255,))


@pytest.mark.parametrize(
    ("name", "title"),
    [("mnist", "MNIST"), ("fashion_mnist", "FashionMNIST"), ("kmnist", "KMNIST")],
)
def test_mnist_and_its_like_are_read(tmp_path, name, title):
    write_mnist(tmp_path / title / "raw")
    check(load(Named(name), Source(tmp_path)), 10)
    check(load(parse(f"torchvision.datasets:{title}"), Source(tmp_path)), 10)


def test_fashion_mnist_has_names(tmp_path):
    write_mnist(tmp_path / "FashionMNIST" / "raw")
    assert load(Named("fashion_mnist"), Source(tmp_path)).class_names[9] == "Ankle boot"


@pytest.mark.parametrize(
    ("split", "shift", "classes"),
    [("balanced", 0, 47), ("byclass", 0, 62), ("letters", 1, 26), ("digits", 0, 10)],
)
def test_emnist_is_read_by_its_split(tmp_path, split, shift, classes):
    write_mnist(tmp_path / "EMNIST" / "raw", f"emnist-{split}-{{}}", shift)
    resources = tmp_path / "EMNIST" / "raw"
    for name in resources.glob("*t10k*"):
        name.rename(name.with_name(name.name.replace("t10k", "test")))
    check(load(Emnist(split=split), Source(tmp_path)), classes)


def test_the_first_letter_of_emnist_is_a(tmp_path):
    test_emnist_is_read_by_its_split(tmp_path, "letters", 1, 26)
    data = load(Emnist(split="letters"), Source(tmp_path))
    assert (data.class_names[0], data.class_names[25]) == ("a", "z")


def test_qmnist_is_read_by_the_first_of_its_labels(tmp_path):
    for part, labels in (("train", [1, 0, 2]), ("test", [2, 1])):
        numbers = np.array(labels)
        images = np.broadcast_to(10 * numbers[:, None, None], (len(labels), 28, 28))
        raw = tmp_path / "QMNIST" / "raw"
        write_idx(raw / f"qmnist-{part}-images-idx3-ubyte", images.astype(np.uint8))
        rest = np.full((len(labels), 7), 77)
        table = np.concatenate([numbers[:, None], rest], axis=1).astype(np.int32)
        write_idx(raw / f"qmnist-{part}-labels-idx2-int", table)
    check(load(Named("qmnist"), Source(tmp_path)), 10)


def test_usps_is_read(tmp_path):
    def line(label, value):
        return f"{label} " + " ".join(f"{place}:{value}" for place in range(1, 257)) + "\n"

    (tmp_path / "usps.bz2").write_bytes(bz2.compress((line(1, -1) + line(10, 1)).encode()))
    (tmp_path / "usps.t.bz2").write_bytes(bz2.compress(line(10, 0).encode()))
    data = load(Named("usps"), Source(tmp_path))
    assert (data.x_train.shape, data.x_test.shape) == ((2, 16, 16, 1), (1, 16, 16, 1))
    assert data.x_train[:, 3, 4, 0].tolist() == [0, 255]
    assert (data.y_train.tolist(), data.y_test.tolist()) == ([0, 9], [9])
    assert data.num_classes == 10


def test_stl10_is_read_with_its_axes(tmp_path, monkeypatch):
    from torchvision.datasets import STL10

    monkeypatch.setattr(STL10, "_check_integrity", lambda self: True)
    folder = tmp_path / STL10.base_folder
    folder.mkdir()
    for part, labels in (("train", [1, 10]), ("test", [3])):
        pixels = np.zeros((len(labels), 3, 96, 96), np.uint8)  # channel, column, row
        pixels[:, 1, 4, 2] = range(1, len(labels) + 1)
        (folder / f"{part}_X.bin").write_bytes(pixels.tobytes())
        (folder / f"{part}_y.bin").write_bytes(np.array(labels, np.uint8).tobytes())
    (folder / "fold_indices.txt").write_text("0 1\n")
    data = load(Named("stl10"), Source(tmp_path))
    assert (data.x_train.shape, data.x_test.shape) == ((2, 96, 96, 3), (1, 96, 96, 3))
    assert data.x_train[:, 2, 4, 1].tolist() == [1, 2]
    assert (data.y_train.tolist(), data.y_test.tolist()) == ([0, 9], [2])
    assert data.num_classes == 10


@pytest.mark.parametrize(
    ("spec", "title"),
    [
        (Named("mnist"), "MNIST"),
        (Named("qmnist"), "QMNIST"),
        (Named("usps"), "USPS"),
        (Named("stl10"), "STL10"),
        (Emnist(), "EMNIST"),
    ],
)
def test_a_missing_data_set_says_both_ways_to_get_it(tmp_path, spec, title):
    folder = tmp_path / "absent"
    words = f"no intact copy of {title} in {folder}; download it with --download, or put "
    with pytest.raises(UserError, match=re.escape(words)):
        load(spec, Source(folder))
    assert not folder.exists()


@pytest.mark.parametrize("content", [b"", b"\0\0\x08", b"\0\0\x08\x03" + b"\1" * 12, b"\1" * 40])
def test_a_damaged_file_is_refused(tmp_path, content):
    write_mnist(tmp_path / "MNIST" / "raw")
    (tmp_path / "MNIST" / "raw" / "train-images-idx3-ubyte").write_bytes(content)
    with pytest.raises(UserError, match=r"MNIST in .*(cannot be read|fetched)"):
        load(Named("mnist"), Source(tmp_path))
