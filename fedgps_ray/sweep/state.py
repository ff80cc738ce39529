"""The state of a sweep, kept by its driver and read by others from live.json."""

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from fedgps_ray.identity import Label
from fedgps_ray.results import files
from fedgps_ray.units import printable

EVENTS_KEPT = 200
FILE = "live.json"


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


def running(columns: Mapping[str, Any], label: Label) -> Running:
    """Return a trial that begins, from its columns and its label."""
    setting = ", ".join(label.parts("scenario", "seed"))  # these have columns of their own
    trial_id, scenario, seed = columns["trial_id"], columns["scenario"], columns["seed"]
    return Running(trial_id, label.method, scenario, seed, setting, columns["rounds"])


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
    rounds_ended: int = 0  # since then, of trials that have ended
    slots: int = 0  # client actors that can work at the same time
    work_before: float = 0.0  # seconds that clients had trained before this launch
    began: float = field(default_factory=time.time)
    updated: float = field(default_factory=time.time)
    ended: float | None = None
    running: dict[str, Running] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    events: list[tuple[float, str]] = field(default_factory=list)
    cluster: dict[str, float] = field(default_factory=dict)

    @property
    def left(self) -> int:
        """How many trials are neither done nor running."""
        return self.total - self.finished - self.diverged - self.failed - len(self.running)

    @property
    def rounds_done(self) -> int:
        """Rounds done so far, in this launch and before."""
        under_way = sum(max(0, t.rounds_done - t.first) for t in self.running.values())
        return self.rounds_before + self.rounds_ended + under_way

    def seconds_left(self, now: float) -> float | None:
        """Return how long the rest takes at the pace of this launch."""
        mine = self.rounds_done - self.rounds_before
        if mine <= 0:
            return None
        return (self.rounds_total - self.rounds_done) * (now - self.began) / mine

    def tell(self, text: str) -> None:
        """Note an event."""
        self.events.append((time.time(), printable(text)))
        del self.events[:-EVENTS_KEPT]

    def save(self, folder: Path) -> None:
        """Write live.json; not flushed to disk: the next one follows within seconds."""
        self.updated = time.time()
        files.write_json(folder / FILE, asdict(self), durable=False)


_STATE = TypeAdapter(State)  # checks types


def load(folder: Path) -> State | None:
    """Return the state of a folder's last launch; None if there is none that can be read."""
    try:
        known = files.read_json(folder / FILE)
        known.pop(files.SEAL, None)
        return _STATE.validate_python(_shown(known))
    except (OSError, ValueError):
        return None


def _shown(value: Any) -> Any:
    """Return a value whose texts can be shown in a terminal."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, dict):
        return {printable(key): _shown(inner) for key, inner in value.items()}
    return [_shown(inner) for inner in value] if isinstance(value, list) else value


def is_driven(folder: Path) -> bool:
    """Say whether a process is driving the sweep of a folder right now."""
    return files.is_locked(folder)
