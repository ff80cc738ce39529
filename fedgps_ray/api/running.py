"""A trial set going: in this process, or on Ray."""

from collections.abc import Generator

from fedgps_ray.api.devices import check_devices
from fedgps_ray.errors import UserError
from fedgps_ray.events import Event
from fedgps_ray.loading import load
from fedgps_ray.results.kept import kept_at
from fedgps_ray.results.read import check, read_trial
from fedgps_ray.results.schema import ENDED
from fedgps_ray.results.store import TrialStore, spec_of
from fedgps_ray.spec import ExecutionSpec, TrialSpec


def has_ended(spec: TrialSpec, execution: ExecutionSpec) -> bool:
    """Say whether a trial has ended already; raise an error if its folder is damaged."""
    folder = TrialStore(execution.out, spec).folder
    if not (folder / "trial.json").exists():
        return False
    info = read_trial(folder)
    spec_of(folder, info)  # raises an error if these are not its settings
    if problems := check(folder):
        raise UserError(f"{'; '.join(problems)}; --restart runs it again")
    return info["status"] in ENDED


def start(spec: TrialSpec, execution: ExecutionSpec, restart: bool) -> Generator[Event]:
    """Run a trial and yield its events; Ray is imported only if it is needed."""
    check_devices([spec], execution)
    if execution.actors != 0:
        on_ray: Generator[Event] = load("fedgps_ray.cluster.crew:run_on_ray")(
            spec, execution, restart
        )
        return on_ray
    events: Generator[Event] = load("fedgps_ray.rounds.trial:run_trial")(spec, execution, restart)
    return kept_at(execution, f"trials/{spec.trial_id}", events, anew=restart)
