"""What chaos may kill: the processes of a local Ray of its own, or its own actors on a cluster."""

import contextlib
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, Protocol

from fedgps_ray.cluster import signals
from fedgps_ray.cluster.reaper import kill_all, processes_of

KINDS = {  # by what the command line of a process says
    "client": "ray::ClientActor",
    "server": "ray::ServerActor",
    "trial": "ray::ResourceTrainable",
    "library": "ray::Library",
    "raylet": "/raylet/raylet ",
    "GCS": "/gcs/gcs_server ",
}
CHOSEN = ("FEDGPS_RAY_ADDRESS", "RAY_ADDRESS")  # where to run, according to the environment


class Process(NamedTuple):
    """An actor's process on a node of a joined cluster; without a node, any on this machine."""

    pid: int
    node: str = ""
    actor: str = ""  # its class


class Targets(Protocol):
    """Where the drivers of sweeps run, and the processes that they start."""

    options: list[str]  # for the command of a driver
    environment: dict[str, str]

    def find(self) -> dict[Process, str]:
        """Return what runs because of the driver, and how each process is called."""
        ...

    def send(self, process: Process, number: int) -> bool:
        """Send a signal to a process; say whether it was there."""
        ...

    def clear(self) -> None:
        """Kill what is left of the driver."""
        ...


class OwnRay:
    """Drivers that start a Ray of their own, all of whose processes may die."""

    def __init__(self, sessions: Path) -> None:
        self.sessions, self.options = sessions, list[str]()
        rest = {name: value for name, value in os.environ.items() if name not in CHOSEN}
        self.environment = {**rest, "RAY_TMPDIR": str(sessions)}

    def find(self) -> dict[Process, str]:
        """Return the processes of all sessions: there is one driver at a time."""
        return {Process(pid): command for pid, command in processes_of(self.sessions).items()}

    def send(self, process: Process, number: int) -> bool:
        """Send a signal to a process of this machine."""
        return _send(process.pid, number)

    def clear(self) -> None:
        """Kill what writes into the sessions' folder."""
        kill_all(self.sessions)


class Joined:
    """Drivers that join a cluster, on which only their own actors may die; this process is in it.

    Its nodes and its GCS are also other people's.
    """

    def __init__(self, address: str, word: str) -> None:
        self.options, self.environment = ["--address", address], dict(os.environ)
        self.word = word  # that only commands of our drivers contain

    def find(self) -> dict[Process, str]:
        """Return the actors of our drivers, named like their processes."""
        found = signals.actors_of(self.word)
        return {Process(pid, node, name): f"ray::{name}" for (node, pid), name in found.items()}

    def send(self, process: Process, number: int) -> bool:
        """Send a signal to an actor on its node, or to a driver on this machine."""
        if not process.node:
            return _send(process.pid, number)
        return signals.send(*process, number)

    def clear(self) -> None:
        """Kill the actors that outlived their driver."""
        for process in self.find():
            self.send(process, signal.SIGKILL)


def _send(pid: int, number: int) -> bool:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
        return True
    return False


def processes_of_command(pid: int) -> set[Process]:
    """Return the process that was started, and its child that does the work, if it has one."""
    found = {Process(pid)}
    with contextlib.suppress(OSError):  # it has ended
        called = _called(pid)
        children = map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
        found |= {Process(child) for child in children if _called(child) == called}
    return found


def _called(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


def by_kind(processes: Mapping[Process, str]) -> dict[str, set[Process]]:
    """Return the processes that may be attacked, by kind."""
    kinds: dict[str, set[Process]] = {}
    for process, command in processes.items():
        for kind, words in KINDS.items():
            if words in f"{command} ":
                kinds.setdefault(kind, set()).add(process)
    return kinds
