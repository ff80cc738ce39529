"""Kills and stops random processes of a small sweep, and checks that no number changes.

Only processes of the sweeps started here are touched: their drivers, and what these have started.
"""

import json
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from fedgps_ray.cluster import session
from fedgps_ray.cluster.policy import POLICY
from fedgps_ray.errors import UserError
from fedgps_ray.experiment import load
from fedgps_ray.identity import Table
from fedgps_ray.results.read import read_trial, trial_folders
from fedgps_ray.rounds.trial import run_trial
from fedgps_ray.spec import ExecutionSpec
from fedgps_ray.tools.targets import Joined, OwnRay, Process, Targets, by_kind

PROGRAM = [sys.executable, "-c", "from fedgps_ray.cli import main; main()"]
EXPERIMENT = """
name = "chaos"
[base]
dataset = "digits"
model = "mlp"
clients = 4
sampling_rate = 0.5
rounds = {rounds}
[grid]
method = ["fedavg", "fedgps_cf"]
seed = [{first}, {second}]
[execution]
checkpoint_seconds = 0.5
hang_seconds = 10
"""
ROUNDS = 60
STOP_SHARE = 0.3  # of the blows: stopped instead of killed
STOPPED_SECONDS = 5.0  # a driver that was stopped goes on after that
PAUSE_SECONDS = (1.0, 8.0)  # between two blows, times the slowness of the machine
MOST_PATIENT = 2.0  # ... up to this factor
POLL_SECONDS = 0.25
GONE_SECONDS = 10.0  # processes of a dead driver that stay longer are left over
ALONE_SECONDS = 40.0  # ... on a busy machine too: after a minute Ray's end by themselves
END_SECONDS = 300.0  # a sweep that does not end within that after the last blow hangs
IDLE_WAVES = 3  # so many sweeps in a row in which there was nothing to kill are enough


@dataclass
class Blow:
    """A process that was killed or stopped, and how long it took to notice."""

    kind: str
    way: str
    process: Process
    at: float
    others: frozenset[Process]  # processes of the same kind at that time
    seconds: float | None = None
    is_open: bool = True  # not noticed yet


class Verdict(NamedTuple):
    """What came of it all."""

    blows: list[Blow]
    kills: int  # how many blows there were to be
    trials: int
    same: int
    failed: list[str]
    different: list[str]
    missing: list[str]
    hung: list[str]
    starts: int
    left_over: list[str]
    seconds: float

    @property
    def holds(self) -> bool:
        """Whether every trial ended with the same weights, and nothing hung or was left behind."""
        enough = len(self.blows) >= self.kills
        return enough and self.same == self.trials and not self.left_over and not self.hung


@dataclass
class Chaos:
    """The state of one attack."""

    folder: Path
    targets: Targets
    kills: int
    rng: random.Random
    notify: Callable[[str], None]
    blows: list[Blow] = field(default_factory=list)
    starts: int = 0
    left_over: list[str] = field(default_factory=list)
    hung: list[str] = field(default_factory=list)
    quiet_since: float = 0.0  # when a wave began, or the last blow

    def wave(self, number: int) -> tuple[dict[str, str], dict[str, str]]:
        """Run a sweep under attack to its end; return hashes of it and of an undisturbed run."""
        file = self.folder / f"wave-{number}.toml"
        first, second = 2 * number, 2 * number + 1
        file.write_text(EXPERIMENT.format(rounds=ROUNDS, first=first, second=second))
        self.notify(f"wave {number + 1}: an undisturbed run in one process")
        expected = undisturbed(file, self.folder / f"alone-{number}")
        runs = self.folder / f"runs-{number}"
        command, self.quiet_since = ["sweep", str(file), "--out", str(runs)], time.monotonic()
        while not _has_ended(runs, len(expected)):
            if self._hangs():
                self.hung.append(f"wave {number + 1}")
                break
            self._sweep(command)
            if (runs / "experiment.json").exists():
                command = ["resume", str(runs)]
        return expected, hashes(runs)

    def _hangs(self) -> bool:
        """Say whether a sweep has had more than enough time since the last blow."""
        limit = END_SECONDS * POLICY.pace().slowness
        return time.monotonic() - self.quiet_since > limit

    def _sweep(self, command: list[str]) -> None:
        """Start a driver and attack it until it ends."""
        self.starts += 1
        with (self.folder / "log.txt").open("a") as log:
            driver = subprocess.Popen(
                [*PROGRAM, *command, *self.targets.options],
                env=self.targets.environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            self._attack(driver)
        finally:
            driver.kill()
            driver.wait()
            self._bury(driver.pid)
            self._look({})

    def _attack(self, driver: "subprocess.Popen[bytes]") -> None:
        following = time.monotonic() + self._pause()
        while driver.poll() is None and not self._hangs():
            time.sleep(POLL_SECONDS)
            self._look(self._alive(driver.pid))
            if time.monotonic() > following and len(self.blows) < self.kills:
                following = time.monotonic() + self._pause()
                self._strike(driver.pid)

    def _pause(self) -> float:
        """Return when to strike next: so that trials get somewhere in between, also when busy."""
        return self.rng.uniform(*PAUSE_SECONDS) * min(POLICY.pace().slowness, MOST_PATIENT)

    def _alive(self, driver: int) -> dict[str, set[Process]]:
        """Return the processes that may be attacked, by kind."""
        return {"driver": {Process(driver)}, **by_kind(self.targets.find(driver))}

    def _strike(self, driver: int) -> None:
        """Kill or stop one process, but none before the first trial is running."""
        alive = self._alive(driver)
        if "trial" not in alive:
            return
        kind = self.rng.choice(sorted(alive))
        process = self.rng.choice(sorted(alive[kind]))
        way = "stopped" if self.rng.random() < STOP_SHARE else "killed"
        if self.targets.send(process, signal.SIGSTOP if way == "stopped" else signal.SIGKILL):
            self.notify(f"{len(self.blows) + 1} of {self.kills}: {way} {kind} {process.pid}")
            self.quiet_since = time.monotonic()
            self.blows.append(Blow(kind, way, process, self.quiet_since, frozenset(alive[kind])))

    def _look(self, alive: Mapping[str, set[Process]]) -> None:
        """Note which blows were noticed: the process is gone and replaced.

        For a driver: all its processes are gone. What was not replaced by the time it ended is
        closed: nothing needed it.
        """
        now = time.monotonic()
        for blow in (blow for blow in self.blows if blow.is_open):
            noticed = _is_noticed(blow, alive, now)
            if noticed and blow.kind == "driver" and alive:
                self.targets.send(blow.process, signal.SIGCONT)
            blow.is_open = bool(alive) and not noticed
            blow.seconds = now - blow.at if noticed else None

    def _bury(self, driver: int) -> None:
        """Wait for the processes of a dead driver; report what is left."""
        deadline = time.monotonic() + min(GONE_SECONDS * POLICY.pace().slowness, ALONE_SECONDS)
        while (left := self.targets.find(driver)) and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
        self.left_over += [f"{process.pid} {command[:60]}" for process, command in left.items()]
        self.targets.clear(driver)


def _is_noticed(blow: Blow, alive: Mapping[str, set[Process]], now: float) -> bool:
    """Say whether a process is gone and replaced; a driver is gone with all that it started."""
    if blow.kind == "driver":
        return not alive or (blow.way == "stopped" and now - blow.at > STOPPED_SECONDS)
    same = alive.get(blow.kind, set())
    return blow.process not in same and bool(same - blow.others)


def chaos(kills: int, seed: int, notify: Callable[[str], None]) -> Verdict:
    """Attack sweeps that start a Ray of their own, until there were enough blows."""
    folder = Path(tempfile.mkdtemp(prefix="chaos-"))
    return _waves(Chaos(folder, OwnRay(folder / "s"), kills, random.Random(seed), notify))


def chaos_on_cluster(
    address: str, out: Path, kills: int, seed: int, notify: Callable[[str], None]
) -> Verdict:
    """Attack sweeps on a cluster, whose nodes all see the folder for the results."""
    out.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="chaos-", dir=out.resolve()))
    with session.connected(address):
        return _waves(Chaos(folder, Joined(address), kills, random.Random(seed), notify))


def _waves(state: Chaos) -> Verdict:
    """Run sweep after sweep until there were enough blows, and compare all hashes."""
    began = time.monotonic()
    expected: dict[str, str] = {}
    ends: dict[str, str] = {}
    number = idle = 0
    while len(state.blows) < state.kills and not state.hung and idle < IDLE_WAVES:
        before = len(state.blows)
        for known, more in zip((expected, ends), state.wave(number), strict=True):
            known |= more
        number += 1
        idle = idle + 1 if len(state.blows) == before else 0
    if not state.blows:
        raise UserError(
            f"nothing was killed: {IDLE_WAVES} sweeps ended and none of their processes was found;"
            f" what they said: {state.folder / 'log.txt'}"
        )
    verdict = _verdict(state, expected, ends, time.monotonic() - began)
    if verdict.holds:
        shutil.rmtree(state.folder, ignore_errors=True)
    else:
        state.notify(f"what the sweeps said: {state.folder / 'log.txt'}")
    return verdict


def _verdict(
    state: Chaos, expected: Mapping[str, str], ends: Mapping[str, str], seconds: float
) -> Verdict:
    wrong = {key: ends.get(key, "missing") for key in expected if ends.get(key) != expected[key]}
    failed = [key for key, end in wrong.items() if end == "failed"]
    missing = [key for key, end in wrong.items() if end in ("missing", "running", "interrupted")]
    return Verdict(
        blows=state.blows,
        kills=state.kills,
        trials=len(expected),
        same=len(expected) - len(wrong),
        failed=failed,
        missing=missing,
        different=[key for key in wrong if key not in (*failed, *missing)],
        hung=state.hung,
        starts=state.starts,
        left_over=state.left_over,
        seconds=seconds,
    )


def undisturbed(file: Path, out: Path) -> dict[str, str]:
    """Run an experiment's trials in this process and return their hashes."""
    specs = [cell.spec for cell in load(file, []).cells]
    for spec in specs:
        for _ in run_trial(spec, ExecutionSpec(out=out, actors=0)):
            pass
    return hashes(out)


def hashes(out: Path) -> dict[str, str]:
    """Return the weights hash of each finished trial of a folder, of others the status."""
    return {trial.name: _end(read_trial(trial)) for trial in trial_folders(out)}


def _end(info: Table) -> str:
    finished = info["status"] == "finished"
    return str(info["summary"]["weights_sha256"] if finished else info["status"])


def _has_ended(out: Path, trials: int) -> bool:
    infos = list(_infos(out))
    return len(infos) == trials and all(i["status"] in ("finished", "failed") for i in infos)


def _infos(out: Path) -> Iterator[Table]:
    for path in out.glob("trials/*/trial.json"):
        yield json.loads(path.read_text())
