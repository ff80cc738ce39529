"""Results kept at a URI: a trial is downloaded before it runs, and uploaded while it runs."""

import contextlib
import shutil
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
from pyarrow import fs

from fedgps_ray.errors import UserError

Event = TypeVar("Event")
Stamp = tuple[int, int]


class Mirror:
    """The same folder at a URI that pyarrow's file systems take: s3://, gs://, hdfs://, file://."""

    def __init__(self, uri: str) -> None:
        try:
            self.system, self.root = fs.FileSystem.from_uri(uri)
        except (pa.ArrowException, ValueError, OSError) as problem:
            raise UserError(
                f"--storage {uri}: {problem}; use a URI such as s3://bucket/folder or file:///folder"
            ) from None
        self.uri = uri
        self.sent: dict[str, Stamp] = {}  # what was put, by file

    def _there(self, name: str) -> str:
        return f"{self.root.rstrip('/')}/{name}"

    def names(self, folder: str) -> list[str]:
        """Return the names of what is in a remote folder."""
        selector = fs.FileSelector(self._there(folder), allow_not_found=True)
        return sorted(info.base_name for info in self.system.get_file_info(selector))

    def fetch(self, folder: Path, name: str) -> bool:
        """Replace a trial's local folder by the remote one; say whether there was one."""
        there = self._there(name)
        if self.system.get_file_info(f"{there}/trial.json").type == fs.FileType.NotFound:
            return False
        beside = (folder / name).with_name(f".{Path(name).name}.fetched")  # hidden: not whole yet
        shutil.rmtree(beside, ignore_errors=True)
        beside.mkdir(parents=True)
        fs.copy_files(there, str(beside), self.system, fs.LocalFileSystem())
        shutil.rmtree(folder / name, ignore_errors=True)
        beside.rename(folder / name)
        return True

    def put(self, folder: Path, name: str) -> None:
        """Upload what has changed, trial.json last, and delete remote files that are gone here."""
        here = {path.relative_to(folder).as_posix(): path for path in _files(folder / name)}
        order = sorted(here, key=lambda file: (file.endswith("trial.json"), file))
        for file in order:
            self._send(file, here[file])
        for gone in self._others(name, set(here)):
            with contextlib.suppress(FileNotFoundError):
                self.system.delete_file(gone)

    def put_file(self, folder: Path, file: str) -> None:
        """Upload one file."""
        self._send(file, folder / file)

    def _send(self, file: str, path: Path) -> None:
        known = path.stat()
        stamp = (known.st_mtime_ns, known.st_size)
        if self.sent.get(file) == stamp:
            return
        there = self._there(file)
        self.system.create_dir(there.rpartition("/")[0], recursive=True)
        fs.copy_files(str(path), there, fs.LocalFileSystem(), self.system)
        self.sent[file] = stamp

    def _others(self, name: str, here: set[str]) -> Iterator[str]:
        selector = fs.FileSelector(self._there(name), recursive=True, allow_not_found=True)
        prefix = self._there("")
        for info in self.system.get_file_info(selector):
            if info.is_file and info.path.removeprefix(prefix) not in here:
                yield info.path


def _files(folder: Path) -> Iterator[Path]:
    """Yield the complete files of a folder: no locks, no temporary files."""
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.name.startswith("."):
            yield path


def mirrored(
    mirror: Mirror, folder: Path, name: str, events: Generator[Event], seconds: float
) -> Generator[Event]:
    """Pass on a trial's events; upload its folder at intervals, and at the end."""
    due = time.monotonic() + seconds
    try:
        for event in events:
            if time.monotonic() >= due:
                mirror.put(folder, name)
                due = time.monotonic() + seconds
            yield event
    finally:
        events.close()
        mirror.put(folder, name)
