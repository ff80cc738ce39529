import re
import zipfile

import numpy as np
import pytest
from numpy.lib import format as npy

from fedgps_ray.data import memory
from fedgps_ray.data.npz import named_arrays, read, read_folder
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


def as_folder(folder, **changes):
    for key, value in arrays(**changes).items():
        np.save(folder / f"{key}.npy", value)
    return folder


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_arrays_come_out_as_they_were_stored(tmp_path, save):
    stored = arrays(x_train=np.asfortranarray(arrays()["x_train"]), classes=np.array(["a", "b"]))
    save(tmp_path / "own.npz", other=np.zeros(3), **stored)
    for key, value in (found := read(tmp_path / "own.npz")).items():
        assert np.array_equal(value, stored[key])
        assert value.dtype == stored[key].dtype
    assert set(found) == set(stored)


def test_optional_arrays_may_be_absent_and_others_are_left_alone(tmp_path):
    path = written(tmp_path)
    found = named_arrays(path, ("y_test",), optional=("classes", "y_train"))
    assert {key: value.tolist() for key, value in found.items()} == {
        "y_test": [2, 1],
        "y_train": [0, 1, 2, 0],
    }


def test_a_missing_array_is_named(tmp_path):
    with refused("has no array 'y_test'; it has: x_train, y_train, x_test"):
        read(written(tmp_path, y_test=None))


def test_python_objects_are_refused(tmp_path):
    path = written(tmp_path, x_train=np.array([None, 1], object))
    with refused(f"{path}: x_train cannot be read, expected a plain array: it holds Python"):
        read(path)


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


def test_a_member_that_is_no_array_is_refused(tmp_path):
    path = written(tmp_path, x_train=None)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("x_train.npy", "no array")
    with refused(f"{path}: x_train cannot be read, expected a plain array"):
        read(path)


# --- claims that would exhaust the memory


def claim(stream, shape):
    npy.write_array_header_1_0(stream, {"descr": "|u1", "fortran_order": False, "shape": shape})


def test_a_header_that_claims_a_terabyte_is_refused(tmp_path):
    path = written(tmp_path, x_train=None)
    with zipfile.ZipFile(path, "a") as archive, archive.open("x_train.npy", "w") as stream:
        claim(stream, (10**6, 1000, 1000))
        stream.write(b"\0" * 100)
    with refused(f"{path}: x_train cannot be read, expected a plain array: it claims 1,000,000,0"):
        read(path)


def test_a_compressed_bomb_is_refused_before_it_is_unpacked(tmp_path, monkeypatch):
    path = tmp_path / "own.npz"
    np.savez_compressed(path, **arrays(x_train=np.zeros((4, 1000, 1000), np.uint8)))
    assert path.stat().st_size < 10_000
    monkeypatch.setattr(memory, "free_bytes", lambda: 4_000_000)
    monkeypatch.setattr(npy, "read_array", lambda *_, **__: pytest.fail("was unpacked"))
    with refused(f"{path}: its arrays take 0.0 GB, this machine has 0.0 GB of memory free"):
        read(path)


def test_free_memory_is_that_of_the_machine_or_of_the_container(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(memory, "CONTAINER_LIMIT", tmp_path / "max")
    assert memory.free_bytes() > 10**8  # all the machine has
    (tmp_path / "meminfo").write_text("MemTotal: 9 kB\nMemAvailable: 3 kB\n")
    (tmp_path / "max").write_text("max\n")
    assert memory.free_bytes() == 3 * 1024
    (tmp_path / "max").write_text("2000\n")
    assert memory.free_bytes() == 2000
    memory.check_room("own", 1600)
    with refused("own: its arrays take"):
        memory.check_room("own", 1601)


# --- folders of .npy files


def test_a_folder_of_arrays_is_mapped_into_memory(tmp_path):
    found = read_folder(as_folder(tmp_path, client_train=np.array(["b", "a", "a", "b"])))
    assert {key: value.tolist() for key, value in found.items()} == {
        key: value.tolist() for key, value in arrays(client_train=found["client_train"]).items()
    }
    assert isinstance(found["x_train"].base, np.memmap)
    assert not found["x_train"].flags.writeable


def test_what_is_wrong_with_a_folder_is_said(tmp_path):
    as_folder(tmp_path)
    np.save(tmp_path / "x_test.npy", np.array([None]), allow_pickle=True)
    with refused(f"{tmp_path}: x_test cannot be read, expected a plain array: it holds Python"):
        read_folder(tmp_path)
    with (tmp_path / "x_test.npy").open("wb") as stream:
        claim(stream, (10**12,))
    with refused(f"{tmp_path}: x_test cannot be read, expected a plain array: it claims 1,000,000"):
        read_folder(tmp_path)
    (tmp_path / "x_test.npy").unlink()
    with refused(f"{tmp_path} has no array 'x_test'; it has: x_train, y_test, y_train"):
        read_folder(tmp_path)
