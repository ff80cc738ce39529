"""Results kept at a URI: a trial is downloaded before it runs, and uploaded while it runs."""

import contextlib
import re
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple, TypeVar

import pyarrow as pa
from pyarrow import fs

from fedgps_ray.errors import CannotWrite, Lost, Overtaken, UserError
from fedgps_ray.results import files, moves
from fedgps_ray.results.checkpoints import manifests, read_manifest
from fedgps_ray.results.read import DAMAGED, SEALED, NewerLayout, check_files, read_trial
from fedgps_ray.results.schema import DONE
from fedgps_ray.results.uri import redacted, without_secrets

Event = TypeVar("Event")
Answer = TypeVar("Answer")
Stamp = tuple[int, int]
Files = dict[str, fs.FileInfo]  # of a trial at the storage, by their path within it

PAUSES = (1.0, 3.0)  # seconds before a request is made again
AT_ONCE = ("s3", "gcs", "abfs")  # where a file is there when it is complete, and not before
CHUNK = 2**22  # bytes
MANIFEST = re.compile(r"checkpoint/round-(\d{6,})\.json")
KNOWN = re.compile(  # what a trial's files are called
    "|".join(map(re.escape, ("trial.json", *SEALED)))
    + r"|checkpoint/[\w-]+\.(json|safetensors|damaged)"
    + r"|code/[0-9a-f]{12}(/\w[\w .-]*)+"
)
DRAFT = re.compile(r"(.*/)?\.[^/]*\.part")  # of an upload that was cut off


class Progress(NamedTuple):
    """How far a trial has come, to be compared."""

    has_ended: bool = False
    checkpoint: int = -1  # the round of the newest; -1: the trial is absent or damaged


class Remote(NamedTuple):
    """A trial at the storage: its files, and its trial.json as text."""

    files: Files
    trial_json: bytes | None

    @property
    def progress(self) -> Progress:
        """How far it has come by what it says itself, which is checked when it is here."""
        if self.trial_json is None:
            return Progress()
        if self.has_ended:
            return Progress(True, 0)
        rounds = (int(found[1]) for found in map(MANIFEST.fullmatch, self.files) if found)
        return Progress(False, max(rounds, default=0))

    @property
    def has_ended(self) -> bool:
        """Whether it has ended and has all its files."""
        try:
            info = files.parse_json((self.trial_json or b"").decode())
            is_whole = set(info.get("files", {})) <= set(self.files)
            return is_whole and info["status"] in DONE and "rounds_done" in info["summary"]
        except DAMAGED:
            return False


class Mirror:
    """The same folder at a URI that pyarrow's file systems take: s3://, gs://, hdfs://, file://."""

    def __init__(self, uri: str) -> None:
        self.uri, self._secret = redacted(uri), uri
        try:
            self.system, self.root = fs.FileSystem.from_uri(uri)
        except (pa.ArrowException, ValueError, OSError) as problem:
            raise UserError(
                f"--storage {self.uri}: {self._plain(problem)}; use a URI such as"
                " s3://bucket/folder or file:///folder"
            ) from None
        self.sent: dict[str, Stamp] = {}  # what was put, by file
        self.known: dict[str, bytes] = {}  # trial.json as it was put, by trial
        self.replaced: set[str] = set()  # trials that are damaged there, or are to be run anew
        self.notes: list[str] = []  # what a user should know

    def _plain(self, problem: object) -> str:
        return without_secrets(str(problem).partition("\n")[0], self._secret)

    def _there(self, name: str) -> str:
        return f"{self.root.rstrip('/')}/{name}"

    def names(self, folder: str) -> list[str]:
        """Return the names of what is in a remote folder."""
        return [info.base_name for info in self._listed(folder, recursive=False)]

    def _listed(self, folder: str, recursive: bool = True) -> list[fs.FileInfo]:
        selector = fs.FileSelector(self._there(folder), allow_not_found=True, recursive=recursive)
        infos = self._tried(lambda: self.system.get_file_info(selector))
        return sorted(infos, key=lambda info: str(info.path))

    def _inside(self, name: str) -> Files:
        """Return the files of a trial's remote folder, whatever they are."""
        start = len(self._there(name)) + 1
        return {str(info.path)[start:]: info for info in self._listed(name) if info.is_file}

    def _tried(self, request: Callable[[], Answer]) -> Answer:
        """Make a request, again after a pause if it fails."""
        for pause in (*PAUSES, None):
            try:
                return request()
            except FileNotFoundError:
                raise
            except OSError as problem:
                if pause is None:
                    reason = self._plain(problem)
                    raise Lost(f"the storage at {self.uri} does not answer: {reason}") from None
                time.sleep(pause)
        raise AssertionError("the last attempt returns or raises")

    # --- from there ------------------------------------------------------------------------------

    def fetch(self, folder: Path, name: str, patience: float = files.MOMENT) -> bool:
        """Take over a trial from there if it got further there and is whole; say whether it was.

        patience: how many seconds to wait for another process that works on the one here.
        """
        here = folder / name
        if name in self.replaced or progress(here).has_ended:
            return False
        remote = self._remote(name)
        if remote.progress <= progress(here):
            return False
        for path in (here.parent, here):
            files.refuse_link(path)
        with files.lock(here, patience), moves.draft(here, "fetched") as fresh:
            return self._take_over(remote, here, fresh)

    def _remote(self, name: str) -> Remote:
        """Return what there is of a trial; refuse what is not a trial's."""
        found = {k: i for k, i in self._inside(name).items() if not i.base_name.startswith(".")}
        for inner, info in found.items():
            self._check_file(inner, info, found)
        text = self._read(f"{name}/trial.json") if "trial.json" in found else None
        return Remote(found, text)

    def _check_file(self, inner: str, info: fs.FileInfo, others: Files) -> None:
        """Refuse a file that leads elsewhere, is also a folder, or is too long to be ours."""
        is_folder = any(other.startswith(f"{inner}/") for other in others)
        is_long = not inner.endswith(".safetensors") and info.size > files.MOST_BYTES
        if not KNOWN.fullmatch(inner) or is_folder or is_long:
            path = self._plain(info.path)
            raise UserError(f"{path!r} is not a file of a trial; remove it there")

    def _take_over(self, remote: Remote, here: Path, fresh: Path) -> bool:
        """Replace a trial by one that got further, which is checked first."""
        mine = progress(here)
        if remote.progress <= mine:  # another process ran it while this one waited
            return False
        for inner, info in remote.files.items():
            self._bring(info, fresh / inner)
        if progress(fresh, full=True) <= mine:
            self._note_damage(here, fresh)
            return False
        moves.replace(here, fresh, keep=mine == Progress() and any(here.glob("[!.]*")))
        return True

    def _note_damage(self, here: Path, fresh: Path) -> None:
        self.replaced.add(f"{here.parent.name}/{here.name}")  # by ours, when that is sent
        kept = moves.moved(fresh, here.parent.parent / moves.QUARANTINE)
        self.notes.append(
            f"{here.name} is damaged at {self.uri} and is not taken over; a copy is in {kept}"
        )

    def _bring(self, info: fs.FileInfo, here: Path) -> None:
        """Download a file; one that comes in another length is not damaged there."""
        files.folder(here.parent)
        try:
            with here.open("wb") as file:
                self._tried(lambda: self._pour(str(info.path), file))
            is_whole = here.stat().st_size == info.size
        except FileNotFoundError:
            is_whole = False
        except OSError as problem:  # of closing the file
            raise CannotWrite(f"cannot write {here}: {problem.strerror}") from None
        if not is_whole:
            raise Lost(f"{self._plain(info.path)!r} was changed or cut short while it was read")

    def _pour(self, there: str, file: BinaryIO) -> None:
        """Copy a remote file to a local one; what fails here is not the storage's fault."""
        file.seek(0)
        file.truncate()
        with self.system.open_input_stream(there) as stream:
            while chunk := stream.read(CHUNK):
                try:
                    file.write(chunk)
                    file.flush()
                except OSError as problem:
                    raise CannotWrite(f"cannot write {file.name}: {problem.strerror}") from None

    def _read(self, file: str) -> bytes | None:
        """Return the content of a small remote file; None if there is none."""
        with contextlib.suppress(FileNotFoundError):
            content = self._tried(lambda: self._content(self._there(file)))
            if len(content) <= files.MOST_BYTES:
                return content
            raise UserError(f"{self._plain(file)!r} is too long; remove it there")
        return None

    def _content(self, there: str) -> bytes:
        with self.system.open_input_stream(there) as stream:
            content: bytes = stream.read(files.MOST_BYTES + 1)
        return content

    # --- to there --------------------------------------------------------------------------------

    def lacks(self, folder: Path, name: str) -> bool:
        """Say whether a trial that has ended here is absent there, or not whole."""
        theirs = self._inside(name)
        here = {path.relative_to(folder / name).as_posix(): path for path in _files(folder / name)}
        if all(k in theirs and theirs[k].size == path.stat().st_size for k, path in here.items()):
            return False
        return name in self.replaced or not self._remote(name).has_ended

    def put(self, folder: Path, name: str) -> None:
        """Upload what has changed, trial.json last, and delete remote files that are gone here.

        Nothing is sent where there is no trial here, nor where another machine has ended it.
        """
        own = folder / name / "trial.json"
        if not own.is_file():
            return
        mine, there = files.read_bytes(own), self._read(f"{name}/trial.json")
        self._compare(name, mine, there)
        here = {path.relative_to(folder).as_posix(): path for path in _files(folder / name)}
        *parts, last = sorted(here, key=_turn)
        self._send_all(parts, here)
        if self._read(f"{name}/trial.json") != there:  # another machine sent in between
            self._forget(name)
            self._send_all(parts, here)
        self._send(last, own)
        self.known[name] = mine
        if own.is_file():
            self._delete_others(name, set(here))
        self.replaced.discard(name)

    def _compare(self, name: str, mine: bytes, there: bytes | None) -> None:
        """Find out whether another machine has sent the same trial: all is sent again then."""
        if there is None or there == self.known.get(name):
            return
        self._forget(name)
        theirs = Remote(self._inside(name), there)
        if name not in self.replaced and theirs.has_ended and not _says_done(mine):
            raise Overtaken(
                f"another machine has ended {name} at {self.uri}; nothing is sent, and its result"
                " is taken over the next time"
            )

    def _send_all(self, names: Sequence[str], here: Mapping[str, Path]) -> None:
        for file in names:
            self._send(file, here[file])

    def _forget(self, name: str) -> None:
        self.sent = {file: stamp for file, stamp in self.sent.items() if not file.startswith(name)}
        self.known.pop(name, None)

    def _delete_others(self, name: str, here: set[str]) -> None:
        """Delete the remote files of a trial that are gone here; what is not ours stays."""
        for inner, info in self._inside(name).items():
            is_ours = KNOWN.fullmatch(inner) or DRAFT.fullmatch(inner)
            if is_ours and f"{name}/{inner}" not in here:
                with contextlib.suppress(FileNotFoundError):
                    self._delete(str(info.path))

    def put_file(self, folder: Path, file: str) -> None:
        """Upload one file."""
        self._send(file, folder / file)

    def drop(self, name: str) -> None:
        """Delete a trial there, trial.json first: without it the rest does not count as a trial."""
        paths = [info.path for info in self._listed(name) if info.is_file]
        for path in sorted(paths, key=lambda path: not path.endswith("/trial.json")):
            self._delete(path)
        self._forget(name)

    def _delete(self, path: str) -> None:
        self._tried(lambda: self.system.delete_file(path))

    def _send(self, file: str, path: Path) -> None:
        try:
            known = path.stat()
            stamp = (known.st_mtime_ns, known.st_size)
            if self.sent.get(file) != stamp:
                self._tried(lambda: self._copy(path, self._there(file)))
                self.sent[file] = stamp
        except FileNotFoundError:
            raise Lost(f"{path} was deleted or moved while it was sent") from None

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


def _turn(file: str) -> tuple[int, str]:
    """Sort files so that what refers to others is sent after them."""
    late = (".safetensors", ".parquet", "checkpoint", "trial.json")
    is_manifest = "/checkpoint/round-" in file and file.endswith(".json")
    kind = "checkpoint" if is_manifest else next((end for end in late if file.endswith(end)), "")
    return (late.index(kind) if kind else 0), file


def _files(folder: Path) -> Iterator[Path]:
    """Yield the complete files of a trial: no locks, no temporary files, and nothing by a link."""
    for path in sorted(folder.rglob("*")):
        if not path.name.startswith("."):
            files.refuse_link(path)
            if path.is_file() and KNOWN.fullmatch(path.relative_to(folder).as_posix()):
                yield path


# --- how far a trial is -----------------------------------------------------------------------


def progress(folder: Path, full: bool = False) -> Progress:
    """Return how far a trial has come here; one that is damaged or absent has not begun.

    full: check the content of all its files.
    """
    if not (folder / "trial.json").exists():
        return Progress()
    try:
        info = read_trial(folder)
    except NewerLayout:  # not damaged: not to be replaced
        raise
    except UserError:
        return Progress()
    if info["status"] in DONE:
        return Progress() if check_files(folder, info, full) else Progress(True, 0)
    return Progress(False, _checkpoint(folder, full))


def _checkpoint(folder: Path, full: bool) -> int:
    """Return the round of the newest whole checkpoint, which is of no use without its rows."""
    if not all((folder / name).exists() for name in ("rounds.parquet", "clients.parquet")):
        return 0
    rounds = (_rounds_of(path, full) for path in manifests(folder / "checkpoint"))
    return next((number for number in rounds if number is not None), 0)


def _rounds_of(manifest: Path, full: bool) -> int | None:
    """Return the round of a checkpoint; None if it is damaged."""
    try:
        content = read_manifest(manifest)
        for name, sha256 in content["files"].items():
            file = manifest.with_name(name)
            if not file.is_file() or (full and files.sha256(file) != sha256):
                return None
        return int(content["rounds_done"])
    except DAMAGED:
        return None


def _says_done(text: bytes) -> bool:
    try:
        return files.parse_json(text.decode())["status"] in DONE
    except DAMAGED:
        return False


# --- while a trial runs -----------------------------------------------------------------------


def mirrored(
    mirror: Mirror, folder: Path, name: str, events: Generator[Event], seconds: float
) -> Generator[Event]:
    """Pass on a trial's events; upload its folder at intervals, and at the end."""
    try:
        yield from _sending(mirror, folder, name, events, seconds)
    except GeneratorExit:
        events.close()
        mirror.put(folder, name)
        raise
    except BaseException:  # what went wrong is to be told, not that it could not be sent
        events.close()
        with contextlib.suppress(Lost, UserError):
            mirror.put(folder, name)
        raise
    mirror.put(folder, name)


def _sending(
    mirror: Mirror, folder: Path, name: str, events: Generator[Event], seconds: float
) -> Generator[Event]:
    due = time.monotonic() + seconds
    for event in events:
        if time.monotonic() >= due:
            try:
                mirror.put(folder, name)
            except Overtaken:
                raise
            except Lost:  # the trial continues, and sends it the next time
                pass
            due = time.monotonic() + seconds
        yield event
