"""Whether a device gives the same bits again: a small trial, done twice."""

from fedgps_ray.data.datasets import NO_SOURCE
from fedgps_ray.rounds.setup import prepare
from fedgps_ray.rounds.worker import Worker
from fedgps_ray.tools.verify.trials import quick, rounds_of, tiny


def hashes(device: str, times: int = 2) -> list[str]:
    """Return the digest of the last weights for each time that a trial of FedGPS is run.

    It has convolutions, BatchNorm and contrast, where GPUs tend to differ.
    """
    kind = "cuda" if device.startswith("cuda") else "cpu"
    spec = tiny(quick("fedgps"), {"device": kind})
    workers = [Worker(prepare(spec, NO_SOURCE), device) for _ in range(times)]
    return [str(rounds_of(worker)[-1].row["weights_sha256"]) for worker in workers]
