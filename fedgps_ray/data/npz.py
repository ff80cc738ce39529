"""Arrays of .npz files and of folders of .npy files, read only if they are what they claim."""

import math
import struct
import tokenize
import zipfile
import zlib
from pathlib import Path
from typing import IO

import numpy as np
from numpy.lib import format as npy

from fedgps_ray.data.arrays import KEYS, REQUIRED, Array
from fedgps_ray.data.memory import check_room
from fedgps_ray.data.own import files_of
from fedgps_ray.errors import UserError
from fedgps_ray.identity import Table

HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
UNREADABLE = (
    ValueError,
    OSError,
    EOFError,
    TypeError,
    LookupError,
    SyntaxError,
    MemoryError,
    ArithmeticError,
    struct.error,
    tokenize.TokenError,  # from the header, which is written in Python
    RuntimeError,  # encrypted, or compressed in a way that Python does not know
    zipfile.BadZipFile,
    zlib.error,
)

Arrays = dict[str, Array]


def read(path: Path) -> Arrays:
    """Return the arrays of a data set in an .npz file."""
    return named_arrays(path, REQUIRED, optional=("classes", "client_train"))


def read_folder(folder: Path) -> Arrays:
    """Return the arrays of a data set in .npy files, mapped into memory instead of read."""
    stored = {file.stem: file for file in files_of(folder, "arrays")}
    _check_present(folder, REQUIRED, stored)
    return {key: _mapped(stored[key]) for key in KEYS if key in stored}


def named_arrays(path: Path, required: tuple[str, ...], optional: tuple[str, ...] = ()) -> Arrays:
    """Return the arrays of these names in an .npz file; only the optional ones may be absent."""
    try:
        with path.open("rb") as file, _archive(path, file) as archive:
            members = {
                member.filename.removesuffix(".npy"): member for member in archive.infolist()
            }
            _check_present(path, required, members)
            chosen = {key: members[key] for key in (*required, *optional) if key in members}
            for key, member in chosen.items():
                _check_claim(path, key, archive, member)
            check_room(str(path), sum(member.file_size for member in chosen.values()))
            return {key: _array(path, key, archive, member) for key, member in chosen.items()}
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from None


def _check_present(path: Path, required: tuple[str, ...], present: Table) -> None:
    for key in required:
        if key not in present:
            listed = ", ".join(present) or "none"
            raise UserError(f"{path} has no array '{key}'; it has: {listed}")


def _archive(path: Path, file: IO[bytes]) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(file)
    except UNREADABLE:
        raise UserError(
            f"{path} is not an .npz file: expected named arrays, as numpy.savez writes"
        ) from None


def _check_claim(path: Path, key: str, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> None:
    """Compare the size that an array claims with the size of its part of the file."""
    try:
        with archive.open(member) as stream:
            claimed = _claimed_bytes(stream)
        if claimed != member.file_size:
            raise ValueError(f"it claims {claimed:,} bytes and holds {member.file_size:,}")
    except UNREADABLE as error:
        raise _not_plain(path, key, error) from None


def _claimed_bytes(stream: IO[bytes]) -> int:
    version = npy.read_magic(stream)
    if version not in HEADERS:
        raise ValueError(f"its format has version {version}")
    shape, _, dtype = HEADERS[version](stream)
    if dtype.hasobject:
        raise ValueError("it holds Python objects")
    if dtype.itemsize == 0:
        raise ValueError("its entries are empty")
    return math.prod(shape) * dtype.itemsize + stream.tell()


def _array(path: Path, key: str, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Array:
    try:
        with archive.open(member) as stream:
            array: Array = npy.read_array(stream, allow_pickle=False)
            stream.read(1)  # the end of the file, where its checksum is compared
            return array
    except UNREADABLE as error:
        raise _not_plain(path, key, error) from None


def _mapped(file: Path) -> Array:
    try:
        with file.open("rb") as stream:
            claimed = _claimed_bytes(stream)
        if claimed != file.stat().st_size:
            raise ValueError(f"it claims {claimed:,} bytes and holds {file.stat().st_size:,}")
        return np.asarray(np.load(file, mmap_mode="r", allow_pickle=False))
    except UNREADABLE as error:
        raise _not_plain(file.parent, file.stem, error) from None


def _not_plain(path: Path, key: str, error: Exception) -> UserError:
    return UserError(f"{path}: {key} cannot be read, expected a plain array: {error}")
