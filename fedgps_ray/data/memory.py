"""How much memory is free, so that what cannot fit is refused before it is asked for."""

import os
from pathlib import Path

from fedgps_ray.errors import UserError

SHARE = 0.8  # of the free memory that the arrays of a data set may take
GB = 10**9
MEMINFO = Path("/proc/meminfo")
CONTAINER_LIMIT = Path("/sys/fs/cgroup/memory.max")


def free_bytes() -> int:
    """Return the memory that is free, or all that the machine has where the system hides it."""
    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min(system_bytes().get("MemAvailable", whole), _container_limit())


def system_bytes() -> dict[str, int]:
    """Return what Linux says about its memory, by its names for it; nothing elsewhere."""
    try:
        lines = [line.split() for line in MEMINFO.read_text().splitlines()]
        return {words[0].rstrip(":"): 1024 * int(words[1]) for words in lines}
    except (OSError, LookupError, ValueError):
        return {}


def _container_limit() -> int:
    try:
        return int(CONTAINER_LIMIT.read_text())
    except (OSError, ValueError):  # no container, or no limit: "max"
        return 2**63


def check_room(where: str, num_bytes: int) -> None:
    """Refuse arrays that would not fit into memory."""
    if num_bytes > SHARE * (free := free_bytes()):
        raise UserError(
            f"{where}: its arrays take {num_bytes / GB:,.1f} GB, this machine has"
            f" {free / GB:,.1f} GB of memory free"
        )
