"""Watches the Ray that a driver uses: Ray itself may let a driver wait for ever."""

import threading
import time
from collections.abc import Callable
from typing import Any

import ray
from ray._raylet import GcsClient  # type: ignore[attr-defined]

from fedgps_ray.cluster.policy import POLICY, RetryPolicy

ALIVE = 0  # of Ray's GcsNodeInfo.state
NAMES = {"gcs_server": "Ray's control process (GCS)", "raylet": "Ray's node process (raylet)"}


class Watch:
    """Two threads: one asks Ray a question again and again, one looks at answers and processes."""

    def __init__(
        self, is_own: bool, on_loss: Callable[[str], None], policy: RetryPolicy = POLICY
    ) -> None:
        self.is_own, self.on_loss, self.policy = is_own, on_loss, policy
        self.pace = policy.pace()
        context = ray.get_runtime_context()
        self.client, self.node = GcsClient(address=context.gcs_address), context.get_node_id()
        self.processes = _own_processes() if is_own else {}
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
                nodes = self.client.get_all_node_info(timeout=self.policy.knock_seconds)
            except Exception:  # of many kinds; what counts is that there is no answer
                continue
            mine = [node for key, node in nodes.items() if key.hex() == self.node]
            self.is_node_alive = any(node.state == ALIVE for node in mine)
            self.answered = time.monotonic()

    def _look(self) -> None:
        before = time.monotonic()
        while not self.ended.wait(self.policy.watch_seconds):
            now = time.monotonic()
            if now - before > 5 * self.policy.watch_seconds:  # this process itself was stopped
                self.answered = now
            before = now
            if (what := self.problem(now)) is not None:
                self.ended.set()
                self.on_loss(what)

    def problem(self, now: float) -> str | None:
        """Return what was lost, in words, or None."""
        for name, process in self.processes.items():
            if (code := process.poll()) is not None:
                return f"{NAMES[name]} has died ({_way(code)})"
        silence = now - self.answered
        if silence > self.policy.allowed_ray_silence(self.is_own, self.pace.slowness):
            return f"Ray has not answered for {silence:.0f} s"
        return None if self.is_node_alive else "Ray counts this machine as dead"


def _own_processes() -> dict[str, Any]:
    node: Any = ray._private.worker._global_node
    return {name: node.all_processes[name][0].process for name in NAMES}


def _way(code: int) -> str:
    return f"killed by signal {-code}" if code < 0 else f"exit code {code}"
