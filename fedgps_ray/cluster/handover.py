"""A command handed over to a cluster through Ray Client: it runs there, its lines come back."""

import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import ray

from fedgps_ray.cluster.session import own_answer_to_sigterm
from fedgps_ray.errors import UserError

CLIENT = "ray://"
LOOK_SECONDS = 0.5
KEPT = ("RAY_AUTH", "RAY_USE_TLS", "RAY_TLS")
PROGRAM = [sys.executable, "-c", "from fedgps_ray.cli import main; main()"]


class Deputy:
    """An actor on the cluster that runs the command as a process of its own."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.folder = tempfile.TemporaryDirectory()

    def start(self, arguments: list[str], files: dict[int, tuple[str, str]]) -> None:
        """Start the command; files: text and name of those arguments that are files."""
        for number, (name, text) in files.items():
            path = Path(self.folder.name) / name
            path.write_text(text)
            arguments[number] = str(path)
        own = {
            k: v for k, v in os.environ.items() if not k.startswith("RAY_") or k.startswith(KEPT)
        }
        address = ray.get_runtime_context().gcs_address
        self.process = subprocess.Popen(
            [*PROGRAM, *arguments, "--address", address],
            env=own,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as said:
            self.lines.extend(line.rstrip("\n") for line in said)

    def news(self, seen: int) -> tuple[list[str], int | None]:
        """Return the lines since the last look, and the exit code once all is said."""
        ended = None if self.reader.is_alive() else self.process.wait()
        return self.lines[seen:], ended

    def stop(self) -> None:
        """Let the command write its checkpoints and end."""
        self.process.terminate()


def split(arguments: Sequence[str]) -> tuple[str | None, list[str]]:
    """Return the address of a cluster that is reached by Ray Client, and the other arguments."""
    others, address, words = [], None, iter(arguments)
    for word in words:
        value = next(words, "") if word == "--address" else word.removeprefix("--address=")
        if word.startswith("--address") and value.startswith(CLIENT):
            address = value
        else:
            others += [word, value] if word == "--address" else [word]
    return address, others


def hand_over(address: str, arguments: list[str], say: Callable[[str], None]) -> int:
    """Run a command on a cluster, say what it prints, and return its exit code."""
    files = {
        number: (Path(word).name, Path(word).read_text())
        for number, word in enumerate(arguments)
        if word.endswith(".toml") and Path(word).is_file()
    }
    try:
        with own_answer_to_sigterm():
            ray.init(address, log_to_driver=False)
    except Exception as problem:  # Ray raises many types here
        raise UserError(
            f"cannot join {address}: {str(problem).splitlines()[0]}\nRay Client needs"
            ' pip install "ray[client]" here and on the head, and the token of the cluster here'
        ) from problem
    try:
        deputy: Any = ray.remote(num_cpus=0)(Deputy).remote()
        ray.get(deputy.start.remote(arguments, files))
        return _follow(deputy, say)
    finally:
        ray.shutdown()


def _follow(deputy: Any, say: Callable[[str], None]) -> int:
    seen = 0
    code: int | None = None
    while code is None:
        try:
            lines, code = ray.get(deputy.news.remote(seen))
            for line in lines:
                say(line)
            seen += len(lines)
            time.sleep(LOOK_SECONDS)
        except KeyboardInterrupt:
            ray.get(deputy.stop.remote())
    return code
