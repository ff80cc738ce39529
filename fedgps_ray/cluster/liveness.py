"""Whether an actor still lives: when to ping it, and when its silence has lasted too long."""

import os
from collections.abc import Callable
from typing import Literal

Step = Literal["wait", "ping", "replace"]
PINGS_PER_LIMIT = 3


class Liveness:
    """Watches one actor; it is given times and answers, and does not know Ray."""

    def __init__(self) -> None:
        self.since: float | None = None  # the last sign of life, or when the open ping was sent
        self.is_asked = False

    def look(self, now: float, answered: bool, limit: float | None) -> Step:
        """Return what to do now.

        answered: whether the open ping was; limit: of silence, None if the actor has no work.
        """
        if limit is None or self.since is None or (self.is_asked and answered):
            self.since, self.is_asked = None if limit is None else now, False
            return "wait"
        silence = now - self.since
        if self.is_asked and silence > limit:
            self.since, self.is_asked = now, False
            return "replace"
        if not self.is_asked and silence > limit / PINGS_PER_LIMIT:
            self.since, self.is_asked = now, True
            return "ping"
        return "wait"


class Pace:
    """How many times slower than usual this machine is: by its load, and by what a set-up took.

    A loaded machine is not a dead one, so every limit is multiplied by this.
    """

    def __init__(
        self,
        usual_set_up: float,
        slowest: float,
        load: Callable[[], tuple[float, float, float]] = os.getloadavg,
        cpus: int | None = None,
    ) -> None:
        self.usual_set_up, self.slowest = usual_set_up, slowest
        self.load, self.cpus = load, cpus or os.cpu_count() or 1
        self.measured = 1.0

    def learn(self, set_up_seconds: float) -> None:
        """Take in how long the first actor took to be set up."""
        self.measured = max(self.measured, set_up_seconds / self.usual_set_up)

    @property
    def slowness(self) -> float:
        """At least 1, and never so much that a wait has no end."""
        waiting = self.load()[0] / self.cpus
        return min(self.slowest, max(1.0, waiting, self.measured))
