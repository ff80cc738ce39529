"""Data sets that Hugging Face's `save_to_disk` wrote, read from their Arrow files."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fedgps_ray.data import pictures
from fedgps_ray.data.arrays import Array
from fedgps_ray.data.own import files_of
from fedgps_ray.errors import UserError, unknown
from fedgps_ray.identity import Table
from fedgps_ray.units import printable

LABEL_NAMES = ("label", "labels", "target", "y")
CLIENT_NAMES = ("client", "client_id")
UNREADABLE = (pa.ArrowException, OSError, ValueError, TypeError, LookupError, MemoryError)


class Columns(NamedTuple):
    """Which columns hold the examples, the labels and the clients; None: recognised."""

    x: str | None = None  # several, separated by commas: the columns of a table
    y: str | None = None
    client: str | None = None


class _Split(NamedTuple):
    where: str
    table: pa.Table
    features: Table  # what Hugging Face says about the columns


def read(folder: Path, columns: Columns, size: int | None, test: str) -> Table:
    """Return the arrays of the splits train and test, or of another one named in its place."""
    train_split, test_split = (_split(folder, name) for name in ("train", test))
    label = _label_column(train_split, columns.y)
    client = _client_column(train_split, columns.client)
    chosen = _example_columns(train_split, columns.x, {label, client})
    x_train, x_test = (_examples(split, chosen, size) for split in (train_split, test_split))
    if _is_picture(train_split, chosen[0]):
        x_train, x_test = pictures.same_colours(x_train, x_test)
    arrays = {"x_train": x_train, "x_test": x_test}
    arrays |= {"y_train": _flat(train_split, label), "y_test": _flat(test_split, label)}
    if client is not None:
        arrays["client_train"] = _flat(train_split, client)
    class_names = train_split.features.get(label, {}).get("names")
    if class_names:
        arrays["classes"] = np.array(_words(train_split, class_names))
    return arrays


def _words(split: _Split, class_names: Any) -> list[str]:
    """Return the names of the classes, after checking them."""
    is_right = isinstance(class_names, list) and all(isinstance(name, str) for name in class_names)
    if not is_right:
        raise UserError(f"{split.where}: the names of the classes are not a list of names")
    return list(class_names)


def _split(folder: Path, name: str) -> _Split:
    files = [file for file in files_of(folder, "hugging_face") if file.parent.name == name]
    if not files:
        splits = sorted({file.parent.name for file in files_of(folder, "hugging_face")})
        raise UserError(
            f"{folder} has no split '{name}'; it has: {', '.join(splits)}; the option test names"
            " the one to test on"
        )
    try:
        table = pa.concat_tables([_table(file) for file in files])
        _check_names(folder / name, table.column_names)
    except UserError:
        raise
    except UNREADABLE as error:
        raise UserError(f"{folder / name} cannot be read as Arrow files: {error}") from None
    if len(table) == 0:
        raise UserError(f"{folder / name} has no example")
    return _Split(f"{folder / name}", table, _features(table))


def _table(file: Path) -> pa.Table:
    """Map a file into memory; current versions write streams, early ones wrote files."""
    source = pa.memory_map(str(file))
    try:
        table = pa.ipc.open_stream(source).read_all()
    except pa.ArrowInvalid:
        source.seek(0)
        table = pa.ipc.open_file(source).read_all()
    table.validate(full=True)  # else a damaged file makes Arrow read memory that is not its own
    return table


def _check_names(where: Path, names: Sequence[str]) -> None:
    """Refuse columns of one name."""
    for name in names:
        if names.count(name) > 1:
            raise UserError(f"{where} has several columns of the name {printable(name)}")


def _features(table: pa.Table) -> Table:
    text = (table.schema.metadata or {}).get(b"huggingface", b"{}")
    try:
        features = json.loads(text).get("info", {}).get("features", {})
    except (ValueError, AttributeError, RecursionError):
        features = None
    if not isinstance(features, dict):
        return {}
    return {name: told for name, told in features.items() if isinstance(told, dict)}


def _label_column(split: _Split, given: str | None) -> str:
    if given is not None:
        return _known(split, given)
    labels = [name for name, told in split.features.items() if told.get("_type") == "ClassLabel"]
    named = [name for name in LABEL_NAMES if name in split.table.column_names]
    for candidates in (labels, named):
        if len(candidates) == 1:
            return candidates[0]
    raise UserError(f"{split.where}: add the option y, the column of the labels: {_listed(split)}")


def _client_column(split: _Split, given: str | None) -> str | None:
    if given is not None:
        return _known(split, given)
    return next((name for name in CLIENT_NAMES if name in split.table.column_names), None)


def _example_columns(split: _Split, given: str | None, others: set[str | None]) -> list[str]:
    """Return the columns given, the only one that can hold examples, or all that are numbers."""
    if given is not None:
        return [_known(split, name.strip()) for name in given.split(",")]
    rest = [name for name in split.table.column_names if name not in others]
    types = [split.table.schema.field(name).type for name in rest]
    whole = [name for name, kind in zip(rest, types, strict=True) if not _is_number(kind)]
    if len(whole) == 1 and len(rest) == 1:
        return whole
    if rest and not whole:
        return rest
    raise UserError(
        f"{split.where}: add the option x, the column of the examples: {_listed(split)}"
    )


def _known(split: _Split, name: str) -> str:
    if name not in split.table.column_names:
        raise unknown("column", name, split.table.column_names)
    return name


def _present(split: _Split, name: str) -> str:
    if name not in split.table.column_names:
        raise UserError(f"{split.where} has no column '{name}'; {_listed(split)}")
    return name


def _listed(split: _Split) -> str:
    return f"it has {', '.join(split.table.column_names)}"


def _is_number(kind: object) -> bool:
    return bool(
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
    )


def _is_picture(split: _Split, column: str) -> bool:
    return bool(pa.types.is_struct(split.table.schema.field(_present(split, column)).type))


def _examples(split: _Split, columns: Sequence[str], size: int | None) -> Array:
    if len(columns) > 1:
        return np.stack([_flat(split, column) for column in columns], axis=1)
    if _is_picture(split, columns[0]):
        return _pictures(split, columns[0], size)
    whole = _nested(_whole(split, columns[0]), f"{split.where}: column {columns[0]}")
    return whole if whole.ndim > 1 else whole[:, None]


def _whole(split: _Split, column: str) -> Any:
    """Return a column as one array without gaps."""
    array = split.table.column(_present(split, column)).combine_chunks()
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks)
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if array.null_count:
        raise UserError(f"{split.where}: column {column} has {array.null_count} empty entries")
    return array


def _flat(split: _Split, column: str) -> Array:
    """Return a column of numbers or words."""
    array = _whole(split, column)
    if _is_number(array.type):
        return np.asarray(array.to_numpy(zero_copy_only=False))
    if pa.types.is_string(array.type) or pa.types.is_large_string(array.type):
        return np.array(array.to_pylist())
    raise UserError(
        f"{split.where}: column {column} has type {array.type}, expected numbers or words"
    )


def _nested(array: Any, where: str) -> Array:
    """Return lists of equal length, to any depth, as one array."""
    if _is_number(array.type):
        return np.asarray(array.to_numpy(zero_copy_only=False))
    if not (pa.types.is_list(array.type) or _is_other_list(array.type)):
        raise UserError(f"{where} has type {array.type}, expected numbers, lists or images")
    if array.null_count:
        raise UserError(f"{where} has {array.null_count} empty entries")
    lengths = np.unique(np.asarray(pc.list_value_length(array)))
    if len(lengths) != 1:
        raise UserError(
            f"{where} has lists of {lengths[0]} to {lengths[-1]} entries, expected one length:"
            " pad or cut them first"
        )
    inner = _nested(array.flatten(), where)
    return inner.reshape(len(array), int(lengths[0]), *inner.shape[1:])


def _is_other_list(kind: object) -> bool:
    return bool(pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _pictures(split: _Split, column: str, size: int | None) -> NDArray[np.uint8]:
    """Decode a column of Hugging Face's images, which hold the bytes of image files."""
    names = [f"{split.where}: {column} {number}" for number in range(len(split.table))]
    entries = _whole(split, column).to_pylist()
    contents = (_content(name, entry) for name, entry in zip(names, entries, strict=True))
    return pictures.together(contents, names, size)


def _content(name: str, entry: Table) -> bytes:
    content = entry.get("bytes")
    if not isinstance(content, bytes):
        raise UserError(f"{name} holds no image but {sorted(entry)}; expected bytes of a file")
    return content
