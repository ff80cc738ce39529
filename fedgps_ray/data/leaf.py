"""Data sets in the JSON format of LEAF: examples and labels of each user."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedgps_ray.data.arrays import Array
from fedgps_ray.data.memory import check_room
from fedgps_ray.data.own import files_of
from fedgps_ray.errors import UserError
from fedgps_ray.identity import Table

LETTER = 4  # bytes of a character in an array
MALFORMED = (LookupError, TypeError, AttributeError)

Values = list[Any]  # as JSON has them


def read(folder: Path) -> Table:
    """Return the arrays of train/*.json and test/*.json, and the user of each training example."""
    train, test = (_part(folder, part) for part in ("train", "test"))
    x_train, x_test = _numbers(train[0], test[0], folder)
    return {
        "x_train": x_train,
        "y_train": _plain_labels(train[1], folder),
        "x_test": x_test,
        "y_test": _plain_labels(test[1], folder),
        "client_train": _names(train[2], folder),
    }


def _names(owners: list[str], folder: Path) -> Array:
    """Return the names of users as an array, in which each takes as much as the longest."""
    check_room(f"{folder}: the names of users", LETTER * max(map(len, owners)) * len(owners))
    return np.array(owners)


def _plain_labels(labels: Values, folder: Path) -> Array:
    try:
        return np.array(labels)
    except (ValueError, TypeError, OverflowError):
        raise UserError(f"{folder}: y holds lists, expected one label for each example") from None


def _part(whole: Path, part: str) -> tuple[Values, Values, list[str]]:
    """Return the examples, the labels and the users of all files that make up the content."""
    folder = whole / part
    examples: Values = []
    labels: Values = []
    owners: list[str] = []
    for file in (file for file in files_of(whole, "leaf") if file.parent == folder):
        for user, own in _users(file).items():
            examples += own["x"]
            labels += own["y"]
            owners += [user] * len(own["y"])
    if not examples:
        raise UserError(f"{folder} has no example: expected .json files as LEAF writes them")
    return examples, labels, owners


def _users(file: Path) -> Table:
    """Return {user: {"x": [...], "y": [...]}} of one file, after checking it."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        users = {str(user): content["user_data"][user] for user in content["users"]}
        for user, own in users.items():
            if not isinstance(own["x"], list) or len(own["x"]) != len(own["y"]):
                raise UserError(f"{file}: x and y of user '{user}' are not lists of equal length")
        return users
    except UserError:
        raise
    except MALFORMED as error:
        raise UserError(f"{file} is not in LEAF's format: no {error}") from None
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{file} cannot be read as JSON: {error}") from None


def _numbers(train: Values, test: Values, folder: Path) -> tuple[Array, Array]:
    """Return the examples as arrays; texts of one length become the numbers of their letters."""
    if any(isinstance(example, str) for example in (*train, *test)):
        return _letters(train, test, folder)
    try:
        x_train, x_test = np.array(train), np.array(test)
    except (ValueError, TypeError, OverflowError):
        raise UserError(f"{folder}: examples have different lengths; expected one shape") from None
    if x_train.dtype.kind != "U":
        return x_train, x_test
    return _letters(train, test, folder)


def _letters(
    train: Values, test: Values, folder: Path
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    texts = [*train, *test]
    if len({(type(text), len(text)) for text in texts}) != 1 or not isinstance(texts[0], str):
        raise UserError(
            f"{folder}: texts have different lengths or are not plain text; store them as lists of"
            " numbers of one length instead"
        )
    number = {letter: place for place, letter in enumerate(sorted(set("".join(texts))))}
    tokens = np.array([[number[letter] for letter in text] for text in texts], np.int64)
    return tokens[: len(train)], tokens[len(train) :]
