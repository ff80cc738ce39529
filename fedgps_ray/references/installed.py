"""Modules of installed packages, found without importing them, and the names they publish."""

import hashlib
import importlib.machinery
import importlib.metadata
import importlib.util
import json
import sys
from pathlib import Path
from typing import NamedTuple

from fedgps_ray.references.code import Kind


class Package(NamedTuple):
    """What is installed: its name and its public version."""

    name: str
    version: str


def published(kind: Kind) -> dict[str, str]:
    """Return the names that installed packages publish as entry points, with what they mean."""
    points = importlib.metadata.entry_points(group=f"fedgps_ray.{kind}s")
    return {point.name: f"{point.module}:{point.attr}" for point in sorted(points)}


def locate(module: str) -> Path | None:
    """Return the file of a module; the packages above it are not imported."""
    top, *rest = module.split(".")
    spec = _top_level(top)
    path = top
    for part in rest:
        if spec is None or spec.submodule_search_locations is None:
            return None
        path = f"{path}.{part}"
        folders = list(spec.submodule_search_locations)
        spec = importlib.machinery.PathFinder.find_spec(path, folders)
    return Path(spec.origin) if spec is not None and spec.has_location and spec.origin else None


def _top_level(name: str) -> importlib.machinery.ModuleSpec | None:
    try:
        return importlib.util.find_spec(name)
    except (ImportError, ValueError):  # an empty name, or a module that was put together by hand
        return None


def package_of(module: str) -> Package | None:
    """Return the package that must be installed for a module, or None for files of the user's."""
    top = module.partition(".")[0]
    if top in sys.stdlib_module_names:
        return Package("python", f"{sys.version_info.major}.{sys.version_info.minor}")
    if top == "fedgps_ray":
        return Package("fedgps-ray", importlib.metadata.version("fedgps-ray"))
    names = importlib.metadata.packages_distributions().get(top, [])
    known = [importlib.metadata.distribution(name) for name in sorted(set(names))]
    fixed = [distribution for distribution in known if not _is_editable(distribution)]
    # the part after "+" names a build (cpu, cu130), which is not another version of the code
    return Package(fixed[0].name, fixed[0].version.partition("+")[0]) if fixed else None


def _is_editable(distribution: importlib.metadata.Distribution) -> bool:
    """Say whether a package is used from the folder in which it is being written."""
    text = distribution.read_text("direct_url.json")
    return bool(text and json.loads(text).get("dir_info", {}).get("editable"))


def file_digest(file: Path) -> str:
    """Return the hash of a file."""
    return hashlib.sha256(file.read_bytes()).hexdigest()
