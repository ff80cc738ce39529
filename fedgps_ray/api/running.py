"""A trial set going: in this process, or on Ray."""

from collections.abc import Generator

from fedgps_ray.events import Event
from fedgps_ray.loading import load
from fedgps_ray.spec import ExecutionSpec, TrialSpec


def start(spec: TrialSpec, execution: ExecutionSpec, restart: bool) -> Generator[Event]:
    """Run a trial and yield its events; Ray is imported only if it is needed."""
    place = "rounds.trial:run_trial" if execution.actors == 0 else "cluster.crew:run_on_ray"
    events: Generator[Event] = load(f"fedgps_ray.{place}")(spec, execution, restart)
    return events
