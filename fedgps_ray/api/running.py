"""A trial set going: in this process, or on Ray."""

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager

import torch

from fedgps_ray.api.devices import check_devices
from fedgps_ray.errors import UserError
from fedgps_ray.events import Event
from fedgps_ray.loading import load
from fedgps_ray.loggers import following
from fedgps_ray.results.read import Row, check, read_trial
from fedgps_ray.results.schema import ENDED
from fedgps_ray.results.store import TrialStore, spec_of
from fedgps_ray.spec import ExecutionSpec, TrialSpec


def run_unless_ended(
    spec: TrialSpec,
    execution: ExecutionSpec,
    restart: bool,
    show: Callable[[Generator[Event]], None],
    say: Callable[[str], None],
) -> bool:
    """Run a trial, show its events and keep its logs; say whether it had to be run."""
    known = None if restart else _known(spec, execution)
    if known is not None and known["status"] not in ENDED:
        known = None
    with following(execution.log, execution.out, say, spec.trial_id):
        if known is None:
            check_devices([spec], execution)
            show(start(spec, execution, restart))
    return known is None


def _known(spec: TrialSpec, execution: ExecutionSpec) -> Row | None:
    """Return what is known about a trial that has been begun before."""
    folder = TrialStore(execution.out, spec).folder
    if not (folder / "trial.json").exists():
        return None
    info = read_trial(folder)
    spec_of(folder, info)  # raises an error if these are not its settings
    if problems := check(folder):
        raise UserError(f"{'; '.join(problems)}; --restart runs it again")
    return info


def start(spec: TrialSpec, execution: ExecutionSpec, restart: bool) -> Generator[Event]:
    """Run a trial and yield its events; Ray is imported only if it is needed."""
    place = "rounds.trial:run_trial" if execution.actors == 0 else "cluster.crew:run_on_ray"
    events: Generator[Event] = load(f"fedgps_ray.{place}")(spec, execution, restart)
    return events


@contextmanager
def own_threads() -> Iterator[None]:
    """Give the caller's process back the number of threads it had: trials set their own."""
    before = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(before)
