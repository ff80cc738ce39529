"""Ends trials whose own process hangs, for which Tune would wait forever; watches the folder."""

import time
from collections.abc import Sequence
from pathlib import Path

import ray
from ray import tune
from ray.tune.experiment import Trial

from fedgps_ray.cluster.policy import POLICY
from fedgps_ray.identity import Table
from fedgps_ray.sweep.tracker import CURRENT


def identity(folder: Path) -> tuple[int, int] | None:
    """Return what stays the same when a folder is renamed, and None if there is no such folder."""
    try:
        facts = folder.stat()
    except OSError:
        return None
    return facts.st_dev, facts.st_ino


class Pulse(tune.Callback):
    """Notes when each trial was last heard of; a running one tells something every second."""

    def __init__(self, hang_seconds: float, folder: Path) -> None:
        self.limit = max(hang_seconds, POLICY.trial_silence_seconds)
        self.folder, self.home = folder, identity(folder)
        self.heard: dict[str, float] = {}
        self.last = self.looked = time.monotonic()

    def on_trial_start(
        self, iteration: int, trials: list[Trial], trial: Trial, **_: object
    ) -> None:
        """A trial starts."""
        self._hear(trial)

    def on_trial_result(
        self, iteration: int, trials: list[Trial], trial: Trial, result: Table, **_: object
    ) -> None:
        """A trial reports its progress."""
        self._hear(trial)

    def on_step_end(self, iteration: int, trials: list[Trial], **_: object) -> None:
        """Kill the process of each trial that is silent: Tune starts it again."""
        if identity(self.folder) != self.home:
            raise RuntimeError(f"{self.folder} was moved or deleted")
        self._look(time.monotonic())
        slowness = POLICY.pace().slowness
        for trial in self.silent(trials, time.monotonic(), slowness):
            self._hear(trial)
            if (actor := trial.temporary_state.ray_actor) is not None:
                CURRENT[-1].tell(f"{trial} does not answer; its process is replaced")
                ray.kill(actor)
        self._give_up(trials, time.monotonic(), slowness)

    def _look(self, now: float) -> None:
        """Note that this process looks; if it was stopped itself, as by Ctrl-Z, nobody was silent.

        What the trials have told meanwhile is heard one by one.
        """
        if now - self.looked > self.limit / 2:
            self.heard, self.last = dict.fromkeys(self.heard, now), now
        self.looked = now

    def silent(self, trials: Sequence[Trial], now: float, slowness: float) -> list[Trial]:
        """Return the running trials that have told nothing for too long."""
        running = [trial for trial in trials if trial.status == Trial.RUNNING]
        limit = self.limit * slowness
        return [trial for trial in running if now - self.heard[trial.trial_id] > limit]

    def _give_up(self, trials: Sequence[Trial], now: float, slowness: float) -> None:
        """End the launch if trials wait for processes that never come; the next one is fresh."""
        waiting = any(trial.status == Trial.PENDING for trial in trials)
        if any(trial.status == Trial.RUNNING for trial in trials) or not waiting:
            self.last = now
        elif now - self.last > POLICY.no_trial_seconds * slowness:
            raise RuntimeError(f"no trial could be started for {now - self.last:.0f} s")

    def _hear(self, trial: Trial) -> None:
        self.heard[trial.trial_id] = self.last = time.monotonic()
