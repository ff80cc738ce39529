"""A user's own data: which format a file or folder has, and the hash of its content."""

import functools
import hashlib
from pathlib import Path

from fedgps_ray.errors import UserError
from fedgps_ray.units import is_text, printable

PATTERNS = {  # the files of a folder that are read, and so make up its content
    "arrays": ("*.npy",),
    "hugging_face": ("*/*.arrow",),
    "leaf": ("train/*.json", "test/*.json"),
    "image_folder": ("*/*/*",),
}
PICTURES = {".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"}


def format_of(path: Path) -> str:
    """Return the format of a file or folder, which its content shows."""
    if path.is_file() and path.suffix == ".npz":
        return "npz"
    if not path.is_dir():
        raise _absent(path)
    if (path / "x_train.npy").is_file():
        return "arrays"
    for name in ("hugging_face", "leaf", "image_folder"):
        if any(file.relative_to(path).parts[0] == "train" for file in files_of(path, name)):
            return name
    raise UserError(
        f"{path} is a folder of no known format: expected x_train.npy and so on; train/*.arrow as"
        " Hugging Face's save_to_disk writes it; train/*.json as LEAF writes it; or"
        " train/<class>/ with images"
    )


def _absent(path: Path) -> UserError:
    near = sorted(file.name for file in path.parent.glob("*.npz") if file.is_file())
    listed = ", ".join(near[:10]) or "none"
    if path.is_file():
        return UserError(f"{path} is not an .npz file or a folder; .npz files beside it: {listed}")
    what = "file" if path.suffix == ".npz" else "file or folder"
    return UserError(f"no {what} {path}; .npz files in {path.parent}: {listed}")


def files_of(folder: Path, name: str) -> list[Path]:
    """Return the files of a folder that are read for a format, in the order of their paths."""
    listed = [file for pattern in PATTERNS[name] for file in folder.glob(pattern)]
    read = sorted(file for file in listed if file.is_file() and _is_read(file, name))
    for file in read:
        if not is_text(str(file.relative_to(folder))):
            raise UserError(f"{printable(str(file))}: its name is not valid UTF-8; rename it")
    return read


def _is_read(file: Path, name: str) -> bool:
    if name == "image_folder":
        return file.suffix.lower() in PICTURES and not file.name.startswith(".")
    return not file.name.startswith((".", "cache-"))  # what Hugging Face keeps beside the data


def content_sha256(path: Path) -> str:
    """Return the hash of a file, or of all names and contents in a folder that are read."""
    if path.is_file():
        return _file_sha256(path)
    whole = hashlib.sha256()
    for file in _files(path):
        whole.update(f"{file.relative_to(path).as_posix()}\0{_file_sha256(file)}\n".encode())
    return whole.hexdigest()


def known_sha256(path: Path) -> str:
    """Return the same, computed once for as long as no file changes in size or in time."""
    stamps = [(file, file.stat().st_size, file.stat().st_mtime_ns) for file in _files(path)]
    return _remembered(path, tuple(stamps))


@functools.cache
def _remembered(path: Path, stamps: tuple[tuple[Path, int, int], ...]) -> str:
    return content_sha256(path)


def _files(path: Path) -> list[Path]:
    return [path] if path.is_file() else files_of(path, format_of(path))


def _file_sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
