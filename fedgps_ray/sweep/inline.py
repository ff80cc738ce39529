"""A sweep without Ray: its trials one after the other in this process."""

from collections.abc import Callable, Generator

from fedgps_ray.errors import CannotWrite, ClientFailed, UserError
from fedgps_ray.events import Event
from fedgps_ray.loggers import following
from fedgps_ray.results import files
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
                    show(spec, run_trial(spec, plan.execution))
                except CannotWrite:  # nor could the others
                    raise
                except (UserError, ClientFailed) as problem:
                    _note(plan, spec, problem)
                    screen.say(f"{plan.ledger.labels[spec.trial_id]} failed: {problem}")
                    failed.append(spec.trial_id)
        plan.write()
    return failed


def _note(plan: SweepPlan, spec: TrialSpec, problem: Exception) -> None:
    store = TrialStore(plan.ledger.folder, spec)
    store.open(plan.execution)
    store.note(status="failed", error=str(problem))
