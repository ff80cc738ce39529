"""Examines a machine: what it has, what is wrong, and what to type."""

import os
import platform
import resource
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Literal, NamedTuple

from packaging.requirements import Requirement

from fedgps_ray.data.datasets import Source
from fedgps_ray.data.memory import free_bytes, system_bytes
from fedgps_ray.errors import first_line

ORIGINALS = {  # files that show that a data set is there
    "cifar10": ("cifar-10-batches-py", "cifar-10-python.tar.gz"),
    "cifar100": ("cifar-100-python", "cifar-100-python.tar.gz"),
    "svhn": ("train_32x32.mat",),
}
LONGEST_TMPDIR = 40  # Ray adds about 60 characters, and a socket's path is limited to 107
GB = 1e9
SHARED_MEMORY = Path("/dev/shm")  # not on macOS


class Finding(NamedTuple):
    """One thing examined."""

    what: str
    found: str
    verdict: Literal["ok", "note", "problem"] = "ok"
    advice: str = ""


def examine(out: Path, data_dir: Path | None, start_ray: bool) -> Iterator[Finding]:
    """Yield the findings one by one; start Ray only if asked to."""
    yield Finding("Python", platform.python_version())
    yield from _packages()
    yield _cores()
    yield _memory()
    yield (gpu := _gpu())
    if gpu.verdict == "ok":
        yield repeats("cuda")
    yield _disk("results", out)
    yield _disk("Ray's temporary files", Path(os.environ.get("RAY_TMPDIR", tempfile.gettempdir())))
    yield _open_files()
    yield _token()
    yield _temporary_folder()
    yield from _data_sets(data_dir)
    if start_ray:
        yield _ray()


def _packages() -> Iterator[Finding]:
    """Compare the installed packages with what the project requires."""
    for line in requires("fedgps-ray") or []:
        wanted = Requirement(line)
        if wanted.marker is None or wanted.marker.evaluate({"extra": ""}):
            yield _package(wanted)


def _package(wanted: Requirement) -> Finding:
    advice = f'pip install "{wanted.name}{wanted.specifier}"'
    try:
        installed = version(wanted.name)
    except PackageNotFoundError:
        return Finding(wanted.name, "not installed", "problem", advice)
    if wanted.specifier.contains(installed.partition("+")[0], prereleases=True):
        return Finding(wanted.name, installed)
    return Finding(wanted.name, installed, "problem", advice)


def _cores() -> Finding:
    return Finding("CPU cores", str(os.cpu_count()))


def _memory() -> Finding:
    """Check memory; a client actor takes about 0.3 GB besides its data."""
    size, kind = free_bytes() / GB, "free" if "MemAvailable" in system_bytes() else "in total"
    shared = shutil.disk_usage(SHARED_MEMORY).free / GB if SHARED_MEMORY.exists() else None
    text = f"{size:.1f} GB {kind}"
    if size < 2:
        return Finding("memory", text, "problem", "close other programs, or use --actors 1")
    if shared is None:  # macOS has no such folder; Ray uses files in its temporary folder there
        return Finding("memory", text)
    text += f"; shared memory {shared:.1f} GB"
    if shared < 1:
        advice = "give the container more: docker run --shm-size=4g"
        return Finding("memory", text, "note", advice)
    return Finding("memory", text)


def _gpu() -> Finding:
    try:
        torch = import_module("torch")  # by name, so that a broken installation is a finding
    except ImportError as problem:
        advice = "pip install --force-reinstall torch"
        return Finding("GPU", f"PyTorch cannot be imported: {problem}", "problem", advice)
    if torch.cuda.is_available():
        names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
        return Finding("GPU", ", ".join(names), "ok", "use it with --client-gpus 0.2")
    if shutil.which("nvidia-smi"):
        advice = "PyTorch does not see it: install a CUDA build of PyTorch that fits the driver"
        return Finding("GPU", "a driver, but no device for PyTorch", "problem", advice)
    return Finding(
        "GPU", "none", "note", "everything runs on the CPU: use small models and few rounds"
    )


def repeats(device: str) -> Finding:
    """Check that a few steps give the same bits when they are done twice."""
    what = "equal bits on the GPU"
    try:
        first, second = import_module("fedgps_ray.tools.repeats").hashes(device)
    except Exception as problem:  # whatever CUDA raises is the finding
        reason = first_line(problem)
        return Finding(what, reason, "problem", "update the driver, or use --device cpu")
    if first == second:
        return Finding(what, "a few steps done twice")
    advice = "trials on it cannot be repeated exactly: update driver and PyTorch"
    return Finding(what, f"{first[:12]}, then {second[:12]}", "problem", advice)


def _disk(what: str, folder: Path) -> Finding:
    what, folder = f"disk for {what}", folder.absolute()
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    if not os.access(existing, os.W_OK):
        return Finding(what, str(existing), "problem", "not writable: use another --out")
    free = shutil.disk_usage(existing).free / GB
    if free < 2:
        return Finding(what, f"{free:.1f} GB free", "problem", f"free some space at {existing}")
    return Finding(what, f"{free:.0f} GB free")


def _open_files() -> Finding:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limits = f"{soft} (at most {hard})"
    if soft >= 1024:
        return Finding("open files", limits)
    return Finding("open files", limits, "problem", "before starting: ulimit -n 4096")


def _token() -> Finding:
    """Check the token that guards Ray's ports, which listen on all interfaces."""
    if os.environ.get("RAY_AUTH_MODE") == "disabled":
        advice = "anybody can run code here: unset RAY_AUTH_MODE"
        return Finding("Ray's token", "switched off", "problem", advice)
    path = Path(os.environ.get("RAY_AUTH_TOKEN_PATH", Path.home() / ".ray" / "auth_token"))
    if not path.exists():
        return Finding("Ray's token", "created when Ray first starts")
    if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        return Finding("Ray's token", "others can read it", "problem", f"chmod 600 {path}")
    return Finding("Ray's token", "readable by you only")


def _temporary_folder() -> Finding:
    folder = os.environ.get("RAY_TMPDIR", tempfile.gettempdir())
    if len(folder) <= LONGEST_TMPDIR:
        return Finding("Ray's folder", folder)
    return Finding(
        "Ray's folder", folder, "problem", "path too long for sockets: export RAY_TMPDIR=/tmp"
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
    began = time.monotonic()
    try:
        session = import_module("fedgps_ray.cluster.session")
        with session.connected(None):
            resources = session.totals()
    except Exception as problem:  # whatever Ray raises is the finding
        reason = first_line(problem)
        return Finding("Ray", reason, "problem", "see docs/troubleshooting.md")
    return Finding("Ray", f"starts in {time.monotonic() - began:.1f} s with {resources}")
