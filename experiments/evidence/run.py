"""Runs what the published results lack, one trial after the other in this process, without Ray.

    python -m fedgps_ray.experiments.evidence.run depth breadth --out runs/evidence

Trials are those of the sweeps' files, with the same ids, and go to one folder per sweep, where
collect.py finds them. A trial that is published is not run again, one that was interrupted goes
on from its checkpoint. Started twice, the two processes share the work: a trial whose folder is
locked is left to the one that holds it. Trials that decide the three questions come first.
"""

import argparse
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path

import torch

from fedgps_ray.errors import UserError, unknown
from fedgps_ray.experiment import Experiment, cells
from fedgps_ray.experiments.evidence.collect import published
from fedgps_ray.experiments.evidence.sweeps import SWEEPS
from fedgps_ray.results import files
from fedgps_ray.results.store import TrialStore
from fedgps_ray.rounds.trial import run_trial
from fedgps_ray.spec import ExecutionSpec

HERE = Path(__file__).parent
RESULTS = HERE / "results"
DECIDING = (
    "fedavg weighting=uniform",
    "fedgps align_labels=matched",
    "fedgps align_labels=matched rho=0",
    "fedgps",
    "vhl",
)
Notify = Callable[[str], None]


def missing(
    experiment: Experiment, known: Collection[str], first: Collection[str] = ()
) -> list[cells.GridCell]:
    """Return the trials that are not published: the methods in first, then as in the file."""
    left = [cell for cell in experiment.cells if cell.trial_id not in known]
    return sorted(left, key=lambda cell: cell.label.method not in first)


def run_sweep(name: str, out: Path, notify: Notify) -> Iterator[str]:
    """Run the trials of a sweep that are neither published nor ended; yield the id of each."""
    experiment = cells.load(HERE / SWEEPS[name].file)
    execution = ExecutionSpec(out=out / name, actors=0, files=experiment.files)
    first = DECIDING if name == "depth" else ()
    for cell in missing(experiment, published(RESULTS), first):
        store = TrialStore(execution.out, cell.spec)
        if files.is_locked(store.folder) or store.ended() is not None:
            continue
        notify(f"{name} {cell.trial_id} {cell.label}")
        for _ in run_trial(cell.spec, execution):
            pass
        yield cell.trial_id


def run(names: Sequence[str], out: Path, core_hours: float, notify: Notify) -> int:
    """Run sweeps in turn; return the number of trials. None starts after so much time of a CPU."""
    for name in names:
        if name not in SWEEPS:
            raise unknown("sweep", name, SWEEPS)
    done = 0
    for name in names:
        for trial_id in run_sweep(name, out, notify):
            done += 1
            spent = time.process_time() / 3600
            notify(f"{name} {trial_id} ended, {spent:.2f} core-hours of this process")
            if spent >= core_hours:
                return done
    return done


def main() -> None:
    """Run what is named on the command line."""
    parser = argparse.ArgumentParser(description="Run what the published results lack.")
    parser.add_argument("sweeps", nargs="+", help=f"of {', '.join(SWEEPS)}")
    parser.add_argument("--out", type=Path, required=True, help="each sweep gets a folder in it")
    parser.add_argument("--core-hours", type=float, default=12.0, help="no new trial after that")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    try:
        done = run(asked.sweeps, asked.out, asked.core_hours, _say)
    except UserError as problem:
        parser.exit(2, f"error: {problem}\n")
    parser.exit(0, f"{done} trials run\n")


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
