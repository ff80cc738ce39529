"""Watches the Ray that a driver uses: Ray itself may let a driver wait forever."""

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import ray
from ray._raylet import GcsClient  # type: ignore[attr-defined]

from fedgps_ray.cluster.policy import POLICY, RetryPolicy

ALIVE = 0  # of Ray's GcsNodeInfo.state
NAMES = {"gcs_server": "Ray's control process (GCS)", "raylet": "Ray's node process (raylet)"}


class Process(Protocol):
    """A process that this one has started."""

    def poll(self) -> int | None:
        """Return its exit code once it has ended."""
        ...


class Link:
    """What a driver can find out about its Ray; processes: those of a Ray of its own."""

    def __init__(self, is_own: bool) -> None:
        context, node = ray.get_runtime_context(), ray._private.worker._global_node
        self.client, self.node = GcsClient(address=context.gcs_address), context.get_node_id()
        started: Any = node.all_processes if node is not None and is_own else {}
        self.processes: Mapping[str, Process] = {
            name: started[name][0].process for name in NAMES if name in started
        }

    def ask(self, seconds: float) -> bool:
        """Return whether this node counts as alive; raise an error if there is no answer."""
        nodes = self.client.get_all_node_info(timeout=seconds)
        return any(key.hex() == self.node and info.state == ALIVE for key, info in nodes.items())


class Watch:
    """Two threads: one asks Ray a question again and again, one looks at answers and processes."""

    def __init__(
        self,
        link: Link,
        allowed_silence: Callable[[], float],
        on_loss: Callable[[str], None],
        policy: RetryPolicy = POLICY,
    ) -> None:
        self.link, self.allowed_silence = link, allowed_silence
        self.on_loss, self.policy = on_loss, policy
        self.ended = threading.Event()
        self.answered, self.is_node_alive = time.monotonic(), True
        for task in (self._ask, self._look):
            threading.Thread(target=task, daemon=True).start()

    def close(self) -> None:
        """Stop watching: what ends from now on is meant to."""
        self.ended.set()

    def _ask(self) -> None:
        while not self.ended.wait(self.policy.watch_seconds):
            try:
                self.is_node_alive = self.link.ask(self.policy.knock_seconds)
            except Exception:  # of many kinds; what counts is that there is no answer
                continue
            self.answered = time.monotonic()

    def _look(self) -> None:
        before = time.monotonic()
        while not self.ended.wait(self.policy.watch_seconds):
            now = time.monotonic()
            if now - before > 5 * self.policy.watch_seconds:  # this process itself was stopped
                self.answered = now
            before = now
            if (what := self._problem(now)) is not None and not self.ended.is_set():
                self.ended.set()
                self.on_loss(what)

    def _problem(self, now: float) -> str | None:
        """Return what was lost, in words, or None."""
        for name, process in self.link.processes.items():
            if (code := process.poll()) is not None:
                return f"{NAMES[name]} has died ({_way(code)})"
        silence = now - self.answered
        if silence > self.allowed_silence():
            return f"Ray has not answered for {silence:.0f} s"
        return None if self.is_node_alive else "Ray counts this machine as dead"


def watch(is_own: bool, on_loss: Callable[[str], None]) -> Watch:
    """Watch the Ray that this process has started or joined."""
    pace = POLICY.pace()
    return Watch(Link(is_own), lambda: POLICY.allowed_ray_silence(is_own, pace.slowness), on_loss)


def _way(code: int) -> str:
    return f"killed by signal {-code}" if code < 0 else f"exit code {code}"
