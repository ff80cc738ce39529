"""What commands take that read a results folder of many finished trials.

Run it with `python -m fedgps_ray.tools.bench.folders 1000 10000`. It makes up the folders in the
system's temporary folder, and prints CPU seconds, wall-clock seconds and memory of each command:
without an index of the folder, and with the one that the command before has left.
"""

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from fedgps_ray.results.index import FILE

ROUNDS = 5
PROGRAM = [sys.executable, "-m", "fedgps_ray"]
HEAD = f"{'trials':>7}  {'command':<18} {'index':<5} {'CPU s':>7} {'wall s':>7} {'MB':>6}"


class Cost(NamedTuple):
    """What a command took: seconds of CPU and of wall-clock, and its largest memory."""

    cpu: float
    wall: float
    megabytes: float


def commands(folder: Path, file: Path) -> dict[str, list[str]]:
    """Return the commands that read a whole folder, by their names."""
    sweep = ["sweep", str(file), "--out", str(folder)]
    return {
        "sweep --dry-run": [*sweep, "--dry-run"],
        "sweep": sweep,
        "status": ["status", str(folder)],
        "status --verify": ["status", str(folder), "--verify"],
        "watch --once": ["watch", str(folder), "--once"],
        "report": ["report", str(folder)],
    }


def measured(arguments: Sequence[str]) -> Cost:
    """Run a command and return what it took; its output goes nowhere."""
    began = time.perf_counter()
    with open(os.devnull, "w") as nowhere:
        process = subprocess.Popen([*PROGRAM, *arguments], stdout=nowhere, stderr=nowhere)
        _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"fedgps-ray {' '.join(arguments)} ended with {process.returncode}")
    wall = time.perf_counter() - began
    return Cost(used.ru_utime + used.ru_stime, wall, used.ru_maxrss / 1e3)


def lines(trials: int, place: Path) -> Iterator[str]:
    """Yield a line for each command, on a folder of so many trials."""
    folder = place / f"made-up-{trials}"
    _fabricate(folder, trials)
    for name, arguments in commands(folder, folder.with_suffix(".toml")).items():
        for index in ("no", "yes"):
            if index == "no":
                with contextlib.suppress(FileNotFoundError):
                    (folder / FILE).unlink()
            cost = measured(arguments)
            yield (
                f"{trials:>7}  {name:<18} {index:<5} {cost.cpu:>7.1f} {cost.wall:>7.1f}"
                f" {cost.megabytes:>6.0f}"
            )


def _fabricate(folder: Path, trials: int) -> None:
    """Make up a folder, in a process of its own: this one's memory would count as a command's."""
    sizes = ["--trials", str(trials), "--rounds", str(ROUNDS), "--finished"]
    make = [sys.executable, "-m", "fedgps_ray.tools.fabricate", str(folder), *sizes]
    subprocess.run(make, check=True)


def main(numbers: Sequence[str]) -> None:
    """Print the figures for each number of trials."""
    sys.stdout.write(HEAD + "\n")
    with tempfile.TemporaryDirectory() as place:
        for number in numbers:
            for line in lines(int(number), Path(place)):
                sys.stdout.write(line + "\n")
                sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
