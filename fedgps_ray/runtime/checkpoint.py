"""Snapshots on disk, complete or absent: tensors as safetensors, the rest as JSON, no pickle."""

import hashlib
import importlib
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import safetensors
from safetensors.torch import load_file, save_file
from torch import Tensor

from fedgps_ray.results import files
from fedgps_ray.runtime.pool import Kept
from fedgps_ray.runtime.rounds import Snapshot

KEEP = 2  # complete checkpoints: one to use, one in case it is damaged
Skeleton = Any  # a value with its tensors replaced by where they lie


class Place(NamedTuple):
    """Where a tensor lies: a file and a name in it."""

    file: str
    name: str


class Saver:
    """Writes checkpoint after checkpoint; what did not change is not written again."""

    def __init__(self, folder: Path, fetch: Callable[[Any], Any]) -> None:
        self.folder, self.fetch = folder, fetch
        self._saved: dict[tuple[int, str], tuple[Any, Skeleton]] = {}
        self._sums: dict[str, str] = {}

    def save(self, snapshot: Snapshot) -> None:
        """Write a checkpoint, then remove what no kept checkpoint needs."""
        draft = _Draft(snapshot.rounds_done)
        state = draft.pack("state", snapshot.state)
        saved = {}
        for client, kept in snapshot.kept.items():
            for part, handle in kept._asdict().items():
                saved[client, part] = (handle, self._skeleton(draft, client, part, handle))
        for name, tensors in draft.files.items():
            path = self.folder / name
            files.write(path, partial(save_file, tensors))
            self._sums[name] = _sha256(path)
        self._saved = saved
        skeletons = {f"{client}/{part}": entry[1] for (client, part), entry in saved.items()}
        used = _files_of([state, skeletons])
        self._sums = {name: self._sums[name] for name in sorted(used)}
        manifest = {
            "rounds_done": snapshot.rounds_done,
            "state": state,
            "kept": skeletons,
            "files": self._sums,
        }
        files.write_json(self.folder / f"round-{snapshot.rounds_done:06d}.json", manifest)
        _clean(self.folder)

    def _skeleton(self, draft: "_Draft", client: int, part: str, handle: Any) -> Skeleton:
        before = self._saved.get((client, part))
        if before is not None and before[0] is handle:
            return before[1]
        return None if handle is None else draft.pack(f"client-{client}", self.fetch(handle))


class _Draft:
    """Collects the tensors of one checkpoint, each once, by the file they go to."""

    def __init__(self, rounds_done: int) -> None:
        self.rounds_done = rounds_done
        self.files: dict[str, dict[str, Tensor]] = {}
        self.places: dict[tuple[Any, ...], Place] = {}

    def pack(self, owner: str, value: Any) -> Skeleton:
        """Return the skeleton of a value."""
        if isinstance(value, Tensor):
            return {"tensor": list(self._place(owner, value))}
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            kind = f"{type(value).__module__}:{type(value).__qualname__}"
            return {"type": kind, "fields": [self.pack(owner, item) for item in value]}
        if isinstance(value, tuple | list):
            kind = "tuple" if isinstance(value, tuple) else "list"
            return {kind: [self.pack(owner, item) for item in value]}
        if isinstance(value, dict):
            return {"dict": {key: self.pack(owner, item) for key, item in value.items()}}
        if value is None or isinstance(value, bool | int | float | str):
            return value
        raise TypeError(f"a checkpoint cannot hold a {type(value).__name__}")

    def _place(self, owner: str, tensor: Tensor) -> Place:
        same = (tensor.data_ptr(), tensor.shape, tensor.dtype)
        if same not in self.places:
            name = f"{owner}-{self.rounds_done:06d}.safetensors"
            held = self.files.setdefault(name, {})
            self.places[same] = Place(name, str(len(held)))
            held[str(len(held))] = tensor.detach().cpu().contiguous()
        return self.places[same]


def unpack(skeleton: Skeleton, tensor: Callable[[Place], Tensor]) -> Any:
    """Return the value of a skeleton."""
    if not isinstance(skeleton, dict):
        return skeleton
    (kind, content), *rest = skeleton.items()
    if kind == "tensor":
        return tensor(Place(*content))
    if kind == "type":
        return _tuple_type(content)(*(unpack(item, tensor) for item in rest[0][1]))
    if kind == "dict":
        return {key: unpack(item, tensor) for key, item in content.items()}
    items = [unpack(item, tensor) for item in content]
    return tuple(items) if kind == "tuple" else items


def _tuple_type(name: str) -> Any:
    """Look up a NamedTuple of this package; a checkpoint can name nothing else."""
    module, _, kind = name.partition(":")
    if not module.startswith("fedgps_ray."):
        raise ValueError(f"a checkpoint names a type outside the package: {name}")
    found = getattr(importlib.import_module(module), kind)
    if not (isinstance(found, type) and issubclass(found, tuple) and hasattr(found, "_fields")):
        raise ValueError(f"a checkpoint names something that is not a named tuple: {name}")
    return found


def load(folder: Path, store: Callable[[Any], Any]) -> tuple[Snapshot | None, list[str]]:
    """Return the newest complete checkpoint, and what was wrong with newer ones."""
    problems: list[str] = []
    for path in sorted(folder.glob("round-*.json"), reverse=True):
        try:
            return _read(path, store), problems
        except (OSError, ValueError, KeyError, safetensors.SafetensorError) as problem:
            problems.append(f"checkpoint {path.name} is damaged ({problem})")
            path.rename(path.with_suffix(".damaged"))
    return None, problems


def _read(path: Path, store: Callable[[Any], Any]) -> Snapshot:
    manifest = json.loads(path.read_text())
    loaded: dict[str, dict[str, Tensor]] = {}
    for name, sha256 in manifest["files"].items():
        if _sha256(path.parent / name) != sha256:
            raise ValueError(f"{name} was changed or cut short")
        loaded[name] = load_file(path.parent / name)

    def tensor(place: Place) -> Tensor:
        return loaded[place.file][place.name]

    parts: dict[int, dict[str, Any]] = {}
    for key, skeleton in manifest["kept"].items():
        client, _, part = key.partition("/")
        value = unpack(skeleton, tensor)
        parts.setdefault(int(client), {})[part] = None if value is None else store(value)
    kept = {client: Kept(**values) for client, values in parts.items()}
    return Snapshot(manifest["rounds_done"], unpack(manifest["state"], tensor), kept)


def _clean(folder: Path) -> None:
    manifests = sorted(folder.glob("round-*.json"), reverse=True)
    for old in manifests[KEEP:]:
        old.unlink()
    needed = {name for path in manifests[:KEEP] for name in json.loads(path.read_text())["files"]}
    for path in folder.glob("*.safetensors"):
        if path.name not in needed:
            path.unlink()


def _files_of(skeleton: Skeleton) -> set[str]:
    if isinstance(skeleton, dict) and "tensor" in skeleton:
        return {skeleton["tensor"][0]}
    inner = skeleton.values() if isinstance(skeleton, dict) else skeleton
    if not isinstance(skeleton, dict | list):
        return set()
    return set().union(*(_files_of(item) for item in inner))


def _sha256(path: Path) -> str:
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
