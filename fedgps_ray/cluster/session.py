"""Ray started quietly or joined, and how many client actors its resources hold."""

import _thread
import contextlib
import logging
import math
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import ray
from ray._private.state import available_resources_per_node
from ray.actor import ActorHandle

from fedgps_ray.cluster.parent import connecting, ending_by_itself
from fedgps_ray.cluster.policy import POLICY
from fedgps_ray.cluster.reaper import Reaper
from fedgps_ray.cluster.starting import kill_sessions, session_folder, start_local
from fedgps_ray.cluster.watch import watch
from fedgps_ray.errors import UserError, first_line
from fedgps_ray.identity import Table

if TYPE_CHECKING:  # Ray starts while the importing of PyTorch is still going on
    from fedgps_ray.spec import ExecutionSpec

SERVER_BYTES = 300 * 2**20  # a server reserves memory, no CPU: on a laptop clients need them all
QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "1",  # an actor without a GPU share sees no GPU
    "RAY_DEDUP_LOGS": "0",
    "RAY_worker_niceness": "0",  # as the command; with Ray's 15, any other job starves a training
}
Actor = ActorHandle[Any]
Reference = ray.ObjectRef[Any]
_PRINT = ray._private.worker.print_to_stdstream

_ENDING = threading.Event()  # processes die because the user stopped the run: no need to report it

# Ray's processes end with the thread that started them, so that thread stays.
_BACKGROUND = ThreadPoolExecutor(1)
_EARLY: list[Future[None]] = []  # Ray on its way; one at most, as there is one in a process
_REAPERS: list[Reaper] = []  # of the Ray that this process has started


class Loss(NamedTuple):
    """That Ray was lost: what happened, and whether it was started by this process."""

    what: str
    is_own: bool
    is_ending: bool = False  # the user has stopped the run, perhaps all of its processes


class Answers(NamedTuple):
    """What a program does when it is connected to Ray, and when Ray is lost."""

    on_connection: Callable[[], None]  # called in the thread that has connected
    on_loss: Callable[[Loss], None]  # called in another thread; it may not return


_ANSWERS: list[Answers] = []  # the last ones count


def answer_with(on_connection: Callable[[], None], on_loss: Callable[[Loss], None]) -> None:
    """Choose what happens when this process is connected to Ray, and when Ray is lost."""
    _ANSWERS.append(Answers(on_connection, on_loss))


def _lost(loss: Loss) -> None:
    """End what is left of an own Ray, then let the program decide; by default it is interrupted."""
    if loss.is_own:
        kill_sessions()
    if _ENDING.is_set():
        loss = loss._replace(is_ending=True)
    deadline = time.monotonic() + POLICY.start_seconds
    while _EARLY and not _ANSWERS and time.monotonic() < deadline:
        time.sleep(0.1)  # one that has started Ray early may not have chosen its answer yet
    if _ANSWERS:
        _ANSWERS[-1].on_loss(loss)
    else:
        _thread.interrupt_main()


def start_early(address: str | None) -> None:
    """Start Ray in the background; the next session waits for it and takes it over."""
    _EARLY.append(_BACKGROUND.submit(start, address))


@contextlib.contextmanager
def connected(address: str | None) -> Iterator[None]:
    """Start a local cluster or join one, and leave it at the end; an open one is used as it is."""
    if ray.is_initialized() and not _EARLY:
        yield
        return
    with own_answer_to_sigterm():
        if _EARLY:
            _EARLY.pop().result()
        else:
            start(address)
    if _ANSWERS:
        _ANSWERS[-1].on_connection()
    is_own = address is None
    watched = watch(is_own, lambda what: _lost(Loss(what, is_own)))
    try:
        yield
    finally:
        watched.close()
        stop()


def stop() -> None:
    """Leave Ray, and end what this process has started of it."""
    with ending_by_itself():
        ray.shutdown()
    while _REAPERS:
        _REAPERS.pop().dismiss()


def start(address: str | None) -> None:
    """Start Ray without dashboard, statistics and chatter, its ports guarded by a token."""
    os.environ.update({name: value for name, value in QUIET.items() if name not in os.environ})
    _ENDING.clear()
    quiet: Table = {"log_to_driver": False, "logging_level": logging.ERROR}
    # Ray prints notices about dead processes whatever its settings; stdout may be JSON for a script
    ray._private.worker.print_to_stdstream = _print_to_stderr
    if address is None:
        _guard_token()
        _REAPERS.append(start_local(quiet, lambda what: _lost(Loss(what, is_own=True))))
        _guard_token()
        _guard_session()
        return
    _knock(address)
    _guard_token()
    try:
        _join(address, quiet)
    except UserError:
        raise
    except Exception as problem:  # Ray raises many types here, none of which names the cause
        raise UserError(
            f"cannot join the Ray cluster at {address}: {first_line(problem)}\n"
            "Is its token in RAY_AUTH_TOKEN or ~/.ray/auth_token here, and was RAY_AUTH_MODE=token"
            " set before Ray was imported? A cluster without a token needs RAY_AUTH_MODE=disabled"
        ) from problem


def _join(address: str, quiet: Table) -> None:
    """Join a cluster; if something other than Ray answers there, Ray itself would wait forever."""
    joined: Future[None] = Future()

    def attempt() -> None:
        try:
            ray.init(address=address, **quiet)
            joined.set_result(None)
        except BaseException as problem:  # for the thread that waits
            joined.set_exception(problem)

    seconds = POLICY.join_seconds * POLICY.pace().slowness
    with connecting(is_own=False, seconds=seconds + POLICY.knock_seconds):
        threading.Thread(target=attempt, daemon=True).start()
        wait([joined], timeout=seconds)
    if not joined.done():
        raise UserError(
            f"{address} takes connections, but no Ray answered within {seconds:.0f} s. Does it use"
            " TLS, and are RAY_USE_TLS and the certificates set here as on its nodes?"
        )
    joined.result()


def _knock(address: str) -> None:
    """Find out at once whether anything listens there; Ray itself keeps trying for long."""
    if address.startswith("ray://"):
        raise UserError(
            f"{address}: only the command line hands work over by Ray Client;"
            " use HOST:PORT on one of the cluster's nodes"
        )
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit():
        return
    try:
        socket.create_connection((host, int(port)), timeout=POLICY.knock_seconds).close()
    except OSError as problem:
        reason = problem.strerror or str(problem)
        raise UserError(
            f"no Ray cluster answers at {address} ({reason}): is `ray start --head` running there,"
            " and can this machine reach the port?"
        ) from None


@contextlib.contextmanager
def own_answer_to_sigterm() -> Iterator[None]:
    """Keep the program's answer to SIGTERM, also while Ray starts.

    Ray's own answers end Ray, which would be started again, or this process without a checkpoint.
    """
    utils = ray._private.utils
    theirs = utils.set_sigterm_handler
    utils.set_sigterm_handler = lambda handler: None
    try:
        yield
    finally:
        utils.set_sigterm_handler = theirs


def expect_deaths() -> None:
    """Print no notices about dead processes any more, until Ray is started again."""
    _ENDING.set()


def _print_to_stderr(data: Table, ignore_prefix: bool) -> None:
    ours = any(str(line).startswith("Raylet is terminated") for line in data.get("lines", []))
    if not (ours or _ENDING.is_set()):  # we notice that one and report it ourselves
        _PRINT({**data, "is_err": True}, ignore_prefix)


def _guard_token() -> None:
    """Let nobody else read Ray's token, nor look into its folder while Ray writes it there.

    A stricter mask would do that too, but the actors would inherit it for the results they write.
    """
    folder = Path.home() / ".ray"
    token = Path(os.environ.get("RAY_AUTH_TOKEN_PATH", folder / "auth_token"))
    with contextlib.suppress(OSError):  # a home that cannot be written to has no token either
        folder.mkdir(mode=0o700, exist_ok=True)
        for path in (folder, token):
            if path.exists() and path.stat().st_mode & 0o077:
                path.chmod(path.stat().st_mode & 0o700)


def _guard_session() -> None:
    """Let nobody else look into the folder with Ray's logs and sockets, which Ray leaves open."""
    with contextlib.suppress(OSError, AttributeError):
        Path(session_folder()).chmod(0o700)


def num_actors(execution: "ExecutionSpec", clients: int, per_round: int) -> int:
    """Return how many client actors to start: one per client if they fit, else as many as help."""
    fit = capacity(execution)
    if not fit and execution.client_gpus:
        raise UserError(
            f"no node has room for an actor with {execution.client_gpus:g} GPU ({totals()});"
            " use a smaller --client-gpus, or --device cpu without it"
        )
    if execution.actors == "auto":
        return clients if clients <= fit else max(1, min(fit, per_round))
    wanted = min(execution.actors, clients)
    if wanted > fit:
        raise UserError(
            f"{wanted} actors of {execution.client_cpus:g} CPU and {execution.client_gpus:g} GPU"
            f" do not fit: the cluster holds {fit} ({totals()}); use --actors {max(fit, 1)},"
            " or smaller --client-cpus / --client-gpus"
        )
    return wanted


def capacity(execution: "ExecutionSpec") -> int:
    """Return how many actors fit on the nodes; a share of a GPU has to lie on one GPU."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    return sum(_on_node(execution, resources) for resources in nodes)


def _on_node(execution: "ExecutionSpec", resources: dict[str, float]) -> int:
    fit = math.floor(resources.get("CPU", 0) / execution.client_cpus + 1e-9)
    share, gpus = execution.client_gpus, resources.get("GPU", 0)
    if share > 1:
        return min(fit, math.floor(gpus / share))
    return min(fit, math.floor(gpus) * math.floor(1 / share + 1e-9)) if share else fit


def totals() -> str:
    """Return what the cluster has, in words."""
    total = ray.cluster_resources()
    return f"{total.get('CPU', 0):g} CPU, {total.get('GPU', 0):g} GPU"


def nodes() -> list[Table]:
    """Return for each node what it has and how much of it is reserved; bytes, CPUs and GPUs."""
    free = available_resources_per_node()
    here = ray.get_runtime_context().get_node_id()
    return [
        _node(node, free.get(node["NodeID"], {}), node["NodeID"] == here)
        for node in ray.nodes()
        if node["Alive"]
    ]


def _node(node: Table, free: dict[str, float], is_here: bool) -> Table:
    known: dict[str, Any] = {"name": node["NodeManagerHostname"], "here": is_here}
    for name in ("CPU", "GPU", "object_store_memory"):
        total = node["Resources"].get(name, 0.0)
        known |= {name: total, f"{name}_used": max(0.0, total - free.get(name, 0.0))}
    return known
