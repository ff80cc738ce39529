"""Snapshots on disk, complete or absent: tensors as safetensors, the rest as JSON, no pickle."""

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import safetensors
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from fedgps_ray.errors import CannotWrite
from fedgps_ray.results import files
from fedgps_ray.results.checkpoints import manifests, read_manifest
from fedgps_ray.results.read import DAMAGED
from fedgps_ray.rounds.loop import Snapshot
from fedgps_ray.rounds.packing import Skeleton, pack, unpack
from fedgps_ray.rounds.pool import Kept
from fedgps_ray.rounds.worker import Handle
from fedgps_ray.tensors import Params
from fedgps_ray.units import printable

Store = Callable[[Sequence[object]], list[Handle]]
UNREADABLE = (*DAMAGED, ImportError, safetensors.SafetensorError)
CPU = torch.device("cpu")
OF_CLIENT = "client-"  # how the names of files begin that hold what a client keeps
WORTH_MAPPING = 1_000_000  # bytes; less stays in memory
KEEP = 2  # complete checkpoints: one to use, one in case it is damaged


class Rows(NamedTuple):
    """The rows that a checkpoint goes with: of which trial, and their running hash."""

    trial_id: str
    sha256: str


Fits = Callable[[int, Rows | None], bool]


class Place(NamedTuple):
    """Where a tensor lies: a file and a name in it."""

    file: str
    name: str


class Saver:
    """Writes checkpoint after checkpoint; what did not change is not written again.

    lets_go: what clients keep in this process's memory is replaced by the same in the files, mapped
    into memory: the system can then drop it from memory and read it again.
    """

    def __init__(
        self, folder: Path, fetch: Callable[[Handle], object], lets_go: bool = False
    ) -> None:
        self.folder, self.fetch, self.lets_go = folder, fetch, lets_go
        self._saved: dict[tuple[int, str], tuple[Handle, Skeleton]] = {}
        self._sums: dict[str, str] = {}

    def save(self, snapshot: Snapshot, rows: Rows | None = None) -> None:
        """Write a checkpoint, then remove what no kept checkpoint needs."""
        files.refuse_link(self.folder)
        _make(self.folder)
        draft = _Draft(snapshot.rounds_done)
        state = draft.pack("state", snapshot.state)
        saved = {}
        for client, kept in snapshot.kept.items():
            for part, handle in kept._asdict().items():
                saved[client, part] = (handle, self._skeleton(draft, client, part, handle))
        for name, tensors in draft.files.items():
            path = self.folder / name
            files.write(path, partial(save_file, tensors))
            self._sums[name] = files.sha256(path)
        self._saved = saved
        skeletons = {f"{client}/{part}": entry[1] for (client, part), entry in saved.items()}
        used = _files_of([state, skeletons])
        self._sums = {name: self._sums[name] for name in sorted(used)}
        manifest = {
            "rounds_done": snapshot.rounds_done,
            "state": state,
            "kept": skeletons,
            "files": self._sums,
            "rows": None if rows is None else rows._asdict(),
        }
        files.write_json(self.folder / f"round-{snapshot.rounds_done:06d}.json", manifest)
        if self.lets_go:
            _let_go(self.folder, draft)
        _clean(self.folder)

    def _skeleton(self, draft: "_Draft", client: int, part: str, handle: Handle) -> Skeleton:
        before = self._saved.get((client, part))
        if before is not None and before[0] is handle:
            return before[1]
        return None if handle is None else draft.pack(f"{OF_CLIENT}{client}", self.fetch(handle))


class _Draft:
    """Collects the tensors of one checkpoint, each once, by the file they go to."""

    def __init__(self, rounds_done: int) -> None:
        self.rounds_done = rounds_done
        self.files: dict[str, dict[str, Tensor]] = {}
        self.places: dict[tuple[object, ...], tuple[Tensor, Place]] = {}

    def pack(self, owner: str, value: object) -> Skeleton:
        """Return the skeleton of a value."""
        return pack(value, lambda tensor: list(self._place(owner, tensor)))

    def _place(self, owner: str, tensor: Tensor) -> Place:
        same = (tensor.device, tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype)
        if same not in self.places:
            name = f"{owner}-{self.rounds_done:06d}.safetensors"
            held = self.files.setdefault(name, {})
            place = Place(name, str(len(held)))
            held[place.name] = _apart(tensor.detach().cpu().contiguous(), held.values())
            # the tensor is kept, so that no other one can come to lie at its address meanwhile
            self.places[same] = tensor, place
        return self.places[same][1]


def _let_go(folder: Path, draft: _Draft) -> None:
    """Put the tensors of clients that were just written on top of their files.

    The tensors stay the same objects with the same content, so whoever holds them notices nothing;
    the memory they had is free. A file that is deleted later lasts as long as it is mapped.
    """
    mapped: dict[str, dict[str, Tensor]] = {}
    for tensor, (file, name) in draft.places.values():
        is_plain = tensor.device == CPU and tensor.is_contiguous()
        if file.startswith(OF_CLIENT) and is_plain and tensor.nbytes >= WORTH_MAPPING:
            if file not in mapped:
                mapped[file] = load_file(folder / file)
            tensor.data = mapped[file][name]


def _apart(tensor: Tensor, others: Iterable[Tensor]) -> Tensor:
    """Return a copy if another tensor lies in the same memory: safetensors refuses such pairs."""
    memory = tensor.untyped_storage().data_ptr()
    shares = any(other.untyped_storage().data_ptr() == memory for other in others)
    return tensor.clone() if shares else tensor


def load(
    folder: Path,
    store: Store,
    own: Collection[str] = (),
    fits: Fits = lambda *_: True,
    device: torch.device = CPU,
    has_model: Callable[[Any], bool] = lambda _: True,
) -> tuple[Snapshot | None, list[str]]:
    """Return the newest complete checkpoint on a device, and what was wrong with newer ones.

    own: packages of the trial's method beside this one, whose types may be named.
    fits: says whether the rows on disk are those of a checkpoint.
    has_model: says whether a state's models have the shape that they have to have.
    """
    files.refuse_link(folder)
    problems: list[str] = []
    for path in manifests(folder):
        try:
            snapshot = _read(path, store, own, fits, device)
            if not has_model(snapshot.state):
                raise ValueError("it holds another model")
            return snapshot, problems
        except UNREADABLE as problem:
            problems.append(f"checkpoint {path.name} is damaged ({printable(str(problem))})")
            path.rename(path.with_suffix(".damaged"))
    return None, problems


def has_same_models(state: object, fresh: object) -> bool:
    """Say whether models have the same shape; what else states hold may differ."""
    if isinstance(fresh, Params):
        return isinstance(state, Params) and _shapes(state) == _shapes(fresh)
    if isinstance(fresh, tuple) and type(state) is type(fresh):
        return all(map(has_same_models, state, fresh))
    return True


def _shapes(params: Params) -> list[object]:
    return [(tensor.shape, tensor.dtype) for tensor in params if isinstance(tensor, Tensor)]


def _make(folder: Path) -> None:
    """Make the folder of checkpoints; that of the trial has to be there."""
    try:
        folder.mkdir(exist_ok=True)
    except FileNotFoundError:
        raise CannotWrite(
            f"{folder.parent} was deleted or moved while the trial was running"
        ) from None
    except OSError as problem:
        raise CannotWrite(f"cannot write {folder}: {problem}") from None


def _read(
    path: Path, store: Store, own: Collection[str], fits: Fits, device: torch.device
) -> Snapshot:
    manifest = read_manifest(path)
    rows = manifest.get("rows")
    if not fits(manifest["rounds_done"], None if rows is None else Rows(**rows)):
        raise ValueError("the rows of finished rounds are missing or were changed")
    loaded: dict[str, dict[str, Tensor]] = {}
    for name, sha256 in manifest["files"].items():
        file = path.parent / name
        if not files.has_right_length(file) or files.sha256(file) != sha256:
            raise ValueError(f"{name} was changed or cut short")
        there = load_file(file)
        loaded[name] = {key: tensor.to(device) for key, tensor in there.items()}

    def tensor(place: list[str]) -> Tensor:
        file, name = place
        return loaded[file][name]

    keys = [key.split("/") for key in manifest["kept"]]
    handles = store([unpack(skeleton, tensor, own) for skeleton in manifest["kept"].values()])
    parts: dict[int, dict[str, Handle]] = {}
    for (client, part), handle in zip(keys, handles, strict=True):
        parts.setdefault(int(client), {})[part] = handle
    kept = {client: Kept(**values) for client, values in parts.items()}
    return Snapshot(manifest["rounds_done"], unpack(manifest["state"], tensor, own), kept)


def _clean(folder: Path) -> None:
    ours = manifests(folder)
    unused = ours[KEEP:]
    needed = {name for path in ours[:KEEP] for name in read_manifest(path)["files"]}
    unused += [path for path in folder.glob("*.safetensors") if path.name not in needed]
    for path in unused:
        if not path.is_dir():  # which none of ours is
            path.unlink()


def _files_of(skeleton: Skeleton) -> set[str]:
    if isinstance(skeleton, dict) and isinstance(skeleton.get("tensor"), list):
        return {skeleton["tensor"][0]}
    inner = skeleton.values() if isinstance(skeleton, dict) else skeleton
    if not isinstance(skeleton, dict | list):
        return set()
    return set().union(*(_files_of(item) for item in inner))
