"""The state of a sweep, kept by its driver and read by others from live.json."""

import statistics
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from fedgps_ray.identity import EXACT
from fedgps_ray.results import files, schema
from fedgps_ray.results.folders import LIVE
from fedgps_ray.sweep.board import Record
from fedgps_ray.sweep.drawing import thinned
from fedgps_ray.units import printable

EVENTS_KEPT = 200
CURVE_KEPT = 48
RECENT_SECONDS = 60.0  # over which rounds per second are counted
USUAL_LAG = 1.5  # seconds of a trial before and after its rounds, until that was measured
FILE = LIVE
NOT_SEALED = f"{FILE} is not sealed: changes to it cannot be noticed"  # from older versions
Key = tuple[str, str]  # method and setting, which decide what a round takes


@dataclass
class Running:
    """A trial that is running."""

    trial_id: str
    method: str
    scenario: int
    seed: int
    setting: str  # other settings in which it differs from the rest
    rounds: int
    first: int = 0  # rounds that it had already when it began
    rounds_done: int = 0
    accuracy: float | None = None
    best: float | None = None
    seconds_a_round: float | None = None
    what: str = "starting"
    in_flight: list[str] = field(default_factory=list)
    restarts: int = 0
    curve: list[float] = field(default_factory=list)  # accuracies so far, thinned out
    began: float = 0.0

    @property
    def rounds_left(self) -> int:
        """Rounds still to do."""
        return max(0, self.rounds - self.rounds_done)

    def score(self, accuracy: float) -> None:
        """Take in the accuracy of another round."""
        self.accuracy = accuracy
        self.best = accuracy if self.best is None else max(self.best, accuracy)
        self.curve.append(accuracy)
        if len(self.curve) > CURVE_KEPT:
            self.curve = thinned(self.curve, CURVE_KEPT // 2)


def running(trial_id: str, record: Record, began: float = 0.0) -> Running:
    """Return a trial that begins."""
    return Running(
        trial_id=trial_id,
        method=record.method,
        scenario=record.scenario,
        seed=record.seed,
        setting=record.setting,
        rounds=record.rounds,
        began=began,
    )


@dataclass
class State:
    """A sweep: counts, what runs now, what happened last, and the cluster it runs on."""

    name: str
    total: int
    rounds_total: int
    finished: int = 0
    diverged: int = 0
    failed: int = 0
    rounds_before: int = 0  # done before this launch
    rounds_ended: int = 0  # since then, of trials that do not run any more
    trials_ended: int = 0  # in this launch
    slots: int = 0  # client actors that can work at the same time
    lanes: int = 0  # most trials that ran at the same time
    restarts: int = 0  # of actors and of trials
    work_before: float = 0.0  # seconds that clients had trained before this launch
    began: float = field(default_factory=time.time)
    updated: float = field(default_factory=time.time)
    working_since: float | None = None  # when the first round of this launch began
    ended: float | None = None
    running: dict[str, Running] = field(default_factory=dict)
    records: dict[str, Record] = field(default_factory=dict)
    paces: list[tuple[str, str, float]] = field(default_factory=list)  # of trials that ended
    lags: list[float] = field(default_factory=list)  # of trials that found their actors ready
    recent: list[tuple[float, int]] = field(default_factory=list)  # when, rounds done
    failures: dict[str, str] = field(default_factory=dict)
    losses: dict[str, str] = field(default_factory=dict)  # trials to be continued, and why
    events: list[tuple[float, str]] = field(default_factory=list)
    nodes: list[dict[str, Any]] = field(default_factory=list)

    @property
    def left(self) -> int:
        """How many trials are neither done nor running."""
        return self.total - self.finished - self.diverged - self.failed - len(self.running)

    @property
    def interrupted(self) -> int:
        """How many trials have begun, have rounds left, and do not run."""
        begun = (schema.INTERRUPTED, schema.RUNNING)
        return sum(
            record.status in begun and key not in self.running
            for key, record in self.records.items()
        )

    @property
    def rounds_done(self) -> int:
        """Rounds done so far, in this launch and before."""
        under_way = sum(max(0, t.rounds_done - t.first) for t in self.running.values())
        return self.rounds_before + self.rounds_ended + under_way

    # --- pace -----------------------------------------------------------------------------------

    def seconds_left(self) -> float | None:
        """Return how long the rest takes at the pace of this launch, leaving start-up out."""
        paces = self._paces()
        if not paces:
            return None
        lag = statistics.median(self.lags) if self.lags else USUAL_LAG
        now = [t.rounds_left * pace(paces, (t.method, t.setting)) for t in self.running.values()]
        later = [
            (record.rounds - record.rounds_done) * pace(paces, (record.method, record.setting))
            + lag
            for key, record in self.records.items()
            if record.is_waiting and key not in self.running
        ]
        return max([(sum(now) + sum(later)) / max(1, self.lanes), *now])

    def _paces(self) -> dict[Key, float]:
        """Return the seconds of a round, by method and setting."""
        known: dict[Key, list[float]] = {}
        for method, setting, seconds in self.paces:
            known.setdefault((method, setting), []).append(seconds)
        for trial in self.running.values():
            if trial.seconds_a_round is not None:
                known.setdefault((trial.method, trial.setting), []).append(trial.seconds_a_round)
        return {key: statistics.fmean(seconds) for key, seconds in known.items()}

    def trials_an_hour(self, now: float) -> float | None:
        """Return the trials that ended in an hour of this launch, leaving start-up out."""
        if not self.trials_ended or self.working_since is None:
            return None
        return self.trials_ended * 3600 / max(1e-9, (self.ended or now) - self.working_since)

    def rounds_a_second(self) -> float | None:
        """Return the rounds of a second in the last minute."""
        if len(self.recent) < 2:
            return None
        (then, before), (now, after) = self.recent[0], self.recent[-1]
        return (after - before) / (now - then) if now > then else None

    def count_rounds(self, now: float) -> None:
        """Note how many rounds are done now."""
        self.recent.append((now, self.rounds_done))
        self.recent = [(t, n) for t, n in self.recent if t >= now - RECENT_SECONDS]

    def leave_all(self) -> None:
        """Note that nothing runs any more."""
        for trial_id in list(self.running):
            self.leave(trial_id)

    def leave(self, trial_id: str) -> Running | None:
        """Note that a trial does not run any more; the rounds that it did stay counted."""
        trial = self.running.pop(trial_id, None)
        if trial is not None:
            self.rounds_ended += max(0, trial.rounds_done - trial.first)
        return trial

    # --- what is noted --------------------------------------------------------------------------

    def tell(self, text: str) -> None:
        """Note an event."""
        self.events.append((time.time(), printable(text)))
        del self.events[:-EVENTS_KEPT]

    def says(self, text: str) -> bool:
        """Say whether an event is among those noted."""
        return any(noted == text for _, noted in self.events)

    def save(self, folder: Path) -> None:
        """Write live.json; not flushed to disk: the next one follows within seconds."""
        self.updated = time.time()
        running = {key: vars(trial) for key, trial in self.running.items()}
        files.write_json(folder / FILE, {**vars(self), "running": running}, durable=False)


_STATE = TypeAdapter(State)  # checks types


def pace(paces: Mapping[Key, float], key: Key) -> float:
    """Return the seconds of a round, or of what is most like it if none was measured."""
    if key in paces:
        return paces[key]
    method, setting = key
    same = [seconds for (_, other), seconds in paces.items() if other == setting]
    same = same or [seconds for (other, _), seconds in paces.items() if other == method]
    return statistics.fmean(same or paces.values())


def load(folder: Path) -> State | None:
    """Return the state of a folder's last launch; None if there is none that can be read."""
    try:
        known = files.read_json(folder / FILE)
        is_sealed = known.pop(files.SEAL, None) is not None
        state = _STATE.validate_python(_shown(known))
    except (OSError, ValueError):
        return None
    if not is_sealed:
        state.tell(NOT_SEALED)
    return state if _is_possible(state) else None


def _is_possible(state: State) -> bool:
    """Say whether all numbers can be, and not more trials have ended than there are."""
    ended = (state.finished, state.diverged, state.failed)
    is_counted = min(ended) >= 0 and sum(ended) <= state.total
    return is_counted and all(abs(number) < EXACT for number in _numbers(state))


def _numbers(value: object) -> Iterator[float]:
    """Yield all numbers in a state."""
    if isinstance(value, int | float):
        yield value
    elif isinstance(value, State | Running):
        yield from _numbers(vars(value))
    elif isinstance(value, dict | list | tuple):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _numbers(inner)


def _shown(value: object) -> object:
    """Return a value whose texts can be shown in a terminal."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, dict):
        return {printable(key): _shown(inner) for key, inner in value.items()}
    return [_shown(inner) for inner in value] if isinstance(value, list) else value


def is_driven(folder: Path) -> bool:
    """Say whether a process is driving the sweep of a folder right now."""
    return files.is_locked(folder)
