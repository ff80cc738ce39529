"""Data sets: where their files are, and the arrays that a spec describes."""

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, assert_never

from fedgps_ray import loading
from fedgps_ray.data import generated, own
from fedgps_ray.data.arrays import Array, Augment, Dataset, Numbers, Treatment, from_arrays
from fedgps_ray.data.specs import (
    DATASETS,
    TORCHVISION,
    Arrays,
    DatasetSpec,
    Emnist,
    Function,
    HuggingFace,
    ImageFolder,
    Leaf,
    Named,
    Npz,
    OwnData,
    Synthetic,
    is_path,
    parse,
)
from fedgps_ray.errors import UserError
from fedgps_ray.identity import Settings
from fedgps_ray.references import Found, found_of, given
from fedgps_ray.references.failures import failed

__all__ = [
    "DATASETS",
    "NO_SOURCE",
    "Arrays",
    "Dataset",
    "DatasetSpec",
    "Emnist",
    "Function",
    "HuggingFace",
    "ImageFolder",
    "Leaf",
    "Named",
    "Npz",
    "Source",
    "Synthetic",
    "code_of",
    "is_path",
    "load",
    "locate",
    "npz_spec",
    "own_table",
    "parse",
]

CIFAR10_COLOURS = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)
CIFAR100_COLOURS = (0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)
SVHN_COLOURS = (0.4377, 0.4438, 0.4728), (0.1980, 0.2010, 0.1970)


class Source(NamedTuple):
    """Where this machine keeps its data; nothing here changes what is read."""

    data_dir: Path | None = None
    download: bool = False
    files: Mapping[str, str] = {}  # the sha256 of a user's file or folder, and its path

    @property
    def folder(self) -> Path:
        """Where the files of well-known data sets are looked for."""
        return self.data_dir or Path.home() / ".cache" / "fedgps-ray" / "data"


NO_SOURCE = Source()


def load(spec: DatasetSpec, source: Source = NO_SOURCE) -> Dataset:
    """Return the examples and labels that a spec describes."""
    match spec:
        case Synthetic():
            return generated.synthetic(spec)
        case Named():
            return _named(spec, source)
        case Emnist():
            arrays = _reader("vision:emnist")(spec.split, source.folder, source.download)
            return from_arrays(arrays, spec.name)
        case Function():
            return from_arrays(_called(spec), spec.name, spec.treatment)
        case Npz() | Arrays() | Leaf() | ImageFolder() | HuggingFace():
            path = locate(spec.file, spec.sha256, source)
            return from_arrays(_read(spec, path), str(path), spec.treatment)
    assert_never(spec)


def _called(spec: Function) -> Any:
    """Return the arrays of the user's function."""
    function = given(spec.reference)
    try:
        inspect.signature(function).bind(**spec.options)
    except TypeError as problem:
        raise UserError(f"{spec.name} cannot be called: {problem}") from None
    except ValueError:  # written in C: it says nothing about its parameters
        pass
    try:
        return function(**spec.options)
    except Exception as problem:  # the user's code can raise anything
        raise failed(f"{spec.name} failed", problem) from None


def code_of(spec: DatasetSpec) -> Found | None:
    """Return the code of a function from outside the package."""
    return found_of(given(spec.reference)) if isinstance(spec, Function) else None


def _reader(reference: str) -> Any:
    """Return a function of a module here that is imported only now, as are its libraries."""
    return loading.load(f"fedgps_ray.data.{reference}")


def _named(spec: Named, source: Source) -> Dataset:
    where = source.folder, source.download
    match spec.name:
        case "digits":
            return generated.digits()
        case "cifar10":
            arrays = _reader("vision:cifar")("CIFAR10", *where)
            return _treated(arrays, spec.name, CIFAR10_COLOURS, "flip_crop")
        case "cifar100":
            arrays = _reader("vision:cifar")("CIFAR100", *where)
            return _treated(arrays, spec.name, CIFAR100_COLOURS, "flip_crop")
        case "svhn":
            arrays = _reader("vision:svhn")(*where)
            return _treated(arrays, spec.name, SVHN_COLOURS, "crop")
        case "mnist" | "fashion_mnist" | "kmnist" | "qmnist":
            return from_arrays(_reader("vision:mnist")(TORCHVISION[spec.name], *where), spec.name)
        case "usps" | "stl10":
            return from_arrays(_reader(f"vision:{spec.name}")(*where), spec.name)
    assert_never(spec.name)


def _read(spec: OwnData, path: Path) -> Mapping[str, Array]:
    arrays: Mapping[str, Array]
    match spec:
        case Npz():
            arrays = _reader("npz:read")(path)
        case Arrays():
            arrays = _reader("npz:read_folder")(path)
        case Leaf():
            arrays = _reader("leaf:read")(path)
        case ImageFolder():
            arrays = _reader("pictures:read_folder")(path, spec.size, spec.test)
        case HuggingFace():
            columns = _reader("hugging_face:Columns")(spec.x, spec.y, spec.client)
            arrays = _reader("hugging_face:read")(path, columns, spec.size, spec.test)
        case _:
            assert_never(spec)
    return arrays


def own_table(path: Path) -> dict[str, str]:
    """Return format, name and content hash of a user's file or folder."""
    return {"name": own.format_of(path), "file": path.name, "sha256": own.known_sha256(path)}


def npz_spec(path: Path) -> Npz:
    """Return the spec of a user's .npz file, which is hashed for it."""
    table = own_table(path)
    return Npz(table["file"], table["sha256"])


def _treated(
    arrays: Settings, name: str, colours: tuple[Numbers, Numbers], augment: Augment
) -> Dataset:
    """Return a data set with the colours and the augmentation that are usual for it."""
    mean, std = colours
    data = from_arrays(arrays, name, Treatment("hwc", standardise=False))
    return data._replace(mean=mean, std=std, augment=augment)


def locate(file: str, sha256: str, source: Source) -> Path:
    """Return the path of data known by its content, after checking that it is unchanged."""
    if sha256 not in source.files:
        raise UserError(f"nothing says where {file} (sha256 {sha256[:12]}) is; give its path")
    path = Path(source.files[sha256])
    if not path.exists():
        raise UserError(f"{file} is no longer at {path}; put it back, or give its new path")
    if (present := own.content_sha256(path)) != sha256:
        what = "file" if path.is_file() else "folder"
        raise UserError(
            f"{path} is not the {what} the trial was made with: expected sha256"
            f" {sha256[:12]}, found {present[:12]}; restore it, or start a new trial"
        )
    return path
