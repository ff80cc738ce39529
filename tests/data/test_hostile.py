"""Data that is damaged, or made to do harm: refused in one line, and never read in part."""

import importlib.util
import io
import json
import os
import struct
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from fedgps_ray.data import datasets, hugging_face, leaf, memory, npz, own, pictures
from fedgps_ray.data.arrays import from_arrays
from fedgps_ray.errors import UserError
from fedgps_ray.models import parse_model
from fedgps_ray.rounds.setup import Ready, prepare
from fedgps_ray.spec import trial_spec

_spec = importlib.util.spec_from_file_location("formats", Path(__file__).parent / "formats.py")
formats = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(formats)

ROWS = pa.table({"x": [[1.0, 2.0], [3.0, 4.0]] * 5, "label": ["a", "b"] * 5})


def read_arrow(folder):
    return from_arrays(hugging_face.read(folder, hugging_face.Columns(), None, "test"), "own")


def write_arrow(folder, train, test=None):
    for name, table in (("train", train), ("test", test or train)):
        (folder / name).mkdir(parents=True)
        file = str(folder / name / "data.arrow")
        with pa.OSFile(file, "wb") as sink, pa.ipc.new_stream(sink, table.schema) as out:
            out.write_table(table)
    return folder


def told(text):
    return ROWS.replace_schema_metadata({"huggingface": text})


# --- LEAF ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["cache-b.json", ".b.json"])
def test_leaf_reads_the_files_that_make_up_its_content(tmp_path, name):
    folder = formats.write_leaf(tmp_path, formats.tabular().tolist())
    sha256, number = own.content_sha256(folder), len(leaf.read(folder)["x_train"])
    (folder / "train" / name).write_bytes((folder / "train" / "a.json").read_bytes())
    assert own.content_sha256(folder) == sha256
    assert len(leaf.read(folder)["x_train"]) == number


@pytest.mark.timeout(20)
def test_a_pipe_among_the_data_is_not_waited_for(tmp_path):
    folder = formats.write_leaf(tmp_path / "leaf", formats.tabular().tolist())
    os.mkfifo(folder / "test" / "b.json")
    assert len(leaf.read(folder)["x_test"]) == 6
    arrays = formats.write_arrays(tmp_path / "arrays", formats.tabular())
    os.mkfifo(arrays / "classes.npy")
    assert "classes" not in npz.read_folder(arrays)


@pytest.mark.parametrize("y", ["[[1], [2, 3]]", f"[{'1' * 5000}, 0]", "[{}, [0, [1]]]"])
def test_leaf_refuses_labels_that_are_none(tmp_path, y):
    for part in ("train", "test"):
        (tmp_path / part).mkdir()
        text = f'{{"users": ["u"], "user_data": {{"u": {{"x": [[1], [2]], "y": {y}}}}}}}'
        (tmp_path / part / "a.json").write_text(text)
    with pytest.raises(UserError):
        from_arrays(leaf.read(tmp_path), "own")


# --- Hugging Face --------------------------------------------------------------------------------


def test_arrow_files_with_text_that_is_none_are_refused(tmp_path):
    offsets = pa.py_buffer(np.arange(11, dtype="i4"))
    words = pa.StringArray.from_buffers(10, offsets, pa.py_buffer(b"\xff" * 10))
    with pytest.raises(UserError, match="cannot be read as Arrow files"):
        read_arrow(write_arrow(tmp_path, ROWS.set_column(1, "label", words)))


def test_arrow_files_with_offsets_beyond_their_end_are_refused(tmp_path):
    file = write_arrow(tmp_path, ROWS) / "train" / "data.arrow"
    offsets = np.arange(11, dtype="i4")
    wrong = np.where(offsets < 5, offsets, 2**28 + offsets).astype("i4")
    assert offsets.tobytes() in file.read_bytes()
    file.write_bytes(file.read_bytes().replace(offsets.tobytes(), wrong.tobytes()))
    with pytest.raises(UserError, match="cannot be read as Arrow files"):
        read_arrow(tmp_path)


@pytest.mark.parametrize("text", [b"\xff", b"1" * 5000, b"[" * 100_000, b"null"])
def test_notes_of_hugging_face_that_are_none_do_not_matter(tmp_path, text):
    assert read_arrow(write_arrow(tmp_path, told(text))).num_classes == 2


@pytest.mark.parametrize("names", [[["a"], ["b", "c"]], 5, {"a": 1}])
def test_names_of_classes_have_to_be_names(tmp_path, names):
    features = {"label": {"_type": "ClassLabel", "names": names}}
    note = json.dumps({"info": {"features": features}}).encode()
    with pytest.raises(UserError, match="not a list of names"):
        read_arrow(write_arrow(tmp_path, told(note)))


def test_two_columns_of_one_name_are_refused(tmp_path):
    twice = pa.table([ROWS["x"], ROWS["label"], ROWS["label"]], names=["x", "label", "label"])
    with pytest.raises(UserError, match="several columns of the name label"):
        read_arrow(write_arrow(tmp_path, twice))


def test_a_test_split_without_a_column_is_refused(tmp_path):
    with pytest.raises(UserError, match="test has no column 'x'; it has z"):
        read_arrow(write_arrow(tmp_path, ROWS, pa.table({"z": [1]})))


# --- arrays --------------------------------------------------------------------------------------


def header(text):
    """Return an array file with a header of one's own."""
    line = text.encode("latin1") + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(line)) + line


@pytest.mark.parametrize(
    "text",
    [
        "{'descr': '|S0', 'fortran_order': False, 'shape': (1000000000, 4), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (",
        "{'descr': ('<f4',), 'fortran_order': False, 'shape': (1,), }",
        "{'descr': [], 'fortran_order': False, 'shape': (1,), }",
        "{'descr': {}, 'fortran_order': False, 'shape': (1,), }",
    ],
)
def test_arrays_with_a_wrong_header_are_refused(tmp_path, text):
    path = formats.write_npz(tmp_path / "own.npz", formats.tabular())
    content = {name: np.load(path)[name] for name in ("y_train", "x_test", "y_test")}
    with zipfile.ZipFile(tmp_path / "bad.npz", "w") as archive:
        archive.writestr("x_train.npy", header(text))
        for name, array in content.items():
            stream = io.BytesIO()
            np.save(stream, array)
            archive.writestr(f"{name}.npy", stream.getvalue())
    with pytest.raises(UserError, match="x_train cannot be read"):
        npz.read(tmp_path / "bad.npz")


@pytest.mark.parametrize("point", [0xFFFFFFFF, 0xD800])
@pytest.mark.parametrize("key", ["y_train", "classes", "client_train"])
def test_words_that_are_no_text_are_refused(key, point):
    codes = struct.pack("<24I", *[point, 97, 98] * 8)
    words = np.frombuffer(codes, "<U1")
    with pytest.raises(UserError, match=f"{key} cannot be read"):
        from_arrays(formats.arrays(formats.tabular(), **{key: words}), "own")


def test_bytes_that_are_no_text_are_refused():
    words = np.array([b"\xff", b"a", b"b"] * 8)
    with pytest.raises(UserError, match="y_train cannot be read"):
        from_arrays(formats.arrays(formats.tabular(), y_train=words), "own")


# --- images --------------------------------------------------------------------------------------


def test_images_that_cannot_fit_are_refused_after_the_first(tmp_path, monkeypatch):
    folder = formats.write_pictures(tmp_path, formats.pixels())
    decoded, seen = pictures.decoded, []
    monkeypatch.setattr(memory, "free_bytes", lambda: 1000)
    monkeypatch.setattr(pictures, "decoded", lambda *a: (seen.append(a), decoded(*a))[1])
    with pytest.raises(UserError, match="memory free"):
        pictures.read_folder(folder, None, "test")
    assert len(seen) == 1


def test_only_usual_formats_of_images_are_read():
    script = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\n"
    with pytest.raises(UserError, match="cannot be read as an image: cannot identify"):
        pictures.decoded(script, "a.png", None)


def test_a_class_whose_name_is_no_text_is_refused(tmp_path):
    folder = formats.write_pictures(tmp_path, formats.pixels())
    os.rename(folder / "train" / "class 0", os.fsencode(folder / "train") + b"/\xff")
    with pytest.raises(UserError, match="not valid UTF-8"):
        own.content_sha256(folder)


# --- models --------------------------------------------------------------------------------------


def test_a_model_that_cannot_fit_is_refused(monkeypatch):
    setup = prepare(trial_spec(model="mlp", clients=2), datasets.NO_SOURCE)
    monkeypatch.setattr(memory, "free_bytes", lambda: 10_000)
    with pytest.raises(UserError, match="the model for inputs of this size"):
        Ready(setup)


def test_options_of_a_model_are_a_table():
    with pytest.raises(UserError, match="options: must be a table, got 1"):
        parse_model({"name": "mlp", "options": 1})


@pytest.mark.parametrize("place", ["user", "x"])
def test_leaf_makes_no_array_in_which_all_texts_take_as_much_as_one_long_one(
    tmp_path, monkeypatch, place
):
    monkeypatch.setattr(memory, "free_bytes", lambda: 10**8)
    long = "u" * 10**5  # four bytes a letter, a thousand times
    x = [long, *["b"] * 999] if place == "x" else [[1, 2]] * 1000
    own = {long if place == "user" else "u": {"x": x, "y": [0, 1] * 500}}
    for part in ("train", "test"):
        (tmp_path / part).mkdir()
        content = {"users": list(own), "user_data": own}
        (tmp_path / part / "a.json").write_text(json.dumps(content))
    message = "memory free" if place == "user" else "texts have different lengths"
    tracemalloc.start()
    try:
        with pytest.raises(UserError, match=message):
            leaf.read(tmp_path)
        assert tracemalloc.get_traced_memory()[1] < 10**8
    finally:
        tracemalloc.stop()
