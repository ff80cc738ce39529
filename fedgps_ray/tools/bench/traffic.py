"""What reaches the server in a round of many clients: bytes, seconds and memory.

Run it with `python -m fedgps_ray.tools.bench.traffic 10 100 500`.
"""

import json
import os
import sys
from collections.abc import Iterator
from typing import Any

from fedgps_ray.cluster import crew, session
from fedgps_ray.cluster.dispatch import Dispatcher, Unit, share
from fedgps_ray.cluster.policy import POLICY
from fedgps_ray.cluster.pool import RayPool
from fedgps_ray.methods.base import Reply
from fedgps_ray.rounds.loop import Snapshot, run
from fedgps_ray.rounds.setup import Setup
from fedgps_ray.rounds.worker import Worker
from fedgps_ray.spec import ExecutionSpec, trial_spec
from fedgps_ray.tools.random_setup import Amount, random_setup
from fedgps_ray.tools.soak import usage

ROUNDS = 1


class Measured(Dispatcher):
    """Counts the bytes of the arrays that results bring to the server."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.received = 0

    def wait(self, units: list[Unit]) -> None:  # type: ignore[override]
        """Wait, then look at what came."""
        super().wait(units)
        self.received += sum(array_bytes(unit.result) for unit in units)


def array_bytes(result: object) -> int:
    """Return the bytes of the arrays in a client's reply; what it keeps is left out."""
    reply = result[0] if isinstance(result, tuple) and not isinstance(result, Reply) else result
    if not isinstance(reply, Reply):
        return 0
    sums = (part for each in (reply.sums or {}).values() for part in each.parts.values())
    return sum(int(a.nbytes) for a in (*reply.upload.arrays, *sums))


def setup_of(per_round: int) -> Setup:
    """Return a trial of one step a client with a ResNet-18."""
    spec = trial_spec(
        dataset={"name": "synthetic", "image_size": 8},
        model="resnet18",
        method="fedavg",
        clients=per_round,
        sampling_rate=1.0,
        batch_size=2,
        rounds=ROUNDS,
        evaluate_every=10**6,
        optimizer={"client_momentum": "reset"},
    )
    return random_setup(spec, Amount((3, 8, 8), 10, samples=2, test=2))


def measured(per_round: int, actors: int) -> dict[str, float]:
    """Run a round and return its figures."""
    setup = setup_of(per_round)
    with crew.start(ExecutionSpec(actors=actors), per_round, per_round) as started:
        dispatcher = Measured(started.clients, share(setup), "cpu", POLICY)
        dispatcher.wait_ready()
        worker = Worker(setup)
        state = setup.spec.method.init(worker.initial(), worker.cohort())
        rounds = run(
            setup.spec, worker.cohort(), RayPool(setup, dispatcher), Snapshot(0, state, {})
        )
        rows = [finished.row for finished in rounds]
    return {
        "clients": per_round,
        "actors": actors,
        "clients_send_megabytes": rows[-1]["bytes_up"] / 1e6,
        "server_receives_megabytes": dispatcher.received / ROUNDS / 1e6,
        "train_seconds": rows[-1]["train_seconds"],
        "aggregate_seconds": rows[-1]["aggregate_seconds"],
        "server_private_megabytes": usage(os.getpid())[0],
    }


def main(numbers: list[str]) -> Iterator[str]:
    """Yield a line of JSON for each number of clients per round."""
    with session.connected(None):
        for number in numbers:
            yield json.dumps(measured(int(number), actors=2))


if __name__ == "__main__":
    for line in main(sys.argv[1:]):
        sys.stdout.write(line + "\n")
        sys.stdout.flush()
