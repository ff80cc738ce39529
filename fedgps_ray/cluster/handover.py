"""Runs a command on a cluster through Ray Client, and brings back the lines that it prints.

Ray's job interface would do the same, but needs ray[default] here and a dashboard on the cluster.
"""

import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError

from fedgps_ray.cluster.policy import POLICY
from fedgps_ray.cluster.session import own_answer_to_sigterm
from fedgps_ray.errors import Lost, UserError, first_line

POLL_SECONDS = 0.5
PASSED_ON = ("RAY_AUTH", "RAY_USE_TLS", "RAY_TLS")  # the actor's other RAY_ variables are its own
PROGRAM = [sys.executable, "-m", "fedgps_ray"]


class Deputy:
    """An actor on the cluster that runs the command in a separate process."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.folder = tempfile.TemporaryDirectory()

    def start(self, arguments: list[str], files: dict[int, tuple[str, str]]) -> None:
        """Start the command.

        files: name and text of each argument that is a file, by its position. The address that is
        added wins over the one that the user gave: of an option given twice, the last one counts.
        """
        for number, (name, text) in files.items():
            path = Path(self.folder.name) / name
            path.write_text(text)
            arguments[number] = str(path)
        environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("RAY_") or name.startswith(PASSED_ON)
        }
        address = ray.get_runtime_context().gcs_address
        self.process = subprocess.Popen(
            [*PROGRAM, *arguments, "--address", address],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as output:
            self.lines.extend(line.rstrip("\n") for line in output)

    def news(self, seen: int) -> tuple[list[str], int | None]:
        """Return the lines not seen yet, and the exit code once there are no more to come."""
        exit_code = None if self.reader.is_alive() else self.process.wait()
        return self.lines[seen:], exit_code

    def stop(self) -> None:
        """Ask the command to write its checkpoints and exit."""
        self.process.terminate()


def hand_over(address: str, arguments: list[str], say: Callable[[str], None]) -> int:
    """Run a command on the cluster at ray://HOST:PORT and return its exit code."""
    files = {
        number: (Path(word).name, Path(word).read_text())
        for number, word in enumerate(arguments)
        if word.endswith(".toml") and Path(word).is_file()
    }
    try:
        with own_answer_to_sigterm():
            ray.init(address, log_to_driver=False)
    except Exception as problem:  # Ray raises many types here, none of them documented
        raise UserError(
            f"cannot connect to {address}: {first_line(problem)}\nRay Client needs"
            ' pip install "ray[client]" here and on the head, and the cluster\'s token here'
        ) from problem
    try:
        deputy: Any = ray.remote(num_cpus=0)(Deputy).remote()
        _answer(deputy.start.remote(arguments, files), POLICY.no_actor_seconds)
        return _follow(deputy, say)
    finally:
        ray.shutdown()


def _follow(deputy: Any, say: Callable[[str], None]) -> int:
    seen = 0
    code: int | None = None
    while code is None:
        try:
            lines, code = _answer(deputy.news.remote(seen), POLICY.joined_silence_seconds)
            for line in lines:
                say(line)
            seen += len(lines)
            time.sleep(POLL_SECONDS)
        except KeyboardInterrupt:
            _answer(deputy.stop.remote(), POLICY.joined_silence_seconds)
    return code


def _answer(asked: Any, seconds: float) -> Any:
    """Wait for an answer from the cluster, but not forever."""
    try:
        return ray.get(asked, timeout=seconds)
    except (RayError, ConnectionError, TimeoutError) as problem:
        if isinstance(problem, RayTaskError):
            raise
        raise Lost(f"the cluster does not answer any more ({first_line(problem)})") from problem
