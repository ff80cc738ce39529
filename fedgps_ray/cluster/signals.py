"""The processes of a driver's actors on a joined cluster, and signals to them on any node."""

import contextlib
import os
from pathlib import Path

import ray
from ray._private import state
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from fedgps_ray.cluster.policy import POLICY


def actors_of(word: str) -> dict[tuple[str, int], str]:
    """Return the actors of the drivers that have a word in their commands.

    As (node, process), and the class of each.
    """
    found: dict[tuple[str, int], str] = {}
    for job in state.jobs():
        if word in job["Entrypoint"]:
            number = ray.JobID.from_hex(job["JobID"])
            for actor in state.actors(job_id=number, actor_state_name="ALIVE").values():
                kind = actor["ActorClassName"].rpartition(".")[2]
                found[actor["Address"]["NodeID"], actor["Pid"]] = kind
    return found


def send(pid: int, node: str, actor: str, number: int) -> bool:
    """Send a signal to an actor of a class on a node; say whether it got it."""
    there = NodeAffinitySchedulingStrategy(node, soft=False)
    with contextlib.suppress(RayError):  # the node is gone, or too busy
        sent = _send.options(scheduling_strategy=there).remote(pid, actor, number)
        return bool(ray.get(sent, timeout=POLICY.knock_seconds * POLICY.pace().slowness))
    return False


@ray.remote(num_cpus=0)
def _send(pid: int, actor: str, number: int) -> bool:
    """Send a signal to an actor's process, unless its number is somebody else's by now."""
    with contextlib.suppress(OSError):
        if Path(f"/proc/{pid}/cmdline").read_bytes().startswith(f"ray::{actor}".encode()):
            os.kill(pid, number)
            return True
    return False
