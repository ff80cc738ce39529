"""How busy the machine is on which a sweep's driver runs; empty where the system does not say."""

from pathlib import Path
from typing import NamedTuple

from fedgps_ray.data.memory import system_bytes

STAT = Path("/proc/stat")


class Ticks(NamedTuple):
    """The time that all cores have spent, and how much of it they were idle."""

    total: int
    idle: int


def ticks() -> Ticks | None:
    """Return the time spent so far."""
    try:
        numbers = [int(word) for word in STAT.read_text().splitlines()[0].split()[1:9]]
        return Ticks(sum(numbers), numbers[3] + numbers[4])
    except (OSError, ValueError, IndexError):
        return None


def busy(before: Ticks | None, after: Ticks | None) -> float | None:
    """Return the share of the time in between that the cores worked."""
    if before is None or after is None or after.total <= before.total:
        return None
    return 1 - (after.idle - before.idle) / (after.total - before.total)


def memory() -> dict[str, float]:
    """Return the bytes of memory that there are, and that are in use."""
    known = system_bytes()
    if not {"MemTotal", "MemAvailable"} <= set(known):
        return {}
    return {"memory": known["MemTotal"], "memory_used": known["MemTotal"] - known["MemAvailable"]}
