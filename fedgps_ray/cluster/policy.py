"""What is tried again after a loss, how often, and for how long: every number in one place."""

from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple

from fedgps_ray.cluster.liveness import Pace


class Next(NamedTuple):
    """What follows a loss: another attempt after a pause in seconds, or giving up."""

    again: bool
    pause: float = 0.0


def _number(value: float, meaning: str) -> Any:
    return field(default=value, metadata={"meaning": meaning})


@dataclass(frozen=True)
class RetryPolicy:
    """The numbers, by what is lost; times are in seconds."""

    max_deaths: int = _number(3, "the trial fails after this many deaths during one client's work")
    hang_seconds: float = _number(60.0, "a working actor that ignores a ping this long is replaced")
    set_up_hang_seconds: float = _number(60.0, "the same for an actor that is being set up")
    own_actor_seconds: float = _number(10.0, "how long lost work waits for its client's own actor")
    next_actor_seconds: float = _number(15.0, "how long a new trial waits for each further actor")
    set_up_seconds: float = _number(60.0, "the trial is lost if every set-up fails for this long")
    no_actor_seconds: float = _number(300.0, "the trial is lost if no actor is ready for this long")
    set_up_pause: float = _number(0.1, "pause before an actor that died is set up again")
    tick_seconds: float = _number(0.5, "a server looks for hangs and stops at least this often")
    room_seconds: float = _number(30.0, "how long to wait for the cluster to reserve room")
    max_server_losses: int = _number(3, "servers that are replaced without a round in between")
    server_pause: float = _number(1.0, "pause before the next server, times the losses in a row")
    look_seconds: float = _number(0.5, "how often a server is asked what it does between rows")
    tell_seconds: float = _number(0.2, "rows of shorter rounds are sent together")
    status_seconds: float = _number(5.0, "how long to wait for its answer")
    stop_seconds: float = _number(30.0, "how long an interrupted server may write its checkpoint")
    folder_seconds: float = _number(
        20.0, "how long a lost server may still hold its trial's folder"
    )
    max_trial_deaths: int = _number(2, "how often Tune restarts a trial's own process")
    max_launches: int = _number(5, "how often Tune is launched for trials that were lost")
    launch_pause: float = _number(5.0, "pause before the next launch, times the launches so far")
    knock_seconds: float = _number(10.0, "how long a cluster's address may take to answer")
    join_seconds: float = _number(60.0, "how long joining a cluster that answers may take")
    start_seconds: float = _number(60.0, "how long a local Ray may take to come up")
    max_slow_starts: int = _number(3, "how often a local Ray is started if it is slow to come up")
    usual_set_up_seconds: float = _number(10.0, "a set-up that takes longer stretches all limits")
    max_slowness: float = _number(8.0, "how far a busy or slow machine stretches limits at most")
    watch_seconds: float = _number(1.0, "how often the driver looks at Ray's own processes")
    own_silence_seconds: float = _number(20.0, "a Ray of ours that is silent this long is replaced")
    joined_silence_seconds: float = _number(45.0, "a cluster that is silent this long is lost")
    trial_silence_seconds: float = _number(
        30.0, "a trial's own process is replaced after hang_seconds of silence, at least this"
    )
    no_trial_seconds: float = _number(
        120.0, "Tune is launched again if no trial could be started for this long"
    )
    max_new_starts: int = _number(5, "how often a lost Ray is started again in quick succession")
    calm_seconds: float = _number(600.0, "a Ray that lasted this long is not counted among these")
    left_over_seconds: float = _number(1.0, "how long processes may outlive their driver")

    def after_death(self, deaths: int) -> Next:
        """Actors died this often during the same work: do it again, or fail the trial."""
        return Next(deaths < self.max_deaths)

    def allowed_silence(self, is_ready: bool) -> float:
        """Return how long an actor may leave a ping unanswered; then it counts as dead."""
        return self.hang_seconds if is_ready else max(self.hang_seconds, self.set_up_hang_seconds)

    def after_failed_set_up(self, seconds: float, others_ready: bool) -> Next:
        """An actor has died in each set-up for some seconds: try again, or the trial is lost."""
        return Next(others_ready or seconds <= self.set_up_seconds, self.set_up_pause)

    def keeps_waiting(self, ready: int, seconds: float) -> bool:
        """Say whether to wait for another actor when none came within some seconds."""
        return seconds <= (self.next_actor_seconds if ready else self.no_actor_seconds)

    def after_server_loss(self, losses: int) -> Next:
        """So many servers in a row were lost: start another, or the trial is lost."""
        return Next(losses <= self.max_server_losses, losses * self.server_pause)

    def after_trial_loss(self, launches: int) -> Next:
        """Trials were lost after this many launches: launch them again, or leave them to resume."""
        return Next(launches < self.max_launches, launches * self.launch_pause)

    def after_driver_loss(self) -> Next:
        """Its actors end by themselves; whoever continues waits for the folders they hold."""
        return Next(True, self.folder_seconds)

    def after_ray_loss(self, starts: int, seconds: float) -> Next:
        """Our own Ray was lost after some seconds: start another, or leave the rest to resume."""
        return Next(starts < self.max_new_starts or seconds > self.calm_seconds)

    def after_slow_start(self, starts: int) -> Next:
        """Our own Ray took longer to come up than Ray itself allows: start another, or give up."""
        return Next(starts < self.max_slow_starts)

    def allowed_ray_silence(self, is_own: bool, slowness: float) -> float:
        """Return how long Ray may leave a question unanswered; then it counts as lost.

        Never longer than for a joined cluster: Ray itself aborts a driver after a minute.
        """
        own = min(self.own_silence_seconds * slowness, self.joined_silence_seconds)
        return own if is_own else self.joined_silence_seconds

    def pace(self) -> Pace:
        """Return what stretches the limits on this machine."""
        return Pace(self.usual_set_up_seconds, self.max_slowness)

    def with_hang(self, seconds: float) -> "RetryPolicy":
        """Return the policy with another limit for working actors."""
        return replace(self, hang_seconds=seconds)


POLICY = RetryPolicy()


def table(policy: RetryPolicy = POLICY) -> str:
    """Return the numbers as a Markdown table."""
    rows = [
        f"| `{one.name}` | {getattr(policy, one.name):g} | {one.metadata['meaning']} |"
        for one in fields(policy)
    ]
    return "\n".join(["| number | value | meaning |", "|---|---|---|", *rows])
