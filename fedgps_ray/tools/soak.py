"""A long trial of tiny rounds, watched for growth: memory, open files, the object store."""

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from fedgps_ray.cluster import crew, session
from fedgps_ray.cluster.crew import follow, settings_of
from fedgps_ray.spec import ExecutionSpec, trial_spec

WARM_UP = 50  # rounds until everything has its size


class Sample(NamedTuple):
    """One process, or the object store, after a round."""

    round: int
    name: str
    megabytes: float
    open_files: int


class Growth(NamedTuple):
    """How a process changed between the warm-up and the end."""

    name: str
    megabytes_before: float
    megabytes_after: float
    files_before: int
    files_after: int

    @property
    def ratio(self) -> float:
        """Memory at the end against memory after the warm-up."""
        return self.megabytes_after / self.megabytes_before if self.megabytes_before else 1.0


def soak(rounds: int, method: str, tell: Callable[[str], None]) -> list[Growth]:
    """Run a trial of tiny rounds on Ray and return how its processes grew after the warm-up."""
    with tempfile.TemporaryDirectory() as folder, session.connected(None):
        samples = list(_watched(Path(folder), rounds, method, tell))
    names = list(dict.fromkeys(sample.name for sample in samples))
    return [_growth(name, [s for s in samples if s.name == name]) for name in names]


def _watched(
    folder: Path, rounds: int, method: str, tell: Callable[[str], None]
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
                tell(f"round {event['round']} of {rounds}")
                yield from _samples(event["round"], started.facts())


def _samples(round_number: int, processes: list[dict[str, Any]]) -> Iterator[Sample]:
    for process in processes:
        folder = Path("/proc") / str(process["pid"])
        private = next(
            int(line.split()[1])
            for line in (folder / "status").read_text().splitlines()
            if line.startswith("RssAnon")
        )
        files = len(list((folder / "fd").iterdir()))
        yield Sample(round_number, process["name"], private / 1000, files)
    yield Sample(round_number, "object store", session.use()["object_store_memory_used"] / 1e6, 0)


def _growth(name: str, samples: list[Sample]) -> Growth:
    """Compare the first third after the warm-up with the last third.

    Memory as means: the object store holds more or less as messages come and go.
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
