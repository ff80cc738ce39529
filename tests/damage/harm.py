"""What can happen to the files of a results folder: a damage is drawn from a seed."""

import contextlib
import json
import os
import random
import shutil

from fedgps_ray.results import files

NESTED = "[" * 3000 + "]" * 3000
VALUES = (None, True, -1, 10**30, 1e400, "", "\x1b[2J", "\ud800", [], {}, [[]], "../../x", "99")


def files_of(folder):
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.name != ".lock")


def truncate(rng, path):
    content = path.read_bytes()
    path.write_bytes(content[: rng.randrange(len(content))])


def flip(rng, path):
    content = bytearray(path.read_bytes())
    content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    path.write_bytes(content)


def zeros(rng, path):
    content = bytearray(path.read_bytes())
    start = rng.randrange(len(content))
    content[start : start + 64] = bytes(len(content[start : start + 64]))
    path.write_bytes(content)


def delete(rng, path):
    path.unlink()


def empty(rng, path):
    path.write_bytes(b"")


def folder_instead(rng, path):
    path.unlink()
    path.mkdir()


def pipe_instead(rng, path):
    """Leave a pipe into which nobody ever writes."""
    path.unlink()
    os.mkfifo(path)


def endless(rng, path):
    """Make a file longer than any disk, which takes no room: all but its beginning is a hole."""
    os.truncate(path, 10**12)


def swap(rng, path):
    """Exchange a file with one of the same name in another trial."""
    root = next(up for up in path.parents if (up / "experiment.json").exists())
    others = [other for other in root.glob(f"trials/*/**/{path.name}") if other != path]
    if others:
        other = rng.choice(others)
        first, second = path.read_bytes(), other.read_bytes()
        path.write_bytes(second)
        other.write_bytes(first)
    else:
        flip(rng, path)


def backup(rng, path):
    """Leave a copy of the whole trial beside it, as an editor or a person would."""
    source = path.parent if (path.parent / "trial.json").exists() else None
    if source is not None:
        shutil.copytree(source, source.with_name(f"{source.name}.bak"))


def wrong_type(rng, path):
    """Put a value of another type into a JSON file, whose seal is then wrong, or gone."""
    if path.suffix != ".json":
        return flip(rng, path)
    content = with_wrong_value(rng, path)
    if rng.random() < 0.5:
        content.pop("sha256", None)
    path.write_text(json.dumps(content))
    return None


def sealed_again(rng, path):
    """Do the same with a new seal: nothing shows that it was changed, so no command may trip."""
    content = with_wrong_value(rng, path)
    with contextlib.suppress(ValueError):  # no seal can be made of half a character
        files.write_json(path, content)


def with_wrong_value(rng, path):
    content = json.loads(path.read_text())
    table = content
    while True:
        key = rng.choice(sorted(table))
        if isinstance(table[key], dict) and table[key] and rng.random() < 0.7:
            table = table[key]
            continue
        break
    table[key] = rng.choice(VALUES)
    return content


def other_version(rng, path):
    if path.suffix != ".json":
        return flip(rng, path)
    content = json.loads(path.read_text())
    content["schema_version"] = rng.choice([0, 1, 3, 99, "2", None])
    path.write_text(json.dumps(content))
    return None


def deep(rng, path):
    if path.suffix != ".json":
        return truncate(rng, path)
    path.write_text('{"a": ' + NESTED + "}")
    return None


HARMS = (
    *(truncate, flip, flip, flip, zeros, delete, empty, folder_instead),
    *(pipe_instead, endless, swap, backup, wrong_type, wrong_type, other_version, deep),
)


def harm(folder, seed):
    """Damage one file of a folder."""
    rng = random.Random(seed)
    path = rng.choice(files_of(folder))
    rng.choice(HARMS)(rng, path)
