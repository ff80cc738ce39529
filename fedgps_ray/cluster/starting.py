"""A local Ray on its way up: watched, started again if need be, and ended with this process."""

import contextlib
import itertools
import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ray
from ray._common.utils import get_default_ray_temp_dir

from fedgps_ray.cluster.parent import connecting
from fedgps_ray.cluster.policy import POLICY, RetryPolicy
from fedgps_ray.cluster.reaper import Reaper, kill_all, processes_of, sessions_of
from fedgps_ray.errors import Lost, UserError, first_line
from fedgps_ray.identity import Table

# what ray.init says if its processes are too slow, or are killed while it waits for them
LATE = re.compile("timed out|failed to start", re.IGNORECASE)
CONTROL = "/gcs/gcs_server "  # in the command line of Ray's control process

OnLoss = Callable[[str], None]


def start_local(quiet: Table, on_loss: OnLoss) -> Reaper:
    """Start Ray, and return who ends it with this process, whenever that ends.

    on_loss: told if the start hangs, from another thread; Ray itself cannot be interrupted there.
    """
    reaper = Reaper(get_default_ray_temp_dir(), POLICY.left_over_seconds)
    try:
        start_patiently(quiet, on_loss)
        reaper.tell(session_folder())
    except BaseException:  # also Ctrl-C in a notebook
        _end_unborn()
        reaper.call_off()
        raise
    return reaper


def start_patiently(quiet: Table, on_loss: OnLoss) -> None:
    """Start Ray on this machine; again where a busy machine takes longer than Ray's own limit."""
    for starts in itertools.count(1):
        try:
            limit = POLICY.start_seconds * POLICY.pace().slowness + POLICY.knock_seconds
            with watched(on_loss), connecting(is_own=True, seconds=limit):
                # "local": without it Ray would join any cluster that happens to run here
                ray.init("local", include_dashboard=False, num_cpus=os.cpu_count(), **quiet)
        except Exception as problem:  # Ray raises many types here, this one as a bare Exception
            _end_unborn()
            reason = f"Ray could not be started: {first_line(problem)}"
            if not LATE.search(str(problem)):
                raise UserError(reason) from problem
            if not POLICY.after_slow_start(starts).again:
                raise Lost(f"{reason} ({starts} times in a row)") from problem
        else:
            return


def session_folder() -> str:
    """Return where the Ray of this process writes its logs."""
    node: Any = ray._private.worker._global_node
    return str(node.get_session_dir_path())


def kill_sessions() -> None:
    """End all that this process has started of Ray."""
    for folder in sessions_of(get_default_ray_temp_dir(), os.getpid()):
        kill_all(folder)


def _end_unborn() -> None:
    """End what a Ray has left that did not come up."""
    with contextlib.suppress(Exception):  # whatever it says, there is nothing to shut down
        ray.shutdown()
    kill_sessions()


@contextlib.contextmanager
def watched(on_loss: OnLoss, policy: RetryPolicy = POLICY) -> Iterator[None]:
    """Tell if Ray does not come up in time, or its control process dies on the way.

    Ray would wait for it forever, or end this process.
    """
    over = threading.Event()
    known = frozenset(sessions_of(get_default_ray_temp_dir(), os.getpid()))
    threading.Thread(target=_watch, args=(over, known, on_loss, policy), daemon=True).start()
    try:
        yield
    finally:
        over.set()


def _watch(
    over: threading.Event, known: frozenset[Path], on_loss: OnLoss, policy: RetryPolicy
) -> None:
    seconds = policy.start_seconds * policy.pace().slowness
    deadline, gone = time.monotonic() + seconds, 0
    while not over.wait(policy.watch_seconds):
        gone = gone + 1 if _has_lost_control(known) else 0
        if gone < 2 and time.monotonic() < deadline:  # the first time it may just be on its way
            continue
        died = "Ray's control process (GCS) has died while Ray was starting"
        if not over.is_set():
            on_loss(died if gone else f"Ray did not start in {seconds:.0f} s")
        return


def _has_lost_control(known: frozenset[Path]) -> bool:
    """Say whether a session that was not known before has a control process's log, but not it.

    The session is closed to others on the way: Ray leaves its folder open.
    """
    for folder in set(sessions_of(get_default_ray_temp_dir(), os.getpid())) - known:
        folder.chmod(0o700)
        commands = processes_of(folder).values()
        if (folder / "logs" / "gcs_server.out").exists():
            return not any(CONTROL in f"{command} " for command in commands)
    return False
