"""Files of a user that a results folder names: found by path, used only if their hash is right."""

from pathlib import Path

from fedgps_ray.errors import UserError
from fedgps_ray.results.read import HASH


def known_files(told: object) -> dict[str, str]:
    """Return where files may be that the settings name by their content, which is checked."""
    return {key: path for key, path in named_files(told).items() if _may_be_read(Path(path))}


def _may_be_read(path: Path) -> bool:
    """Say whether a path is not a device or pipe; a missing file is reported when it is read."""
    return path.is_file() or path.is_dir() or not path.exists()


def named_files(told: object) -> dict[str, str]:
    """Return the paths that a folder has for hashes of content."""
    if not isinstance(told, dict):
        raise UserError(f"execution.files: must be a table, got {told!r}")
    return {key: str(path) for key, path in told.items() if HASH.fullmatch(key)}
