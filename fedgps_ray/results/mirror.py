"""Results kept at a URI: a trial is downloaded before it runs, and uploaded while it runs."""

import contextlib
import json
import re
import shutil
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
from pyarrow import fs

from fedgps_ray.errors import Lost, UserError
from fedgps_ray.results import files
from fedgps_ray.results.read import DAMAGED, check
from fedgps_ray.results.schema import DONE

Event = TypeVar("Event")
Answer = TypeVar("Answer")
Stamp = tuple[int, int]
Progress = tuple[bool, int]  # whether a trial has ended, and the round of its newest checkpoint

PAUSES = (1.0, 3.0)  # seconds before a request is made again
AT_ONCE = ("s3", "gcs", "abfs")  # where a file is there when it is complete, and not before
OURS = re.compile(r"(checkpoint/)?[A-Za-z0-9][\w.-]*")  # what a trial's files are called
MANIFEST = re.compile(r"round-(\d{6,})\.json")
_LOGIN = re.compile(r"(?<=//)[^/@\s]*@")
_SECRET = re.compile(r"(?i)([?&][^=&\s]*(?:key|secret|token|password)[^=&\s]*=)[^&\s]*")


def redacted(text: str) -> str:
    """Return a URI, or a text with URIs, without the passwords in it."""
    return _SECRET.sub(r"\1***", _LOGIN.sub("***@", text))


class Mirror:
    """The same folder at a URI that pyarrow's file systems take: s3://, gs://, hdfs://, file://."""

    def __init__(self, uri: str) -> None:
        self.uri = redacted(uri)
        try:
            self.system, self.root = fs.FileSystem.from_uri(uri)
        except (pa.ArrowException, ValueError, OSError) as problem:
            reason = redacted(str(problem).replace(uri, self.uri))
            raise UserError(
                f"--storage {self.uri}: {reason}; use a URI such as s3://bucket/folder or"
                " file:///folder"
            ) from None
        self.sent: dict[str, Stamp] = {}  # what was put, by file

    def _there(self, name: str) -> str:
        return f"{self.root.rstrip('/')}/{name}"

    def names(self, folder: str) -> list[str]:
        """Return the names of what is in a remote folder."""
        return [info.base_name for info in self._listed(folder, recursive=False)]

    def _listed(self, folder: str, recursive: bool = True) -> list[fs.FileInfo]:
        selector = fs.FileSelector(self._there(folder), allow_not_found=True, recursive=recursive)
        infos = self._tried(lambda: self.system.get_file_info(selector))
        return sorted(infos, key=lambda info: str(info.path))

    def _tried(self, request: Callable[[], Answer]) -> Answer:
        """Make a request, again after a pause if it fails."""
        for pause in (*PAUSES, None):
            try:
                return request()
            except FileNotFoundError:
                raise
            except OSError as problem:
                if pause is None:
                    reason = redacted(str(problem).partition("\n")[0])
                    raise Lost(f"the storage at {self.uri} does not answer: {reason}") from None
                time.sleep(pause)
        raise AssertionError("the last attempt returns or raises")

    # --- from there ------------------------------------------------------------------------------

    def fetch(self, folder: Path, name: str) -> bool:
        """Replace a trial's local folder by the remote one; say whether that was done.

        What is here stays if it got further: it could not be sent before.
        """
        remote = {self._own_name(info, name): info for info in self._listed(name) if info.is_file}
        here = folder / name
        if "trial.json" not in remote or _progress(here) > self._progress(name, remote):
            return False
        files.folder(here.parent)
        files.refuse_link(here)
        beside = here.with_name(f".{here.name}.fetched")  # hidden: not whole yet
        _remove(beside)
        for inner, info in remote.items():
            self._bring(info.path, beside / inner)
        _remove(here)
        beside.rename(here)
        return True

    def _own_name(self, info: fs.FileInfo, name: str) -> str:
        """Return a remote file's path within its trial; refuse one that leads elsewhere."""
        inner = str(info.path).removeprefix(self._there(name)).lstrip("/")
        if not OURS.fullmatch(inner):
            raise UserError(
                f"{redacted(str(info.path))!r} is not a file of a trial; remove it there"
            )
        return inner

    def _bring(self, there: str, here: Path) -> None:
        here.parent.mkdir(parents=True, exist_ok=True)
        local = fs.LocalFileSystem()
        self._tried(lambda: fs.copy_files(there, str(here), self.system, local))

    def _progress(self, name: str, remote: dict[str, fs.FileInfo]) -> Progress:
        text = self._tried(lambda: self._read(self._there(f"{name}/trial.json")))
        return _has_ended(text), _newest(remote)

    def _read(self, there: str) -> bytes:
        with self.system.open_input_stream(there) as stream:
            content: bytes = stream.read()
        return content

    # --- to there --------------------------------------------------------------------------------

    def put(self, folder: Path, name: str) -> None:
        """Upload what has changed, trial.json last, and delete remote files that are gone here."""
        here = {path.relative_to(folder).as_posix(): path for path in _files(folder / name)}
        for file in sorted(here, key=_turn):
            self._send(file, here[file])
        for gone in self._others(name, set(here)):
            with contextlib.suppress(FileNotFoundError):
                self._delete(gone)

    def put_file(self, folder: Path, file: str) -> None:
        """Upload one file."""
        self._send(file, folder / file)

    def drop(self, name: str) -> None:
        """Delete a trial there, trial.json first: without it the rest does not count as a trial."""
        paths = [info.path for info in self._listed(name) if info.is_file]
        for path in sorted(paths, key=lambda path: not path.endswith("/trial.json")):
            self._delete(path)
        self.sent = {file: stamp for file, stamp in self.sent.items() if not file.startswith(name)}

    def _delete(self, path: str) -> None:
        self._tried(lambda: self.system.delete_file(path))

    def _send(self, file: str, path: Path) -> None:
        known = path.stat()
        stamp = (known.st_mtime_ns, known.st_size)
        if self.sent.get(file) != stamp:
            self._tried(lambda: self._copy(path, self._there(file)))
            self.sent[file] = stamp

    def _copy(self, path: Path, there: str) -> None:
        """Upload a file so that it is there when it is complete, and not before."""
        local = fs.LocalFileSystem()
        self.system.create_dir(there.rpartition("/")[0], recursive=True)
        if self.system.type_name in AT_ONCE:
            fs.copy_files(str(path), there, local, self.system)
            return
        parent, _, name = there.rpartition("/")
        beside = f"{parent}/.{name}.part"
        fs.copy_files(str(path), beside, local, self.system)
        self.system.move(beside, there)

    def _others(self, name: str, here: set[str]) -> Iterator[str]:
        """Yield the remote files of a trial that are gone here; what is not ours stays."""
        for info in self._listed(name):
            inner = str(info.path).removeprefix(self._there(name)).lstrip("/")
            if info.is_file and OURS.fullmatch(inner) and f"{name}/{inner}" not in here:
                yield info.path


def _turn(file: str) -> tuple[int, str]:
    """Sort files so that what refers to others is sent after them."""
    late = (".safetensors", ".parquet", "checkpoint", "trial.json")
    is_manifest = bool(MANIFEST.fullmatch(file.rpartition("/")[2]))
    kind = "checkpoint" if is_manifest else next((end for end in late if file.endswith(end)), "")
    return (late.index(kind) if kind else 0), file


def _files(folder: Path) -> Iterator[Path]:
    """Yield the complete files of a folder: no locks, no temporary files, and nothing by a link."""
    for path in sorted(folder.rglob("*")):
        if not path.name.startswith("."):
            files.refuse_link(path)
            if path.is_file():
                yield path


def _remove(folder: Path) -> None:
    files.refuse_link(folder)
    shutil.rmtree(folder, ignore_errors=True)


def _progress(folder: Path) -> Progress:
    """Return how far a trial has come here; one that is damaged or absent has not begun."""
    if not (folder / "trial.json").exists() or check(folder):
        return False, -1
    names = {f"checkpoint/{path.name}" for path in (folder / "checkpoint").glob("round-*.json")}
    return _has_ended(files.read_bytes(folder / "trial.json")), _newest(names)


def _has_ended(text: str | bytes) -> bool:
    try:
        return json.loads(text)["status"] in DONE
    except DAMAGED:
        return False


def _newest(names: "set[str] | dict[str, fs.FileInfo]") -> int:
    """Return the round of the newest checkpoint."""
    matches = (MANIFEST.fullmatch(name.removeprefix("checkpoint/")) for name in names)
    return max((int(match[1]) for match in matches if match), default=0)


def mirrored(
    mirror: Mirror, folder: Path, name: str, events: Generator[Event], seconds: float
) -> Generator[Event]:
    """Pass on a trial's events; upload its folder at intervals, and at the end."""
    due = time.monotonic() + seconds
    try:
        for event in events:
            if time.monotonic() >= due:
                with contextlib.suppress(Lost):  # the trial continues, and sends it the next time
                    mirror.put(folder, name)
                due = time.monotonic() + seconds
            yield event
    finally:
        events.close()
        mirror.put(folder, name)
