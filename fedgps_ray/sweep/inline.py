"""A sweep without Ray: its trials one after the other in this process."""

import contextlib
from collections.abc import Callable, Generator

from fedgps_ray.errors import CannotWrite, ClientFailed, Lost, UserError
from fedgps_ray.events import Event
from fedgps_ray.loggers import following
from fedgps_ray.results import files
from fedgps_ray.results.kept import kept_at
from fedgps_ray.results.store import TrialStore
from fedgps_ray.rounds.trial import run_trial
from fedgps_ray.spec import TrialSpec
from fedgps_ray.sweep.plan import Speaker, SweepPlan

Show = Callable[[TrialSpec, Generator[Event]], None]


def run_here(plan: SweepPlan, screen: Speaker, show: Show) -> list[str]:
    """Run what is missing; return the ids of the trials that failed, which do not stop the rest."""
    failed = []
    with files.lock(plan.ledger.folder):
        to_do = plan.to_do(screen)
        plan.write()
        with following(plan.execution.log, plan.ledger.folder, screen.say):
            for spec in to_do:
                try:
                    show(spec, _events(plan, spec))
                except CannotWrite:  # nor could the others
                    raise
                except Lost as loss:  # of the storage: the trial itself has not failed
                    screen.say(f"{plan.ledger.labels[spec.trial_id]} was not kept: {loss}")
                except (UserError, ClientFailed) as problem:
                    _note(plan, spec, problem)
                    screen.say(f"{plan.ledger.labels[spec.trial_id]} failed: {problem}")
                    failed.append(spec.trial_id)
        plan.write()
    return failed


def _events(plan: SweepPlan, spec: TrialSpec) -> Generator[Event]:
    events = run_trial(spec, plan.execution)
    return kept_at(plan.execution, f"trials/{spec.trial_id}", events)


def _note(plan: SweepPlan, spec: TrialSpec, problem: Exception) -> None:
    store = TrialStore(plan.ledger.folder, spec)
    store.open(plan.execution)
    store.note(status="failed", error=str(problem))
    with contextlib.suppress(Lost):  # the next launch sends it
        plan.ledger.put(spec)
