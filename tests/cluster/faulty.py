"""Methods that go wrong on purpose, or do nothing at all; the processes of test clusters know them.

A cluster's processes find this file through PYTHONPATH and call `register` when they start.
"""

import contextlib
import os
import signal
import time
from pathlib import Path
from random import SystemRandom

import torch
from pydantic.dataclasses import dataclass

from fedgps_ray.methods import METHODS, FedAvg
from fedgps_ray.methods.base import STRICT, Work
from fedgps_ray.methods.fedgps import FedGPS, Upload
from fedgps_ray.methods.fedgps_cf import FedGPSCF
from fedgps_ray.tensors import Update

PATIENCE_SECONDS = 400


@dataclass(frozen=True, config=STRICT)
class Faulty(FedGPSCF):
    """FedGPS-CF, which has memory, momentum and borrowed tensors, until a client's fault."""

    folder: str = ""  # for the marker of a client, once its fault has happened
    faulty_client: int | None = 2  # None: every client
    faulty_round: int = 2

    def work(self, local, message, memory):
        client = local.client.id
        due = local.round + 1 == self.faulty_round and self.faulty_client in (None, client)
        if due:
            self.fault(client)
        done = super().work(local, message, memory)
        return self.spoilt(done) if due else done

    def fault(self, client):
        """Go wrong before the work."""

    def spoilt(self, done):
        """Go wrong after the work."""
        return done

    def is_first(self, client):
        """Say whether it has not happened yet, and leave the marker: the own process id."""
        marker = Path(self.folder) / f"client-{client}"
        if marker.exists():
            return False
        beside = marker.with_suffix(".part")
        beside.write_text(str(os.getpid()))
        beside.rename(marker)
        return True


class Dies(Faulty):
    def fault(self, client):
        if self.is_first(client):
            os.kill(os.getpid(), signal.SIGKILL)


class AlwaysDies(Faulty):
    def fault(self, client):
        os.kill(os.getpid(), signal.SIGKILL)


class Hangs(Faulty):
    def fault(self, client):
        if self.is_first(client):
            os.kill(os.getpid(), signal.SIGSTOP)


class Raises(Faulty):
    def fault(self, client):
        raise RuntimeError("the dog ate the gradient")


class FillsGpu(Faulty):
    def fault(self, client):
        if self.is_first(client):
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")


class AlwaysFillsGpu(Faulty):
    def fault(self, client):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")


class NotANumber(Faulty):
    def spoilt(self, done):
        upload = done.upload._replace(delta=torch.full_like(done.upload.delta, torch.nan))
        return done._replace(upload=upload)


class Waits(Faulty):
    """The first time, it waits in the middle of its work until somebody leaves a `go`."""

    def fault(self, client):
        go, deadline = Path(self.folder) / "go", time.monotonic() + PATIENCE_SECONDS
        if self.is_first(client):
            while not go.exists() and time.monotonic() < deadline:
                time.sleep(0.02)


@dataclass(frozen=True, config=STRICT)
class DiesEarly(FedGPSCF):
    """No process but its owner's survives to hear how wide the model is."""

    owner: int = 0

    def num_outputs(self, num_classes):
        if os.getpid() != self.owner:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().num_outputs(num_classes)


@dataclass(frozen=True, config=STRICT)
class StopsEarly(FedGPSCF):
    """The first process but its owner's that hears how wide the model is stops, and never ends."""

    folder: str = ""
    owner: int = 0

    def num_outputs(self, num_classes):
        beside = Path(self.folder) / f"process-{os.getpid()}"
        if os.getpid() != self.owner:
            beside.write_text(str(os.getpid()))
            with contextlib.suppress(FileExistsError):  # another process was the first
                os.link(beside, beside.with_name("stopped"))
                os.kill(os.getpid(), signal.SIGSTOP)
        return super().num_outputs(num_classes)


class Slow(FedGPSCF):
    """FedGPS-CF whose clients take a while, and never the same."""

    def work(self, local, message, memory):
        time.sleep(SystemRandom().random() * 0.2)
        return super().work(local, message, memory)


class Idle:
    """No training; update, momentum and memory have the size of the model and depend on memory."""

    def work(self, local, message, memory):
        weights, buffers = message.params
        before = 0.0 if memory is None else self.trace(memory)
        delta = weights * -1e-3 * (1 + local.client.id + before)
        local.velocity = delta * 2 if local.velocity is None else local.velocity + delta
        upload = Upload(delta, buffers.clone(), None, None)
        kept = self.remember(local, message, Update(delta, upload.buffers))
        return Work(upload, kept, 1.0, {"met_again": float(memory is not None)})


class IdleGPS(Idle, FedGPS):
    def trace(self, memory):
        return float(memory.round) if memory.delta is None else float(memory.delta[0])


class IdleGPSCF(Idle, FedGPSCF):
    def trace(self, memory):
        return float(memory.received[0])


KNOWN: dict[str, type[FedAvg]] = {
    "dies": Dies,
    "always_dies": AlwaysDies,
    "dies_early": DiesEarly,
    "stops_early": StopsEarly,
    "hangs": Hangs,
    "raises": Raises,
    "fills_gpu": FillsGpu,
    "always_fills_gpu": AlwaysFillsGpu,
    "not_a_number": NotANumber,
    "waits": Waits,
    "slow": Slow,
    "idle_fedgps": IdleGPS,
    "idle_fedgps_cf": IdleGPSCF,
}


def register():
    """Make the methods known in this process."""
    METHODS.update(KNOWN)
