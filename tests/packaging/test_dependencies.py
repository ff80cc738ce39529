"""What the package imports is what it declares."""

import ast
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
FOLDERS = [ROOT / name for name in ("fedgps_ray", "analysis", "experiments")]
SOURCES = sorted(path for folder in FOLDERS for path in folder.rglob("*.py"))
NOT_INSTALLED = {*sys.stdlib_module_names, "fedgps_ray"}
OWNERS = {
    name: {canonicalize_name(owner) for owner in owners}
    for name, owners in packages_distributions().items()
}


def declared():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return {canonicalize_name(Requirement(line).name) for line in project["dependencies"]}


def imported(path):
    """Return the top-level names that a file imports, wherever in the file."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.split(".")[0])
    return found - NOT_INSTALLED


USED = {str(path.relative_to(ROOT)): imported(path) for path in SOURCES}


def test_every_imported_package_is_declared():
    allowed = declared()
    missing = {
        (path, name)
        for path, names in USED.items()
        for name in names
        if not OWNERS.get(name, set()) & allowed
    }
    assert missing == set()


def test_every_declared_package_is_imported():
    used = set().union(*(OWNERS.get(name, set()) for names in USED.values() for name in names))
    assert declared() - used == set()
