import hashlib
import pickle
import re
import subprocess
import sys
import tarfile
from typing import Annotated
from urllib.error import URLError

import numpy as np
import pytest
from pydantic import Field, TypeAdapter, ValidationError

from fedgps_ray.data.arrays import colours
from fedgps_ray.data.datasets import (
    DATASETS,
    DatasetSpec,
    Emnist,
    HuggingFace,
    ImageFolder,
    Leaf,
    Named,
    Npz,
    Source,
    Synthetic,
    load,
    locate,
    npz_spec,
    parse,
)
from fedgps_ray.data.specs import OwnData
from fedgps_ray.errors import UserError

SHA = "0" * 64


def refused(words):
    return pytest.raises(UserError, match=re.escape(words))


def nearest_mean_accuracy(data):
    train, test = (x.reshape(len(x), -1).astype(float) for x in (data.x_train, data.x_test))
    means = np.stack([train[data.y_train == c].mean(0) for c in range(data.num_classes)])
    scores = test @ means.T - (means**2).sum(1) / 2  # highest where the distance is lowest
    return (scores.argmax(1) == data.y_test).mean()


# --- specs


def test_names_and_tables_become_specs():
    assert parse("digits") == Named("digits")
    assert parse("synthetic") == Synthetic()
    assert parse({"name": "synthetic", "num_classes": 20}) == Synthetic(num_classes=20)
    assert parse({"name": "npz", "file": "a.npz", "sha256": "0" * 64}) == Npz("a.npz", "0" * 64)
    assert parse(Named("svhn")) == Named("svhn")
    assert parse("torchvision.datasets:FashionMNIST") == Named("fashion_mnist")
    assert parse({"name": "torchvision.datasets:EMNIST", "split": "letters"}) == Emnist(
        split="letters"
    )


def test_every_listed_name_can_be_parsed_and_is_explained():
    own = {"npz", "arrays", "leaf", "image_folder", "hugging_face"}
    for name in set(DATASETS) - own:
        assert parse(name).name == name
    for name in own:
        assert parse({"name": name, "file": "mine", "sha256": "0" * 64}).name == name
    assert all(line and "\n" not in line for line in DATASETS.values())


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("digit", "unknown data set 'digit'. Did you mean 'digits'? Known: digits, synthetic,"),
        ("npz", "data set 'npz' is given by its path, such as my_data.npz or my_folder/"),
        ("leaf", "data set 'leaf' is given by its path, such as my_data.npz or my_folder/"),
        (
            "torchvision.datasets:Fashion",
            "unknown class of torchvision.datasets that can be read 'Fashion'."
            " Did you mean 'FashionMNIST'?",
        ),
        (
            {"name": "emnist", "split": "all"},
            "data set 'emnist': split: Input should be 'balanced'",
        ),
        (
            {"name": "npz", "file": "a.npz", "sha256": "0" * 64, "layout": "whc"},
            "data set 'npz': layout: Input should be 'hw', 'hwc', 'chw', 'features' or 'tokens'",
        ),
        (
            {"name": "npz", "file": "a.npz", "sha256": "0" * 64, "shape": "28,28"},
            "data set 'npz': shape: String should match pattern",
        ),
        (3, "a data set is a name, or a table with a name and settings; got 3"),
        ({"seed": 1}, "a data set is a name, or a table with a name and settings; got {'seed': 1}"),
        ({"name": "digits", "seed": 1}, "unknown digits setting 'seed'. Known: name"),
        (
            {"name": "synthetic", "num_clases": 3},
            "unknown synthetic setting 'num_clases'. Did you mean 'num_classes'?",
        ),
        (
            {"name": "synthetic", "num_classes": 1},
            "data set 'synthetic': num_classes: Input should be greater than or equal to 2, got 1",
        ),
        (
            {"name": "synthetic", "train_size": 3},
            "data set 'synthetic': train_size 3 is below num_classes 10",
        ),
        ({"name": "npz", "file": "a.npz"}, "data set 'npz': sha256 is missing"),
        ({"name": "npz", "file": "a.npz", "sha256": "12"}, "sha256: String should match"),
    ],
)
def test_what_is_wrong_with_a_spec_is_said(value, words):
    with refused(words):
        parse(value)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("image_size", 3),
        ("channels", 0),
        ("test_size", 0),
        ("noise", -0.1),
        ("noise", float("nan")),
        ("seed", -1),
    ],
)
def test_synthetic_settings_out_of_range_are_refused(field, value):
    with pytest.raises(ValidationError, match=field):
        Synthetic(**{field: value})


def test_specs_are_told_apart_by_name_and_survive_json():
    adapter = TypeAdapter(
        Annotated[Named | Emnist | Synthetic | OwnData, Field(discriminator="name")]
    )
    specs = [
        Named("digits"),
        Emnist(split="letters"),
        Synthetic(seed=3),
        Npz("a.npz", SHA),
        Npz("a.npz", SHA, layout="chw", shape="3x8x8"),
        Leaf("folder", SHA, standardise=False),
        HuggingFace("folder", SHA, x="a, b", client="writer"),
        ImageFolder("folder", SHA, size=32),
    ]
    for spec in specs:
        assert adapter.validate_json(adapter.dump_json(spec)) == spec


def test_options_that_are_not_used_are_not_part_of_a_spec():
    adapter = TypeAdapter(DatasetSpec)
    assert adapter.dump_python(Npz("a.npz", SHA)) == {
        "name": "npz",
        "file": "a.npz",
        "sha256": SHA,
    }
    assert adapter.dump_python(ImageFolder("a", SHA, size=8))["size"] == 8


def test_a_spec_without_a_reader_is_an_error():
    class Unheard:
        name = "unheard"

    with pytest.raises(AssertionError, match="Unheard"):
        load(Unheard())
    named = Named("svhn")
    object.__setattr__(named, "name", "unheard")
    with pytest.raises(AssertionError, match="unheard"):
        load(named)


def test_importing_the_module_loads_no_heavy_library():
    code = (
        "import sys, fedgps_ray.data.datasets;"
        "sys.exit(any(m in sys.modules for m in ('torch', 'torchvision', 'sklearn', 'scipy')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# --- colours


def test_mean_and_deviation_by_hand():
    images = np.array([[0, 51], [255, 51], [0, 51], [255, 51]], np.uint8).reshape(1, 2, 2, 2)
    mean, std = colours(images)
    assert mean == (0.5, 0.2)
    assert std == (0.5, 1.0)  # a channel of one value is only centred


def test_mean_and_deviation_over_many_images():
    images = np.random.default_rng(0).integers(0, 256, (2500, 3, 4, 2), dtype=np.uint8)
    mean, std = colours(images)
    assert mean == pytest.approx((images / 255).mean((0, 1, 2)), rel=1e-12)
    assert std == pytest.approx((images / 255).std((0, 1, 2)), rel=1e-12)


# --- digits


@pytest.fixture(scope="module")
def digits():
    return load(Named("digits"))


def test_digits_are_all_there(digits):
    assert (digits.x_train.shape, digits.x_test.shape) == ((1437, 8, 8, 1), (360, 8, 8, 1))
    assert digits.x_train.dtype == digits.x_test.dtype == np.uint8
    assert digits.y_train.dtype == digits.y_test.dtype == np.int64
    assert digits.x_train.flags.c_contiguous
    assert digits.class_names == tuple("0123456789")
    assert (digits.num_classes, digits.augment) == (10, "none")


def test_digits_are_those_of_scikit_learn_stretched_to_bytes(digits):
    bunch = pytest.importorskip("sklearn.datasets").load_digits()
    expected = np.rint(bunch.images * 255 / 16).astype(np.uint8)  # 1 -> 16, 15 -> 239, 16 -> 255
    theirs = {(x.tobytes(), y) for x, y in zip(expected, bunch.target, strict=True)}
    images = np.concatenate([digits.x_train, digits.x_test])
    labels = np.concatenate([digits.y_train, digits.y_test])
    assert {(x.tobytes(), y) for x, y in zip(images, labels, strict=True)} == theirs


def test_digits_are_the_same_bits_as_ever(digits):
    sha256 = hashlib.sha256(b"".join(array.tobytes() for array in digits[:4])).hexdigest()
    assert sha256 == "5cc7d399dc36b950fac9d6ab630d4892d70f487f2f2617e5e48204074721e4c1"
    assert (digits.mean, digits.std) == ((0.30485778514606954,), (0.37586958845546775,))


def test_digits_are_split_evenly_and_always_alike(digits):
    counts = np.bincount(digits.y_train), np.bincount(digits.y_test)
    shares = counts[1] / (counts[0] + counts[1])
    assert (abs(shares - 0.2) < 0.01).all()
    again = load(Named("digits"))
    assert np.array_equal(digits.x_test, again.x_test)
    assert np.array_equal(digits.y_train, again.y_train)


def test_no_digit_is_in_both_parts(digits):
    train, test = ({x.tobytes() for x in part} for part in (digits.x_train, digits.x_test))
    assert len(train | test) == len(train) + len(test) == 1797


# --- synthetic


def test_synthetic_images_have_the_shape_asked_for():
    data = load(Synthetic(num_classes=3, image_size=9, channels=2, train_size=31, test_size=7))
    assert (data.x_train.shape, data.x_test.shape) == ((31, 9, 9, 2), (7, 9, 9, 2))
    assert (data.x_train.dtype, data.y_train.dtype) == (np.uint8, np.int64)
    assert data.x_train.flags.c_contiguous
    assert sorted(np.bincount(data.y_train)) == [10, 10, 11]
    assert data.class_names == ("0", "1", "2")
    assert (len(data.mean), len(data.std), data.augment) == (2, 2, "none")


def test_synthetic_images_are_a_function_of_the_spec():
    spec = Synthetic(train_size=50, test_size=20)
    state = np.random.get_state()[1].copy()
    one, same, other = load(spec), load(spec), load(Synthetic(train_size=50, test_size=20, seed=1))
    assert np.array_equal(one.x_train, same.x_train)
    assert not np.array_equal(one.x_train, other.x_train)
    assert not np.array_equal(one.x_train[:20], one.x_test)
    assert np.array_equal(np.random.get_state()[1], state)


def test_more_synthetic_test_images_leave_the_training_images_alone():
    few, many = (load(Synthetic(train_size=50, test_size=size)) for size in (10, 3000))
    assert np.array_equal(few.x_train, many.x_train)
    assert len(many.x_test) == 3000


def test_synthetic_classes_can_be_learned_but_not_perfectly():
    assert 0.8 < nearest_mean_accuracy(load(Synthetic())) < 0.99
    assert 0.3 < nearest_mean_accuracy(load(Synthetic(noise=1.0))) < 0.8
    assert nearest_mean_accuracy(load(Synthetic(noise=0.0))) == 1.0


# --- CIFAR and SVHN, in their formats on disk


def md5(path):
    return hashlib.md5(path.read_bytes()).hexdigest()


def cifar_pixels(number, first):
    """Images whose red, green and blue are first, first + 1 and first + 2."""
    row = np.repeat(np.arange(first, first + 3, dtype=np.uint8), 1024)
    return np.tile(row, (number, 1))


def write_pickles(folder, entries):
    folder.mkdir(parents=True)
    for name, entry in entries.items():
        (folder / name).write_bytes(pickle.dumps(entry))
    return [[name, md5(folder / name)] for name in entries]


@pytest.fixture
def cifar10(tmp_path, monkeypatch):
    from torchvision.datasets import CIFAR10

    batches = {
        f"data_batch_{i}": {"data": cifar_pixels(2, 10 * i), "labels": [i, 9]} for i in range(1, 6)
    }
    rest = {
        "test_batch": {"data": cifar_pixels(3, 100), "labels": [0, 1, 2]},
        "batches.meta": {"label_names": [f"class {i}" for i in range(10)]},
    }
    sums = write_pickles(tmp_path / CIFAR10.base_folder, {**batches, **rest})
    monkeypatch.setattr(CIFAR10, "train_list", sums[:5])
    monkeypatch.setattr(CIFAR10, "test_list", sums[5:6])
    monkeypatch.setattr(CIFAR10, "meta", {**CIFAR10.meta, "md5": sums[6][1]})
    return tmp_path


def check_cifar10(data):
    assert (data.x_train.shape, data.x_test.shape) == ((10, 32, 32, 3), (3, 32, 32, 3))
    assert data.x_train[3, 5, 7].tolist() == [20, 21, 22]
    assert data.y_train.tolist() == [1, 9, 2, 9, 3, 9, 4, 9, 5, 9]
    assert data.y_test.tolist() == [0, 1, 2]


def test_cifar10_is_read(cifar10):
    data = load(Named("cifar10"), Source(cifar10))
    check_cifar10(data)
    assert data.x_train.flags.c_contiguous
    assert (data.x_train.dtype, data.y_train.dtype) == (np.uint8, np.int64)
    assert (data.num_classes, data.class_names[9]) == (10, "class 9")
    assert data.mean == (0.4914, 0.4822, 0.4465)
    assert data.std == (0.2023, 0.1994, 0.2010)
    assert data.augment == "flip_crop"


def test_cifar10_is_read_from_its_archive(cifar10, tmp_path_factory, monkeypatch):
    from torchvision.datasets import CIFAR10

    folder = tmp_path_factory.mktemp("archive")
    with tarfile.open(folder / "cifar-10-python.tar.gz", "w:gz") as tar:
        tar.add(cifar10 / CIFAR10.base_folder, CIFAR10.base_folder)
    with refused(f"no intact copy of CIFAR10 in {folder}"):
        load(Named("cifar10"), Source(folder))  # the checksum is not the original's
    monkeypatch.setattr(CIFAR10, "tgz_md5", md5(folder / "cifar-10-python.tar.gz"))
    check_cifar10(load(Named("cifar10"), Source(folder)))


def test_an_altered_cifar10_is_refused(cifar10):
    altered = cifar10 / "cifar-10-batches-py" / "data_batch_3"
    altered.write_bytes(altered.read_bytes() + b" ")
    with refused(f"no intact copy of CIFAR10 in {cifar10}"):
        load(Named("cifar10"), Source(cifar10))


def test_cifar100_is_read_by_its_fine_labels(tmp_path, monkeypatch):
    from torchvision.datasets import CIFAR100

    entries = {
        "train": {"data": cifar_pixels(2, 5), "fine_labels": [99, 0], "coarse_labels": [1, 2]},
        "test": {"data": cifar_pixels(1, 8), "fine_labels": [42], "coarse_labels": [3]},
        "meta": {"fine_label_names": [f"fine {i}" for i in range(100)]},
    }
    train, test, meta = write_pickles(tmp_path / CIFAR100.base_folder, entries)
    monkeypatch.setattr(CIFAR100, "train_list", [train])
    monkeypatch.setattr(CIFAR100, "test_list", [test])
    monkeypatch.setattr(CIFAR100, "meta", {**CIFAR100.meta, "md5": meta[1]})
    data = load(Named("cifar100"), Source(tmp_path))
    assert (data.y_train.tolist(), data.y_test.tolist()) == ([99, 0], [42])
    assert data.x_test[0, 31, 0].tolist() == [8, 9, 10]
    assert (data.num_classes, data.class_names[42]) == (100, "fine 42")
    assert data.mean == (0.5071, 0.4865, 0.4409)
    assert data.std == (0.2673, 0.2564, 0.2762)
    assert data.augment == "flip_crop"


def write_svhn(path, labels):
    from scipy.io import savemat

    pixels = np.zeros((32, 32, 3, len(labels)), np.uint8)
    pixels[2, 4, 1] = range(1, len(labels) + 1)  # row 2, column 4, green
    savemat(path, {"X": pixels, "y": np.array(labels, np.uint8)[:, None]})
    return md5(path)


def test_svhn_is_read_with_its_axes_and_its_zero(tmp_path, monkeypatch):
    from torchvision.datasets import SVHN

    sums = {
        "train": write_svhn(tmp_path / "train_32x32.mat", [1, 10, 9]),
        "test": write_svhn(tmp_path / "test_32x32.mat", [10, 2]),
    }
    listed = {part: ["", f"{part}_32x32.mat", md5] for part, md5 in sums.items()}
    monkeypatch.setattr(SVHN, "split_list", listed)
    data = load(Named("svhn"), Source(tmp_path))
    assert (data.x_train.shape, data.x_test.shape) == ((3, 32, 32, 3), (2, 32, 32, 3))
    assert data.x_train[:, 2, 4, 1].tolist() == [1, 2, 3]
    assert data.x_train.flags.c_contiguous
    assert (data.y_train.tolist(), data.y_test.tolist()) == ([1, 0, 9], [0, 2])
    assert data.y_train.dtype == np.int64
    assert (data.num_classes, data.class_names) == (10, tuple("0123456789"))
    assert data.mean == (0.4377, 0.4438, 0.4728)
    assert data.std == (0.1980, 0.2010, 0.1970)
    assert data.augment == "crop"


@pytest.mark.parametrize(
    ("name", "title", "files"),
    [
        ("cifar10", "CIFAR10", "cifar-10-python.tar.gz"),
        ("cifar100", "CIFAR100", "cifar-100-python.tar.gz"),
        ("svhn", "SVHN", "train_32x32.mat and test_32x32.mat"),
    ],
)
def test_a_missing_data_set_says_both_ways_to_get_it(tmp_path, name, title, files):
    folder = tmp_path / "absent"
    words = (
        f"no intact copy of {title} in {folder}; download it with --download, or put {files} there"
    )
    with refused(words):
        load(Named(name), Source(folder))
    assert not folder.exists()


def test_without_a_folder_the_cache_of_the_user_is_searched(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    with refused(f"no intact copy of SVHN in {tmp_path}/.cache/fedgps-ray/data;"):
        load(Named("svhn"))


def test_a_failed_download_gives_its_reason(tmp_path, monkeypatch):
    def offline(*args, **kwargs):
        raise URLError("no network")

    monkeypatch.setattr("urllib.request.urlopen", offline)
    with refused(f"cannot get SVHN into {tmp_path}: <urlopen error no network>"):
        load(Named("svhn"), Source(tmp_path, download=True))


# --- a user's own file


@pytest.fixture
def own_file(tmp_path):
    images = np.arange(6 * 4 * 5 * 3, dtype=np.uint8).reshape(6, 4, 5, 3)
    path = tmp_path / "own.npz"
    np.savez(
        path,
        x_train=images[:4],
        y_train=np.array([0, 1, 2, 0]),
        x_test=images[4:],
        y_test=np.array([2, 1]),
    )
    return path


def source_of(path):
    return Source(files={npz_spec(path).sha256: str(path)})


def test_a_file_is_known_by_its_content(own_file):
    expected = hashlib.sha256(own_file.read_bytes()).hexdigest()
    assert npz_spec(own_file) == Npz(file="own.npz", sha256=expected, name="npz")


def test_a_file_is_loaded_with_its_own_colours(own_file):
    data = load(npz_spec(own_file), source_of(own_file))
    assert (data.x_train.shape, data.x_test.shape) == ((4, 4, 5, 3), (2, 4, 5, 3))
    assert (data.y_train.tolist(), data.y_test.tolist()) == ([0, 1, 2, 0], [2, 1])
    assert (data.num_classes, data.class_names) == (3, ("0", "1", "2"))
    assert (data.mean, data.std) == colours(data.x_train)
    assert data.augment == "none"


def test_a_missing_file_is_answered_with_its_neighbours(own_file):
    folder = own_file.parent
    with refused(f"no file {folder}/onw.npz; .npz files in {folder}: own.npz"):
        npz_spec(folder / "onw.npz")
    with refused(f"no file {folder}/absent/own.npz; .npz files in {folder}/absent: none"):
        npz_spec(folder / "absent" / "own.npz")


def test_a_file_is_located_by_its_content(own_file):
    sha256 = npz_spec(own_file).sha256
    assert locate("any name", sha256, source_of(own_file)) == own_file


def test_a_file_that_moved_or_changed_is_refused(own_file):
    spec, source = npz_spec(own_file), source_of(own_file)
    with refused(f"nothing says where own.npz (sha256 {spec.sha256[:12]}) is; give its path"):
        load(spec)
    own_file.write_bytes(own_file.read_bytes() + b" ")
    with refused(f"expected sha256 {spec.sha256[:12]}, found {npz_spec(own_file).sha256[:12]};"):
        load(spec, source)
    own_file.unlink()
    with refused(f"own.npz is no longer at {own_file}; put it back, or give its new path"):
        load(spec, source)
