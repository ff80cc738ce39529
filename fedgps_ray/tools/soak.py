"""Runs many tiny rounds and watches memory, open files and the object store for growth."""

import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from fedgps_ray.cluster import crew, session
from fedgps_ray.cluster.crew import follow, settings_of
from fedgps_ray.identity import Table
from fedgps_ray.spec import ExecutionSpec, trial_spec

WARM_UP = 50  # rounds until sizes settle
PROC = Path("/proc")  # Linux only


class Sample(NamedTuple):
    """One process, or the object store, after a round."""

    round: int
    name: str
    megabytes: float
    open_files: int


class Growth(NamedTuple):
    """Memory and open files of a process after the warm-up and at the end."""

    name: str
    megabytes_before: float
    megabytes_after: float
    files_before: int
    files_after: int

    @property
    def ratio(self) -> float:
        """Memory at the end divided by memory after the warm-up."""
        return self.megabytes_after / self.megabytes_before if self.megabytes_before else 1.0


def soak(rounds: int, method: str, notify: Callable[[str], None]) -> list[Growth]:
    """Run a trial of tiny rounds on Ray and return how much each process grew."""
    with tempfile.TemporaryDirectory() as folder, session.connected(None):
        samples = list(_watched(Path(folder), rounds, method, notify))
    names = list(dict.fromkeys(sample.name for sample in samples))
    return [growth_of(name, [s for s in samples if s.name == name]) for name in names]


def _watched(
    folder: Path, rounds: int, method: str, notify: Callable[[str], None]
) -> Iterator[Sample]:
    spec = trial_spec(
        dataset={"name": "synthetic", "train_size": 500, "test_size": 100, "image_size": 8},
        model="mlp",
        method=method,
        rounds=rounds,
        surrogate={"kind": "noise", "per_class": 50},
    )
    execution = ExecutionSpec(out=folder, actors=2, checkpoint_seconds=1)
    with crew.start(execution, spec.clients, spec.per_round) as started:
        for event in follow(started, settings_of(spec, execution)):
            if isinstance(event, dict) and (event["round"] % 2 == 0 or event["round"] == rounds):
                notify(f"round {event['round']} of {rounds}")
                yield from _samples(event["round"], started.facts())


def _samples(round_number: int, processes: list[Table]) -> Iterator[Sample]:
    for process in processes:
        yield Sample(round_number, process["name"], *usage(process["pid"]))
    used = sum(node["object_store_memory_used"] for node in session.nodes())
    yield Sample(round_number, "object store", used / 1e6, 0)


def usage(pid: int) -> tuple[float, int]:
    """Return the memory of a process in MB and its number of open files.

    Linux knows the private memory; elsewhere it includes what is shared with other processes.
    """
    folder = PROC / str(pid)
    if folder.exists():
        status = (folder / "status").read_text().splitlines()
        private = next(line.split()[1] for line in status if line.startswith("RssAnon"))
        return int(private) / 1000, len(list((folder / "fd").iterdir()))
    resident = _output("ps", "-o", "rss=", "-p", str(pid))
    files = _output("lsof", "-p", str(pid), "-F", "f").splitlines()  # f3, f4; but also fcwd, ftxt
    return int(resident) / 1000, sum(line[1:].isdigit() for line in files if line[0] == "f")


def _output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def growth_of(name: str, samples: list[Sample]) -> Growth:
    """Compare the first third after the warm-up with the last third.

    Memory is averaged, as the object store fills and empties while messages come and go.
    """
    warm = [sample for sample in samples if sample.round >= WARM_UP] or samples
    third = max(1, len(warm) // 3)
    early, late = warm[:third], warm[-third:]
    return Growth(
        name,
        fmean(sample.megabytes for sample in early),
        fmean(sample.megabytes for sample in late),
        max(sample.open_files for sample in early),
        max(sample.open_files for sample in late),
    )
