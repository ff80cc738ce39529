"""Small data sets in every format that users bring, written as their tools write them."""

import io
import json

import numpy as np
import pyarrow as pa
from PIL import Image

LABELS = np.arange(30) % 3
CLIENTS = np.array([f"writer {number}" for number in np.arange(30) % 5])


def tabular(size=30):
    """Return rows of four numbers that tell the classes apart."""
    rng = np.random.default_rng(0)
    return rng.normal(LABELS[:size, None], 0.3, (size, 4))


def tokens(size=30):
    """Return rows of six tokens, of which three tell the class."""
    drawn = np.random.default_rng(0).integers(3, 9, (size, 6))
    drawn[:, :3] = LABELS[:size, None]
    return drawn


def pixels(size=30, channels=1):
    """Return images whose brightness tells the class."""
    drawn = np.random.default_rng(0).integers(60, size=(size, 8, 8, channels))
    return (drawn + 60 * LABELS[:size, None, None, None]).astype(np.uint8)


def arrays(x, **others):
    """Return the first 24 examples for training, the rest for tests."""
    named = {
        "x_train": x[:24],
        "y_train": LABELS[:24],
        "x_test": x[24:],
        "y_test": LABELS[24:],
        "client_train": CLIENTS[:24],
    }
    return {**named, **others}


def write_npz(path, x, **others):
    """Write an .npz file."""
    np.savez(path, **arrays(x, **others))
    return path


def write_arrays(folder, x, **others):
    """Write a folder of .npy files."""
    folder.mkdir()
    for key, value in arrays(x, **others).items():
        np.save(folder / f"{key}.npy", value)
    return folder


def png(image):
    """Return the bytes of a PNG file."""
    stream = io.BytesIO()
    Image.fromarray(image.squeeze()).save(stream, "PNG")
    return stream.getvalue()


def write_pictures(folder, x, test="test"):
    """Write train/<class>/<number>.png and the same for the test images."""
    for number, (image, label) in enumerate(zip(x, LABELS, strict=True)):
        inner = folder / ("train" if number < 24 else test) / f"class {label}"
        inner.mkdir(parents=True, exist_ok=True)
        (inner / f"{number:02d}.png").write_bytes(png(image))
    return folder


def write_hugging_face(folder, columns, features=None, test="test", pieces=1):
    """Write what save_to_disk of Hugging Face's datasets writes."""
    folder.mkdir()
    (folder / "dataset_dict.json").write_text(json.dumps({"splits": ["train", test]}))
    for split, part in (("train", slice(0, 24)), (test, slice(24, 30))):
        table = pa.table({name: values[part] for name, values in columns.items()})
        told = json.dumps({"info": {"features": features or {}}})
        table = table.replace_schema_metadata({"huggingface": told})
        (folder / split).mkdir()
        (folder / split / "state.json").write_text(json.dumps({"_fingerprint": "0"}))
        (folder / split / "dataset_info.json").write_text("{}")
        per_piece = -(-len(table) // pieces)
        for piece in range(pieces):
            file = folder / split / f"data-{piece:05d}-of-{pieces:05d}.arrow"
            with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as out:
                out.write_table(table.slice(piece * per_piece, per_piece), max_chunksize=5)
    return folder


def picture_columns(x):
    """Return the columns of a data set of images, and what Hugging Face says about them."""
    columns = {
        "image": pa.array([{"bytes": png(image), "path": None} for image in x]),
        "label": pa.array(LABELS[: len(x)]),
        "client_id": pa.array(CLIENTS[: len(x)]),
    }
    names = ["one", "two", "three"]
    features = {
        "image": {"_type": "Image"},
        "label": {"names": names, "_type": "ClassLabel"},
        "client_id": {"dtype": "string", "_type": "Value"},
    }
    return columns, features


def write_leaf(folder, x, labels=None):
    """Write LEAF's JSON: two files for training, one for tests."""
    y = LABELS.tolist() if labels is None else labels
    for name, part in (
        ("train/a", range(12)),
        ("train/b", range(12, 24)),
        ("test/a", range(24, 30)),
    ):
        own = {}
        for place in part:
            user = own.setdefault(str(CLIENTS[place]), {"x": [], "y": []})
            user["x"].append(x[place])
            user["y"].append(y[place])
        file = folder / f"{name}.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        sizes = [len(user["y"]) for user in own.values()]
        content = {"users": list(own), "num_samples": sizes, "user_data": own}
        file.write_text(json.dumps(content))
    return folder
