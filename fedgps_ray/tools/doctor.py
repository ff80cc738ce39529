"""What a newcomer's machine has, what is wrong with it, and what to type."""

import os
import platform
import resource
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Literal, NamedTuple

from packaging.requirements import Requirement

from fedgps_ray.data.datasets import Source

ORIGINALS = {  # a file by which each data set is known
    "cifar10": ("cifar-10-batches-py", "cifar-10-python.tar.gz"),
    "cifar100": ("cifar-100-python", "cifar-100-python.tar.gz"),
    "svhn": ("train_32x32.mat",),
}
LONGEST_TMPDIR = 40  # Ray adds some 60 characters to it, and a socket's name has at most 107
GB = 1e9


class Finding(NamedTuple):
    """One look at the machine."""

    what: str
    found: str
    verdict: Literal["ok", "note", "problem"] = "ok"
    advice: str = ""


def examine(out: Path, data_dir: Path | None, start_ray: bool) -> Iterator[Finding]:
    """Yield finding after finding; Ray is started only if wanted."""
    yield Finding("Python", platform.python_version())
    yield from _packages()
    yield _cores()
    yield _memory()
    yield _gpu()
    yield _disk("results", out)
    yield _disk("Ray's temporary files", Path(os.environ.get("RAY_TMPDIR", tempfile.gettempdir())))
    yield _open_files()
    yield _token()
    yield _temporary_folder()
    yield from _data_sets(data_dir)
    if start_ray:
        yield _ray()


def _packages() -> Iterator[Finding]:
    """Compare what is installed with what the project asks for."""
    for line in requires("fedgps-ray") or []:
        wanted = Requirement(line)
        if wanted.marker is not None and not wanted.marker.evaluate({"extra": ""}):
            continue
        advice = f'pip install "{wanted.name}{wanted.specifier}"'
        try:
            found = version(wanted.name)
        except PackageNotFoundError:
            yield Finding(wanted.name, "not installed", "problem", advice)
            continue
        fits = wanted.specifier.contains(found.partition("+")[0], prereleases=True)
        if fits:
            yield Finding(wanted.name, found)
        else:
            yield Finding(wanted.name, found, "problem", advice)


def _cores() -> Finding:
    return Finding("CPU cores", str(os.cpu_count()))


def _memory() -> Finding:
    """Read what is free; a client actor takes about 0.3 GB beside its data."""
    lines = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    free = int(lines["MemAvailable"].split()[0]) * 1024 / GB
    shared = shutil.disk_usage("/dev/shm").free / GB if Path("/dev/shm").exists() else 0.0
    found = f"{free:.1f} GB free; shared memory {shared:.1f} GB"
    if free < 2:
        return Finding("memory", found, "problem", "close other programs, or use --actors 1")
    if shared < 1:
        more = "give the container more: docker run --shm-size=4g"
        return Finding("memory", found, "note", more)
    return Finding("memory", found)


def _gpu() -> Finding:
    import torch

    if torch.cuda.is_available():
        names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
        return Finding("GPU", ", ".join(names), "ok", "use it with --client-gpus 0.2")
    if shutil.which("nvidia-smi"):
        advice = "PyTorch does not see it: install a CUDA build of PyTorch that fits the driver"
        return Finding("GPU", "a driver, but no device for PyTorch", "problem", advice)
    return Finding("GPU", "none", "note", "all runs on the CPU; take small models and few rounds")


def _disk(what: str, folder: Path) -> Finding:
    there = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    if not os.access(there, os.W_OK):
        return Finding(f"disk for {what}", str(there), "problem", "not writable: use another --out")
    free = shutil.disk_usage(there).free / GB
    if free < 2:
        return Finding(
            f"disk for {what}", f"{free:.1f} GB free", "problem", f"free some at {there}"
        )
    return Finding(f"disk for {what}", f"{free:.0f} GB free")


def _open_files() -> Finding:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    found = f"{soft} (at most {hard})"
    if soft >= 1024:
        return Finding("open files", found)
    return Finding("open files", found, "problem", "before starting: ulimit -n 4096")


def _token() -> Finding:
    """Look at the key to Ray's ports, which listen on all interfaces."""
    if os.environ.get("RAY_AUTH_MODE") == "disabled":
        return Finding(
            "Ray's token",
            "switched off",
            "problem",
            "anybody can run code here: unset RAY_AUTH_MODE",
        )
    path = Path(os.environ.get("RAY_AUTH_TOKEN_PATH", Path.home() / ".ray" / "auth_token"))
    if not path.exists():
        return Finding("Ray's token", "made when Ray first starts")
    if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        return Finding("Ray's token", "others can read it", "problem", f"chmod 600 {path}")
    return Finding("Ray's token", "readable by you only")


def _temporary_folder() -> Finding:
    folder = os.environ.get("RAY_TMPDIR", tempfile.gettempdir())
    if len(folder) <= LONGEST_TMPDIR:
        return Finding("Ray's folder", folder)
    return Finding(
        "Ray's folder", folder, "problem", "too long for sockets: export RAY_TMPDIR=/tmp"
    )


def _data_sets(data_dir: Path | None) -> Iterator[Finding]:
    folder = Source(data_dir).folder
    for name, files in ORIGINALS.items():
        if any((folder / file).exists() for file in files):
            yield Finding(name, str(folder))
        else:
            advice = f"fedgps-ray run --dataset {name} --download, or --data-dir DIR"
            yield Finding(name, "not here", "note", advice)


def _ray() -> Finding:
    from fedgps_ray.cluster import session

    began = time.monotonic()
    try:
        with session.connected(None):
            found = session.totals()
    except Exception as problem:  # whatever Ray raises is the finding
        return Finding(
            "Ray", str(problem).splitlines()[0], "problem", "see docs/troubleshooting.md"
        )
    return Finding("Ray", f"starts in {time.monotonic() - began:.1f} s with {found}")
