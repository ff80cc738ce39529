"""Whether an actor still lives: when to ping it, and when its silence has lasted too long."""

from typing import Literal

Step = Literal["wait", "ping", "replace"]
PINGS_PER_LIMIT = 3


class Liveness:
    """Watches one actor; it is told times and answers, and knows no Ray."""

    def __init__(self) -> None:
        self.since: float | None = None  # the last sign of life, or when the open ping was sent
        self.is_asked = False

    def look(self, now: float, answered: bool, limit: float | None) -> Step:
        """Return what to do now; answered: the open ping, limit: of silence, None if at rest."""
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
