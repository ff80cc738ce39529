"""A user's own data in every format: recognised, known by its content, read, trained on."""

import importlib.util
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from torch import nn

from fedgps_ray import models
from fedgps_ray.data import datasets, own
from fedgps_ray.data.hugging_face import Columns
from fedgps_ray.data.hugging_face import read as read_hugging_face
from fedgps_ray.errors import UserError
from fedgps_ray.experiment import load as load_experiment
from fedgps_ray.experiment import resolve
from fedgps_ray.models import Architecture, Model
from fedgps_ray.rounds.trial import run_trial
from fedgps_ray.spec import execution_spec

_spec = importlib.util.spec_from_file_location("formats", Path(__file__).parent / "formats.py")
formats = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(formats)

TRAIN, TEST = formats.LABELS[:24], formats.LABELS[24:]


def refused(words):
    return pytest.raises(UserError, match=re.escape(words))


def read(path, **options):
    table = datasets.own_table(path)
    source = datasets.Source(files={table["sha256"]: str(path)})
    return datasets.load(datasets.parse(table | options), source)


def same_clients(data):
    assert data.client_names == tuple(f"writer {number}" for number in range(5))
    return data.client_train.tolist() == [number % 5 for number in range(24)]


# --- each format, recognised and read


def test_an_npz_file(tmp_path):
    path = formats.write_npz(tmp_path / "own.npz", formats.tabular())
    data = read(path)
    assert own.format_of(path) == "npz"
    assert np.array_equal(data.x_train, formats.tabular()[:24].astype(np.float32))
    assert same_clients(data)


def test_a_folder_of_arrays(tmp_path):
    path = formats.write_arrays(tmp_path / "own", formats.tokens(), classes=np.array(list("abc")))
    data = read(path)
    assert own.format_of(path) == "arrays"
    assert np.array_equal(data.x_test, formats.tokens()[24:])
    assert np.shares_memory(data.x_train, data.x_train.base)
    assert (data.kind, data.class_names) == ("tokens", ("a", "b", "c"))
    assert same_clients(data)


@pytest.mark.parametrize("channels", [1, 3])
def test_a_folder_of_images(tmp_path, channels):
    x = formats.pixels(channels=channels)
    path = formats.write_pictures(tmp_path / "own", x)
    order = np.argsort(TRAIN, kind="stable")  # class by class
    data = read(path)
    assert own.format_of(path) == "image_folder"
    assert np.array_equal(data.x_train, x[:24][order])
    assert data.y_train.tolist() == TRAIN[order].tolist()
    assert data.class_names == ("class 0", "class 1", "class 2")
    assert (data.kind, data.x_train.dtype) == ("images", np.uint8)


def test_images_are_scaled_on_request_only(tmp_path):
    path = formats.write_pictures(tmp_path / "own", formats.pixels())
    (path / "train" / "class 0" / "large.png").write_bytes(
        formats.png(np.full((20, 10, 3), 200, np.uint8))
    )
    with refused("large.png has 20x10 pixels, "):
        read(path)
    data = read(path, size=4)
    assert data.x_train.shape == (25, 4, 4, 3)  # one has colours, so all have three channels
    assert data.x_test.shape == (6, 4, 4, 3)
    assert (data.x_train[8] == 200).all()


def test_another_folder_of_test_images_can_be_named(tmp_path):
    path = formats.write_pictures(tmp_path / "own", formats.pixels(), test="val")
    with refused("has no images in test/<class>/; the option test names another folder"):
        read(path)
    assert len(read(path, test="val").x_test) == 6


def test_bad_images_are_refused(tmp_path):
    path = formats.write_pictures(tmp_path / "own", formats.pixels())
    (path / "test" / "class 9").mkdir()
    (path / "test" / "class 9" / "1.png").write_bytes(formats.png(formats.pixels()[0]))
    with refused("1.png is of class 'class 9', which train/ does not have"):
        read(path)
    shutil.rmtree(path / "test" / "class 9")
    (path / "test" / "class 1" / "1.png").write_bytes(b"no image")
    with refused("1.png cannot be read as an image"):
        read(path)


@pytest.mark.parametrize("pieces", [1, 3])
def test_images_of_hugging_face(tmp_path, pieces):
    x = formats.pixels(channels=3)
    columns, features = formats.picture_columns(x)
    path = formats.write_hugging_face(tmp_path / "own", columns, features, pieces=pieces)
    data = read(path)
    assert own.format_of(path) == "hugging_face"
    assert np.array_equal(data.x_train, x[:24])
    assert (data.y_train.tolist(), data.y_test.tolist()) == (TRAIN.tolist(), TEST.tolist())
    assert data.class_names == ("one", "two", "three")
    assert same_clients(data)


def test_a_table_of_hugging_face(tmp_path):
    x = formats.tabular()
    columns = {name: x[:, place] for place, name in enumerate(["a", "b", "c", "d"])}
    words = [["cat", "dog", "eel"][label] for label in formats.LABELS]
    columns |= {"label": pa.array(words), "speaker": pa.array(formats.CLIENTS)}
    path = formats.write_hugging_face(tmp_path / "own", columns)
    with refused("add the option x, the column of the examples: it has a, b, c, d, label, speaker"):
        read(path)
    data = read(path, client="speaker")
    assert np.array_equal(data.x_train, x[:24].astype(np.float32))
    assert (data.y_test.tolist(), data.class_names) == (TEST.tolist(), ("cat", "dog", "eel"))
    assert same_clients(data)
    two = read(path, x="d, b")
    assert np.array_equal(two.x_test, x[24:, [3, 1]].astype(np.float32))
    assert two.client_train is None


@pytest.mark.parametrize("kind", [pa.list_(pa.int32()), pa.large_list(pa.int64()), "fixed"])
def test_tokens_of_hugging_face(tmp_path, kind):
    kind = pa.list_(pa.int32(), 6) if kind == "fixed" else kind
    columns = {"input_ids": pa.array(formats.tokens().tolist(), kind), "y": formats.LABELS}
    path = formats.write_hugging_face(tmp_path / "own", columns, test="validation")
    with refused("has no split 'test'; it has: train, validation; the option test names"):
        read(path)
    data = read(path, test="validation")
    assert np.array_equal(data.x_train, formats.tokens()[:24])
    assert data.kind == "tokens"


def test_nested_lists_of_hugging_face_become_images(tmp_path):
    x = formats.pixels()[..., 0]
    columns = {"x": pa.array(x.tolist(), pa.list_(pa.list_(pa.uint8()))), "y": formats.LABELS}
    data = read(formats.write_hugging_face(tmp_path / "own", columns))
    assert np.array_equal(data.x_train, x[:24, ..., None])


@pytest.mark.parametrize(
    ("columns", "given", "words"),
    [
        (
            {"x": [[1, 2], [1]] * 15},
            Columns(),
            "column x has lists of 1 to 2 entries, expected one",
        ),
        ({"x": ["text"] * 30}, Columns(), "column x has type string, expected numbers, lists"),
        ({"x": [[1, 2], None] * 15}, Columns(), "column x has 12 empty entries"),
        ({"x": [[[1], None]] * 30}, Columns(), "column x has 24 empty entries"),
        ({"x": [{"path": "a.png"}] * 30}, Columns(), "x 0 holds no image but ['path']"),
        ({"x": [1] * 30}, Columns(y="lable"), "unknown column 'lable'. Did you mean 'label'?"),
        ({"x": [1] * 30}, Columns(x="z"), "unknown column 'z'"),
        ({"x": [1] * 30, "y": [1] * 30}, Columns(), "add the option y, the column of the labels"),
        ({"x": [1] * 30, "label": [[1]] * 30}, Columns(x="x"), "column label has type list<"),
    ],
)
def test_what_is_wrong_with_columns_is_said(tmp_path, columns, given, words):
    path = formats.write_hugging_face(
        tmp_path / "own", {"label": pa.array(formats.LABELS)} | columns
    )
    with refused(words):
        read_hugging_face(path, given, None, "test")


def test_a_damaged_arrow_file_is_refused(tmp_path):
    path = formats.write_hugging_face(
        tmp_path / "own", {"x": formats.tabular()[:, 0], "y": formats.LABELS}
    )
    file = path / "train" / "data-00000-of-00001.arrow"
    for content in (b"", b"no arrow", file.read_bytes()[:300]):
        file.write_bytes(content)
        with refused(f"{path / 'train'} cannot be read as Arrow files"):
            read(path)


def test_users_of_leaf(tmp_path):
    x = formats.tabular()
    path = formats.write_leaf(tmp_path / "own", x.tolist())
    data = read(path)
    assert own.format_of(path) == "leaf"
    stored = [f"writer {number % 5}" for number in range(24)]
    order = [*sorted(range(12), key=lambda n: n % 5), *sorted(range(12, 24), key=stored_at)]
    assert np.array_equal(data.x_train, x[order].astype(np.float32))
    assert data.y_train.tolist() == TRAIN[order].tolist()
    assert [data.client_names[k] for k in data.client_train] == [stored[place] for place in order]
    assert len(data.x_test) == 6


def stored_at(place):
    """Users are stored in the order of their first example, which is 12, of writer 2."""
    return (place - 12) % 5


def test_flat_images_of_leaf_can_be_given_their_shape(tmp_path):
    flat = (formats.pixels() / 255).reshape(30, 64)
    path = formats.write_leaf(tmp_path / "own", flat.tolist())
    data = read(path, shape="8x8", layout="hw")
    assert (data.kind, data.input_shape) == ("images", (1, 8, 8))


def test_texts_of_leaf_become_the_numbers_of_their_letters(tmp_path):
    texts = ["".join("abcdefghi"[token] for token in row) for row in formats.tokens()]
    path = formats.write_leaf(tmp_path / "own", texts, [*"xyz" * 10])
    data = read(path)
    assert data.kind == "tokens"
    found = {tuple(row) for row in data.x_train.tolist()}
    assert found == {tuple(row) for row in formats.tokens()[:24].tolist()}
    assert data.class_names == ("x", "y", "z")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "cannot be read as JSON"),
        ("[" * 100_000, "cannot be read as JSON"),
        ("{}", "is not in LEAF's format: no 'users'"),
        ("[]", "is not in LEAF's format"),
        ('{"users": ["a"], "user_data": {}}', "is not in LEAF's format: no 'a'"),
        (
            '{"users": ["a"], "user_data": {"a": {"x": [1], "y": []}}}',
            "x and y of user 'a' are not lists of equal length",
        ),
        ('{"users": [], "user_data": {}}', "has no example"),
        ('{"users": ["a"], "user_data": {"a": {"x": [[1], [1, 2]], "y": [0, 0]}}}', "lengths"),
        ('{"users": ["a"], "user_data": {"a": {"x": ["ab", "c"], "y": [0, 0]}}}', "lengths"),
    ],
)
def test_what_is_wrong_with_leaf_is_said(tmp_path, content, words):
    path = formats.write_leaf(tmp_path / "own", formats.tabular().tolist())
    (path / "train" / "b.json").unlink()
    (path / "train" / "a.json").write_text(content)
    with refused(words):
        read(path)


# --- recognition and identity


def test_a_folder_of_no_known_format_is_refused(tmp_path):
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "note.txt").write_text("hello")
    with refused(f"{tmp_path} is a folder of no known format: expected x_train.npy and so on;"):
        datasets.own_table(tmp_path)
    with refused("note.txt is not an .npz file or a folder"):
        datasets.own_table(tmp_path / "train" / "note.txt")
    with refused(f"no file or folder {tmp_path / 'absent'}"):
        datasets.own_table(tmp_path / "absent")


def test_a_folder_is_known_by_its_content_and_not_by_its_place(tmp_path):
    path = formats.write_arrays(tmp_path / "own", formats.tabular())
    known = datasets.own_table(path)
    (path / "notes.txt").write_text("not read")
    shutil.copytree(path, tmp_path / "elsewhere" / "own")
    assert datasets.own_table(tmp_path / "elsewhere" / "own") == known
    np.save(path / "x_test.npy", formats.tabular()[24:] + 1)
    changed = datasets.own_table(path)
    assert changed["sha256"] != known["sha256"]
    spec, files = datasets.parse(known), {known["sha256"]: str(path)}
    with refused(f"{path} is not the folder the trial was made with"):
        datasets.load(spec, datasets.Source(files=files))


def test_a_renamed_file_in_a_folder_changes_what_it_is(tmp_path):
    path = formats.write_pictures(tmp_path / "own", formats.pixels())
    known = datasets.own_table(path)
    file = path / "train" / "class 0" / "00.png"
    file.rename(path / "train" / "class 1" / "00.png")
    assert datasets.own_table(path)["sha256"] != known["sha256"]


def test_what_hugging_face_keeps_beside_the_data_does_not_count(tmp_path):
    columns = {"x": formats.tabular()[:, 0], "y": formats.LABELS}
    path = formats.write_hugging_face(tmp_path / "own", columns)
    known = datasets.own_table(path)
    (path / "train" / "cache-1.arrow").write_bytes(b"left by map()")
    (path / "train" / "state.json").write_text(json.dumps({"_fingerprint": "1"}))
    assert datasets.own_table(path) == known
    assert len(read(path).x_train) == 24


# --- from settings to a trained model


class Words(nn.Module):
    """The mean of the embeddings of all tokens."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(9, 8)

    def forward(self, x):
        assert x.dtype == torch.int64
        return self.inner(nn.functional.one_hot(x, 9).to(self.inner.weight).mean(1)).relu()


def run(folder, **values):
    settings = {"method": "fedavg", "rounds": 2, "clients": 3, "sampling_rate": 1.0, **values}
    spec, files = resolve(settings)
    execution = execution_spec(out=folder / "runs", actors=0, files=files)
    *_, last = run_trial(spec, execution)
    return spec, last


def write(kind, folder):
    if kind == "npz":
        return formats.write_npz(folder / "own.npz", formats.tabular())
    if kind == "arrays":
        return formats.write_arrays(folder / "own", formats.pixels() / 255)
    if kind == "image_folder":
        return formats.write_pictures(folder / "own", formats.pixels())
    if kind == "hugging_face":
        return formats.write_hugging_face(
            folder / "own", *formats.picture_columns(formats.pixels())
        )
    return formats.write_leaf(folder / "own", formats.tabular().tolist())


KINDS = ["npz", "arrays", "image_folder", "hugging_face", "leaf"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_format_trains_by_its_path_alone(tmp_path, kind):
    path = write(kind, tmp_path)
    spec, last = run(tmp_path, dataset=str(path), model="mlp", partition="iid")
    assert (spec.dataset.name, spec.dataset.file) == (kind, path.name)
    assert last["round"] == 2
    assert np.isfinite(last["loss"])


@pytest.mark.parametrize("kind", sorted(set(KINDS) - {"image_folder"}))
def test_every_format_with_clients_of_its_own_is_shared_out_by_them(tmp_path, kind):
    path = write(kind, tmp_path)
    spec, last = run(
        tmp_path, dataset=str(path), model="mlp", partition="natural", clients=5, sampling_rate=0.6
    )
    assert (spec.partition.kind, last["round"]) == ("natural", 2)


def test_a_path_may_stand_in_place_of_a_name_or_beside_it(tmp_path):
    path = formats.write_npz(tmp_path / "own.npz", formats.pixels()[:, None, :, :, 0])
    short, _ = resolve({"dataset": {"name": str(path), "layout": "chw"}})
    long, files = resolve({"dataset": {"name": "npz", "file": str(path), "layout": "chw"}})
    again, _ = resolve({"dataset": {"name": "npz", "file": "own.npz", "layout": "chw"}}, tmp_path)
    assert short == long == again
    assert list(files.values()) == [str(path)]
    assert short.trial_id != resolve({"dataset": str(path)})[0].trial_id


def test_a_folder_may_be_named_without_a_slash(tmp_path, monkeypatch):
    formats.write_leaf(tmp_path / "users", formats.tabular().tolist())
    monkeypatch.chdir(tmp_path)
    assert resolve({"dataset": "users"})[0].dataset.name == "leaf"
    with refused("unknown data set 'usres'"):
        resolve({"dataset": "usres"})


def test_paths_in_an_experiment_file_start_from_it_and_those_of_set_from_here(
    tmp_path, monkeypatch
):
    (tmp_path / "study").mkdir()
    formats.write_leaf(tmp_path / "study" / "users", formats.tabular().tolist())
    formats.write_arrays(tmp_path / "here", formats.tabular())
    formats.write_npz(tmp_path / "flat.npz", formats.pixels().reshape(30, 64))
    file = tmp_path / "study" / "own.toml"
    file.write_text('[base]\nmethod = "fedavg"\npartition = "iid"\ndataset = "users"\n')
    monkeypatch.chdir(tmp_path)
    shaped = 'dataset={"name": "flat.npz", "layout": "hw", "shape": "8x8"}'
    for settings, name in (([], "leaf"), (["dataset=here"], "arrays"), ([shaped], "npz")):
        experiment = load_experiment(file, settings)
        (cell,) = experiment.cells
        assert cell.spec.dataset.name == name
        source = datasets.Source(files=experiment.files)
        assert len(datasets.load(cell.spec.dataset, source).x_train) == 24


def test_tokens_train_with_a_model_that_takes_them(tmp_path, monkeypatch):
    path = formats.write_npz(tmp_path / "own.npz", formats.tokens())
    with refused("model 'mlp' takes numbers, and the data set holds tokens: use a model of your"):
        run(tmp_path, dataset=str(path), model="mlp", partition="iid")
    made = Architecture(lambda shape, outputs: Model(Words(), 8, outputs), 1, "words")
    monkeypatch.setitem(models.MODELS, "words", made)
    monkeypatch.setattr("fedgps_ray.rounds.setup.check_takes_tokens", lambda name: None)
    monkeypatch.setattr("fedgps_ray.rounds.setup.build", lambda name, *rest, **_: made.make(*rest))
    settings = {"rounds": 30, "batch_size": 4, "optimizer": {"lr": 0.5}}
    _, last = run(tmp_path, dataset=str(path), model="words", partition="iid", **settings)
    assert last["accuracy"] == 1.0


def test_tables_are_learned(tmp_path):
    path = formats.write_npz(tmp_path / "own.npz", 1000 + 500 * formats.tabular())
    settings = {"rounds": 10, "batch_size": 4, "optimizer": {"lr": 0.1}}
    _, last = run(tmp_path, dataset=str(path), model="mlp", partition="iid", **settings)
    assert last["accuracy"] == 1.0


@pytest.mark.parametrize("method", ["fedgps", "vhl"])
def test_a_surrogate_set_is_for_images(tmp_path, method):
    path = formats.write_npz(tmp_path / "own.npz", formats.tabular())
    words = "the method needs a surrogate set, which exists for images only, and the data set"
    with refused(words):
        run(tmp_path, dataset=str(path), model="mlp", partition="iid", method=method)
    images = formats.write_npz(tmp_path / "images.npz", formats.pixels() / 255)
    noise = {"kind": "noise", "per_class": 5}
    options = {"partition": "iid", "method": method, "surrogate": noise}
    _, last = run(tmp_path, dataset=str(images), model="mlp", **options)
    assert np.isfinite(last["loss"])


def test_models_and_augmentation_for_images_say_so(tmp_path):
    path = formats.write_npz(tmp_path / "own.npz", formats.tabular())
    with refused("model 'cnn' needs images, the data set has examples of shape 4; choose an"):
        run(tmp_path, dataset=str(path), model="cnn", partition="iid")
    with refused("augment crop is for images, the data set holds features"):
        run(tmp_path, dataset=str(path), model="mlp", partition="iid", augment="crop")
