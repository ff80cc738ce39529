"""Ends what is left of a local Ray once the process that started it is gone.

Also a program of its own: it waits until its standard input closes, which the system does when
the driver ends, however it ends. It imports the standard library only, so that it stays small.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

PROC = Path("/proc")  # Linux only; elsewhere nothing is found and Ray's processes end by themselves
END_SECONDS = 10.0


def processes_of(folder: str | Path) -> dict[int, str]:
    """Return the processes of the Ray sessions below a folder, and how each was called."""
    commands = {}
    for path in PROC.glob("[0-9]*"):
        try:
            command = (path / "cmdline").read_text(errors="replace").replace("\0", " ").strip()
            if int(path.name) != os.getpid() and _belongs(path, command, f"{folder}/"):
                commands[int(path.name)] = command
        except OSError:  # it has ended, or is somebody else's
            continue
    return commands


def _belongs(path: Path, command: str, folder: str) -> bool:
    """Say whether a process writes its output there, or is one of Ray's that has files there.

    Ray's agents write to pipes of their own, and call themselves ray:: without arguments.
    """
    opened = _opened(path / "fd", None if command.startswith("ray::") else ("1", "2"))
    if any(name.startswith(folder) for name in opened):
        return True
    return folder[:-1] in command and "/ray/" in command.replace(folder[:-1], "")


def _opened(folder: Path, numbers: tuple[str, ...] | None) -> list[str]:
    """Return what a process has opened under some numbers, by default under any."""
    names = []
    for number in numbers or os.listdir(folder):
        with contextlib.suppress(OSError):  # it was closed
            names.append(os.readlink(folder / number))
    return names


def kill_all(folder: str | Path, seconds: float = END_SECONDS) -> None:
    """Kill all processes of the Ray sessions below a folder, until there are none."""
    deadline = time.monotonic() + seconds
    while (left := processes_of(folder)) and time.monotonic() < deadline:
        for pid in left:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.2)


def sessions_of(base: str | Path, driver: int) -> list[Path]:
    """Return the folders of the Ray sessions that a process has started."""
    return sorted(Path(base).glob(f"session_*_{driver}"))


class Reaper:
    """A process that ends a Ray session when this process ends.

    It is there before the session, so that a driver which dies while Ray starts leaves nothing;
    once it is told the session's folder it looks at no other: a later one has a reaper too.
    """

    def __init__(self, base: str | Path, seconds: float) -> None:
        program = [sys.executable, "-S", "-E", __file__, str(base), str(os.getpid()), str(seconds)]
        self.process = subprocess.Popen(
            program,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            text=True,
            process_group=0,  # what a terminal sends is for the driver
        )

    def tell(self, folder: str) -> None:
        """Say which session it is."""
        if self.process.stdin is not None:
            self.process.stdin.write(f"{folder}\n")
            self.process.stdin.flush()

    def dismiss(self) -> None:
        """Let it end what is left now; only a thread waits for it, so that no zombie stays."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        threading.Thread(target=self.process.wait, daemon=True).start()

    def call_off(self) -> None:
        """Let it end nothing."""
        self.process.kill()
        self.dismiss()


def main() -> None:
    """Wait for the driver's end, then end the session."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # they are for the driver
    base, driver, seconds = sys.argv[1:]
    folders = sys.stdin.read().splitlines() or sessions_of(base, int(driver))
    time.sleep(float(seconds))  # most processes end by themselves
    for folder in folders:
        kill_all(folder)


if __name__ == "__main__":
    main()
