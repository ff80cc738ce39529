"""What grows with the number of clients: the time of a round, and the memory of what they keep.

Run it with `python -m fedgps_ray.tools.bench.growth time 10 100 1000 5000` and
`python -m fedgps_ray.tools.bench.growth memory 50 400`.
"""

import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from fedgps_ray.results.store import TrialStore
from fedgps_ray.rounds import trial
from fedgps_ray.rounds.loop import Finished, Snapshot, run
from fedgps_ray.rounds.pool import InProcess
from fedgps_ray.rounds.worker import Worker
from fedgps_ray.spec import ExecutionSpec, trial_spec
from fedgps_ray.tools.random_setup import Amount, random_setup

STATUS = Path("/proc/self/status")
PER_ROUND = 10
SAMPLES = 100
ROUNDS = 25
WARM_UP = 5
MEMORY = 64 * 2**20  # bytes that clients may keep outside checkpoints, in the measuring of memory


def rounds_of(clients: int, method: str) -> Iterator[Finished]:
    """Return the rounds of a trial with so many clients, ten of which take part in each."""
    spec = trial_spec(
        dataset={"name": "synthetic", "image_size": 16},
        model="mlp",
        method=method,
        clients=clients,
        sampling_rate=PER_ROUND / clients,
        rounds=ROUNDS,
        batch_size=50,
    )
    worker = Worker(random_setup(spec, Amount((3, 16, 16), 10, SAMPLES, noise=500)))
    state = spec.method.init(worker.initial(), worker.cohort())
    return run(spec, worker.cohort(), InProcess(worker), Snapshot(0, state, {}))


def times(numbers: Sequence[int], method: str) -> dict[int, float]:
    """Return the median CPU seconds of a round by the number of clients, measured in turns."""
    trials = {clients: rounds_of(clients, method) for clients in numbers}
    seconds: dict[int, list[float]] = {clients: [] for clients in numbers}
    for _ in range(ROUNDS):
        for clients, rounds in trials.items():
            began = time.process_time()
            next(rounds)
            seconds[clients].append(time.process_time() - began)
    return {clients: statistics.median(each[WARM_UP:]) for clients, each in seconds.items()}


def memory(clients: int) -> tuple[float, float]:
    """Return what all clients keep, and the most memory of its own that a trial took, in MB."""
    spec = trial_spec(
        dataset={"name": "synthetic", "image_size": 16},
        model="cnn",
        method="scaffold",
        clients=clients,
        sampling_rate=PER_ROUND / clients,
        rounds=2 * clients // PER_ROUND,
        evaluate_every=10**6,
        batch_size=2,
        optimizer={"client_momentum": "persist"},
    )
    worker = Worker(random_setup(spec, Amount((3, 16, 16), 10, samples=2, test=2)))
    most = 0.0
    with tempfile.TemporaryDirectory() as folder:
        store = TrialStore(Path(folder), spec)
        store.make()
        execution = ExecutionSpec(out=Path(folder), checkpoint_seconds=1e9)
        before = own_megabytes()
        for _ in trial.run_with_pool(store, execution, worker, InProcess(worker)):
            most = max(most, own_megabytes() - before)
    kept = 2 * 4 * worker.network.layout.weights[-1].end  # a control variate and a momentum
    return clients * kept / 1e6, most


def own_megabytes() -> float:
    """Return the memory of this process that is no file's, which only Linux tells."""
    if not STATUS.exists():
        raise SystemExit(f"memory is measured on Linux only: there is no {STATUS} here")
    for line in STATUS.read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) / 1e3
    return 0.0


def main(what: str, numbers: Sequence[int]) -> Iterator[str]:
    """Yield the lines of a table."""
    if what == "memory":
        trial.MOST_UNSAVED = MEMORY
        yield "clients   they keep   memory of the trial"
        for clients in numbers:
            kept, most = memory(clients)
            yield f"{clients:>7}  {kept:>7.0f} MB  {most:>7.0f} MB"
        return
    for method in ("fedavg", "fedgps"):
        seconds = times(numbers, method)
        first = seconds[numbers[0]]
        for clients, each in seconds.items():
            yield f"{method:>7} {clients:>6} clients {1e3 * each:>7.1f} ms {each / first:>5.2f}"


if __name__ == "__main__":
    for told in main(sys.argv[1], [int(number) for number in sys.argv[2:]]):
        sys.stdout.write(told + "\n")
        sys.stdout.flush()
