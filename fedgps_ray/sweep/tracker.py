"""Tune's callbacks to the state of a sweep: what runs, what ended how, what went wrong."""

import time
from collections.abc import Callable, Sequence
from typing import Any

from ray import tune
from ray.tune.experiment import Trial

from fedgps_ray.cluster import session
from fedgps_ray.errors import Lost, UserError
from fedgps_ray.results.read import read_trial
from fedgps_ray.results.schema import ENDED, STOPPED
from fedgps_ray.results.store import TrialStore
from fedgps_ray.spec import ExecutionSpec, TrialSpec, columns
from fedgps_ray.sweep.ledger import Entry, Ledger
from fedgps_ray.sweep.state import State, running

SAVE_SECONDS = 1.0
CLUSTER_SECONDS = 2.0


class Tracker:
    """Keeps the state of a sweep up to date, in memory and in live.json."""

    def __init__(
        self,
        name: str,
        ledger: Ledger,
        to_do: Sequence[TrialSpec],
        execution: ExecutionSpec,
        say: Callable[[str], None],
    ) -> None:
        self.ledger, self.execution, self.say = ledger, execution, say
        self.specs = {spec.trial_id: spec for spec in ledger.specs}
        self.state = _first(name, ledger.entries(), to_do)
        self.stopped: set[str] = set()  # by the scheduler of a search
        self.lost: set[str] = set()  # in this launch, by no fault of their own
        self.saved = self.looked = 0.0

    def tell(self, text: str) -> None:
        """Note an event, and say it."""
        self.state.tell(text)
        self.say(text)

    # --- what Tune tells ------------------------------------------------------------------------

    def begun(self, trial_id: str) -> None:
        """Note that a trial starts, for the first time or again after a failure."""
        before = self.state.running.get(trial_id)
        if before is not None:
            before.what = "starting again"
            self.tell(f"{self._label(trial_id)} starts again from its checkpoint")
            return
        spec = self.specs[trial_id]
        done = self.ledger.rounds_done(spec)
        trial = running(columns(spec), self.ledger.labels[trial_id])
        trial.first = trial.rounds_done = done
        self.state.running[trial_id] = trial
        begins = f"continues after round {done}" if done else "starts"
        self.tell(f"{self._label(trial_id)} {begins}")

    def moved(self, trial_id: str, told: dict[str, Any]) -> None:
        """Take in how a trial stands."""
        trial = self.state.running.get(trial_id)
        if trial is None:
            return
        restarts = told.get("restarts", 0)
        if restarts > trial.restarts:
            self.tell(f"{self._label(trial_id)}: an actor was replaced")
        for name in ("rounds_done", "accuracy", "best", "seconds_a_round", "what", "in_flight"):
            if name in told:
                setattr(trial, name, told[name])
        trial.restarts = restarts
        for problem in told.get("problems", []):
            self.tell(f"{self._label(trial_id)}: {problem}")
        if told.get("failed"):
            self.failed(trial_id, told["failed"])
        if told.get("lost"):
            self.lose(trial_id, told["lost"])

    def failed(self, trial_id: str, reason: str) -> None:
        """Note that a trial cannot be carried out."""
        if trial_id in self.state.failures:
            return
        self.state.failures[trial_id] = reason
        self._end(trial_id)
        self.state.failed += 1
        self.tell(f"{self._label(trial_id)} failed: {reason.splitlines()[0]}")
        try:
            self.note(trial_id, status="failed", error=reason)
        except (UserError, Lost) as problem:  # an exception here would end the whole sweep
            self.tell(str(problem))

    def lose(self, trial_id: str, reason: str) -> None:
        """Note that what a trial ran on was lost; it is tried again later."""
        if self.state.running.pop(trial_id, None) is not None:
            self.lost.add(trial_id)
            self.tell(f"{self._label(trial_id)} was lost: {reason.splitlines()[0]}")

    def note(self, trial_id: str, **facts: Any) -> None:
        """Note in a trial's folder what its own processes do not know."""
        spec = self.specs[trial_id]
        store = TrialStore(self.ledger.folder, spec)
        store.open(self.execution)
        store.note(**facts)
        self.ledger.put(spec)

    def ended(self, trial_id: str) -> None:
        """Note that a trial has come to its end."""
        if trial_id not in self.state.running:
            return
        try:
            self.ledger.fetch(self.specs[trial_id])
        except Lost as loss:  # an exception here would end the whole sweep
            self.lose(trial_id, str(loss))
            return
        self._end(trial_id)
        info = read_trial(self.ledger.place(self.specs[trial_id]))
        status = info["status"] if info["status"] in ENDED else STOPPED
        if status == "diverged":
            self.state.diverged += 1
        else:
            self.state.finished += 1
        if status == STOPPED:
            self.stopped.add(trial_id)
        best = info.get("summary", {}).get("best_accuracy")
        score = "" if best is None else f", best accuracy {best:.2%}"
        self.tell(f"{self._label(trial_id)} {status}{score}")

    def look(self) -> None:
        """Look at the cluster and save the state, now and then."""
        now = time.monotonic()
        if now - self.looked > CLUSTER_SECONDS:
            self.looked = now
            self.state.cluster = session.use()
        if now - self.saved > SAVE_SECONDS:
            self.saved = now
            self.state.save(self.ledger.folder)

    def close(self) -> None:
        """Note that this launch is over."""
        self.state.running.clear()
        self.state.ended = time.time()
        self.state.save(self.ledger.folder)

    def _end(self, trial_id: str) -> None:
        trial = self.state.running.pop(trial_id, None)
        spec = self.specs[trial_id]
        if trial is not None:
            self.state.rounds_ended += spec.rounds - trial.first

    def _label(self, trial_id: str) -> str:
        return f"{self.ledger.labels[trial_id]} ({trial_id})"


def _first(name: str, entries: Sequence[Entry], to_do: Sequence[TrialSpec]) -> State:
    """Return the state before a launch."""
    wanted = {spec.trial_id for spec in to_do}
    statuses = [entry.status for entry in entries if entry.spec.trial_id not in wanted]
    return State(
        name,
        total=len(entries),
        rounds_total=sum(entry.spec.rounds for entry in entries),
        finished=statuses.count("finished") + statuses.count("stopped"),
        diverged=statuses.count("diverged"),
        failed=statuses.count("failed"),
        rounds_before=sum(e.spec.rounds if e.is_done else e.rounds_done for e in entries),
    )


CURRENT: list[Tracker] = []  # Tune pickles its callbacks, and a tracker is not to be pickled


class Callbacks(tune.Callback):
    """Passes on what Tune tells to the current tracker."""

    def on_trial_start(
        self, iteration: int, trials: list[Trial], trial: Trial, **_: object
    ) -> None:
        """A trial starts."""
        CURRENT[-1].begun(_id(trial))

    def on_trial_result(
        self, iteration: int, trials: list[Trial], trial: Trial, result: dict[str, Any], **_: object
    ) -> None:
        """A trial tells how it stands."""
        CURRENT[-1].moved(_id(trial), result)

    def on_trial_complete(
        self, iteration: int, trials: list[Trial], trial: Trial, **_: object
    ) -> None:
        """A trial has come to its end."""
        CURRENT[-1].ended(_id(trial))

    def on_trial_error(
        self, iteration: int, trials: list[Trial], trial: Trial, **_: object
    ) -> None:
        """A trial's own process died more often than Tune starts it again."""
        CURRENT[-1].lose(_id(trial), str(trial.get_error() or "its processes kept dying"))

    def on_step_end(self, iteration: int, trials: list[Trial], **_: object) -> None:
        """Some tenths of a second have passed."""
        CURRENT[-1].look()


def _id(trial: Trial) -> str:
    return str(trial.config["cell"]["trial_id"])
