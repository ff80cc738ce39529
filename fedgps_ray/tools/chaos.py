"""Kills and stops random processes of a small sweep, and checks that no number changes.

Only processes of the sweeps started here are touched: their drivers, and what these have started.
"""

import contextlib
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

import pyarrow as pa
import pyarrow.parquet as pq

from fedgps_ray.cluster import session
from fedgps_ray.cluster.policy import POLICY
from fedgps_ray.errors import UserError
from fedgps_ray.experiment import load
from fedgps_ray.identity import Table
from fedgps_ray.results import schema
from fedgps_ray.results.read import UNREADABLE, check, read_rows, read_trial, trial_folders
from fedgps_ray.rounds.trial import run_trial
from fedgps_ray.spec import ExecutionSpec
from fedgps_ray.tools.targets import (
    Joined,
    OwnRay,
    Process,
    Targets,
    by_kind,
    processes_of_command,
)

PROGRAM = [sys.executable, "-m", "fedgps_ray"]
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
EARLY_SHARE = 0.1  # of the chances to strike before a trial is running: taken
LOOK_SECONDS = 3.0  # how often to look how far the trials have come
END_SECONDS = 300.0  # without progress for so long: no more blows; for twice as long: it hangs
IDLE_WAVES = 3  # so many sweeps in a row in which there was nothing to kill are enough
LOST = 3  # exit code of a driver that has lost Ray: what is done is kept
TRACEBACK = "Traceback (most recent call last)"
UNENDED = (schema.MISSING, schema.NEW, schema.RUNNING, schema.INTERRUPTED)


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
    crashed: list[str]  # how drivers ended that nobody had killed, and tracebacks
    starts: int
    left_over: list[str]
    seconds: float

    @property
    def holds(self) -> bool:
        """Whether every trial ended with the same weights; nothing hung, crashed or was left."""
        enough = len(self.blows) >= self.kills
        bad = (*self.left_over, *self.hung, *self.crashed)
        return enough and self.same == self.trials and not bad


@dataclass
class Progress:
    """How far the trials of a sweep have come, and how long they have come no further.

    Blows may keep them from it for a while. So first the blows stop, and only if that does not
    help either, the sweep hangs.
    """

    runs: Path
    most: int = 0  # rounds and ended trials
    waited: float = 0.0  # seconds without progress; the busier the machine, the less each counts
    looked_at: float = field(default_factory=time.monotonic)

    def look(self) -> None:
        """Look now and then whether there are more rounds or ended trials than ever before."""
        now = time.monotonic()
        if now - self.looked_at < LOOK_SECONDS:
            return
        self.waited += (now - self.looked_at) / POLICY.pace().slowness
        self.looked_at = now
        if (done := _done(self.runs)) > self.most:
            self.most, self.waited = done, 0.0

    @property
    def is_slow(self) -> bool:
        """Whether it is time to stop striking."""
        return self.waited > END_SECONDS

    @property
    def hangs(self) -> bool:
        """Whether there was no progress without blows either."""
        return self.waited > 2 * END_SECONDS


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
    crashed: list[str] = field(default_factory=list)
    progress: Progress = field(init=False)  # of the wave

    def wave(self, number: int) -> tuple[dict[str, str], dict[str, str]]:
        """Run a sweep under attack to its end; return how an undisturbed one ends, and this one."""
        file = self.folder / f"wave-{number}.toml"
        first, second = 2 * number, 2 * number + 1
        file.write_text(EXPERIMENT.format(rounds=ROUNDS, first=first, second=second))
        self.notify(f"wave {number + 1}: an undisturbed run in one process")
        expected = undisturbed(file, self.folder / f"alone-{number}")
        runs = self.folder / f"runs-{number}"
        command, self.progress = ["sweep", str(file), "--out", str(runs)], Progress(runs)
        while not self.hung and not _has_ended(runs, len(expected)):
            self._sweep(command)
            if self.progress.hangs:
                self.hung.append(f"wave {number + 1}")
            if (runs / "experiment.json").exists():
                command = ["resume", str(runs)]
        return expected, ends(runs)

    def _sweep(self, command: list[str]) -> None:
        """Start a driver and attack it until it ends."""
        self.starts += 1
        driver, before = self._start(command), len(self.blows)
        try:
            self._attack(driver)
        finally:
            ended_here = driver.poll() is None  # it hangs
            driver.kill()
            driver.wait()
            self._bury()
            self._look({})
        hits = [blow.way for blow in self.blows[before:] if blow.kind == "driver"]
        self.crashed += _crash(driver.returncode, ended_here or "killed" in hits)

    def _start(self, command: list[str]) -> "subprocess.Popen[bytes]":
        with (self.folder / "log.txt").open("a") as log:
            return subprocess.Popen(
                [*PROGRAM, *command, *self.targets.options],
                env=self.targets.environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _attack(self, driver: "subprocess.Popen[bytes]") -> None:
        following = time.monotonic() + self._pause()
        while driver.poll() is None and not self.progress.hangs:
            time.sleep(POLL_SECONDS)
            self._look(self._alive(driver.pid))
            self.progress.look()
            if time.monotonic() > following and self._may_strike():
                following = time.monotonic() + self._pause()
                self._strike(driver.pid)

    def _may_strike(self) -> bool:
        """Say whether blows are left and the trials get somewhere in spite of them."""
        return len(self.blows) < self.kills and not self.progress.is_slow

    def _pause(self) -> float:
        """Return when to strike next: so that trials get somewhere in between, also when busy."""
        return self.rng.uniform(*PAUSE_SECONDS) * min(POLICY.pace().slowness, MOST_PATIENT)

    def _alive(self, driver: int) -> dict[str, set[Process]]:
        """Return the processes that may be attacked, by kind."""
        return {"driver": processes_of_command(driver), **by_kind(self.targets.find())}

    def _strike(self, driver: int) -> None:
        """Kill or stop one process, but seldom before the first trial is running."""
        alive = self._alive(driver)
        if "trial" not in alive and self.rng.random() >= EARLY_SHARE:
            return
        kind = self.rng.choice(sorted(alive))
        process = self.rng.choice(sorted(alive[kind]))
        way = "stopped" if self.rng.random() < STOP_SHARE else "killed"
        if self.targets.send(process, signal.SIGSTOP if way == "stopped" else signal.SIGKILL):
            self.notify(f"{len(self.blows) + 1} of {self.kills}: {way} {kind} {process.pid}")
            others = frozenset(alive[kind])
            self.blows.append(Blow(kind, way, process, time.monotonic(), others))

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

    def _bury(self) -> None:
        """Wait for the processes of the dead driver; report what is left."""
        deadline = time.monotonic() + min(GONE_SECONDS * POLICY.pace().slowness, ALONE_SECONDS)
        while (left := self.targets.find()) and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
        self.left_over += [f"{process.pid} {command[:60]}" for process, command in left.items()]
        self.targets.clear()


def _crash(code: int, was_killed: bool) -> list[str]:
    """Return how a driver ended, unless it was done, had lost Ray or was killed on purpose.

    Also 1 and 130 are wrong: no trial may fail, and nobody interrupts a driver.
    """
    if code in (0, LOST) or (was_killed and code == -signal.SIGKILL):
        return []
    return [f"exit code {code}" if code >= 0 else f"died of {signal.Signals(-code).name}"]


def _tracebacks(log: Path) -> list[str]:
    """Return a line about the tracebacks that drivers printed."""
    count = log.read_text(errors="replace").count(TRACEBACK) if log.exists() else 0
    return [f"tracebacks printed: {count}"] if count else []


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
    targets = Joined(address, folder.name)
    with session.connected(address):
        return _waves(Chaos(folder, targets, kills, random.Random(seed), notify))


def _waves(state: Chaos) -> Verdict:
    """Run sweep after sweep until there were enough blows, and compare all hashes."""
    began = time.monotonic()
    expected: dict[str, str] = {}
    ended: dict[str, str] = {}
    number = idle = 0
    while len(state.blows) < state.kills and not state.hung and idle < IDLE_WAVES:
        before = len(state.blows)
        for known, more in zip((expected, ended), state.wave(number), strict=True):
            known |= more
        number += 1
        idle = idle + 1 if len(state.blows) == before else 0
    if not state.blows:
        raise UserError(
            f"nothing was killed: {IDLE_WAVES} sweeps ended and none of their processes was found;"
            f" what they said: {state.folder / 'log.txt'}"
        )
    state.crashed += _tracebacks(state.folder / "log.txt")
    verdict = _verdict(state, expected, ended, time.monotonic() - began)
    if verdict.holds:
        shutil.rmtree(state.folder, ignore_errors=True)
    else:
        state.notify(f"what the sweeps said: {state.folder / 'log.txt'}")
    return verdict


def _verdict(
    state: Chaos, expected: Mapping[str, str], ended: Mapping[str, str], seconds: float
) -> Verdict:
    found = {key: ended.get(key, schema.MISSING) for key in expected}
    wrong = {
        key: end
        for key, end in found.items()
        if end != expected[key] or end in (schema.MISSING, *schema.STATUSES)
    }
    failed = [key for key, end in wrong.items() if end == schema.FAILED]
    missing = [key for key, end in wrong.items() if end in UNENDED]
    return Verdict(
        blows=state.blows,
        kills=state.kills,
        trials=len(expected),
        same=len(expected) - len(wrong),
        failed=failed,
        missing=missing,
        different=[key for key in wrong if key not in (*failed, *missing)],
        hung=state.hung,
        crashed=state.crashed,
        starts=state.starts,
        left_over=state.left_over,
        seconds=seconds,
    )


def undisturbed(file: Path, out: Path) -> dict[str, str]:
    """Run an experiment's trials in this process and return how they end."""
    specs = [cell.spec for cell in load(file, []).cells]
    for spec in specs:
        for _ in run_trial(spec, ExecutionSpec(out=out, actors=0)):
            pass
    return ends(out)


def ends(out: Path) -> dict[str, str]:
    """Return the hashes of all rounds of each finished trial, of others the status.

    Of a damaged trial: what is wrong with it.
    """
    return {trial.name: _end(trial) for trial in trial_folders(out)}


def _end(trial: Path) -> str:
    if problems := check(trial, full=True):
        return "\n".join(problems)
    status = str(read_trial(trial)["status"])
    return _weights(trial / "rounds.parquet") if status == schema.FINISHED else status


def _weights(path: Path) -> str:
    """Return round and hash of every row, so that lost and doubled rows show."""
    try:
        rows = read_rows(path, schema.ROUNDS)
    except UNREADABLE as problem:
        return f"{path}: {problem}"
    both = zip(rows["round"].to_pylist(), rows["weights_sha256"].to_pylist(), strict=True)
    return "\n".join(f"round {number}: {digest}" for number, digest in both)


def _done(out: Path) -> int:
    """Return how many rounds are on disk and trials have ended."""
    rows = sum(map(_rows, out.glob("trials/*/rounds.parquet")))
    return rows + sum(_is_over(info) for info in _infos(out))


def _rows(path: Path) -> int:
    """Return how many rows a file has; one that is moved or damaged has none."""
    with contextlib.suppress(pa.ArrowException, OSError):
        return int(pq.read_metadata(path).num_rows)
    return 0


def _has_ended(out: Path, trials: int) -> bool:
    infos = list(_infos(out))
    return len(infos) == trials and all(map(_is_over, infos))


def _is_over(info: Table) -> bool:
    return info["status"] in (*schema.DONE, schema.FAILED)


def _infos(out: Path) -> Iterator[Table]:
    for path in out.glob("trials/*/trial.json"):
        with contextlib.suppress(OSError):  # it is being moved
            yield json.loads(path.read_text())
