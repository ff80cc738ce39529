"""Tune's callbacks to the state of a sweep: what runs, what ended how, what went wrong."""

import contextlib
import time
from collections.abc import Callable, Sequence

from ray import tune
from ray.tune.experiment import Trial

from fedgps_ray.cluster import session
from fedgps_ray.errors import Lost, UserError, first_line
from fedgps_ray.identity import Table
from fedgps_ray.results import schema
from fedgps_ray.results.read import read_trial
from fedgps_ray.results.schema import ENDED, STOPPED
from fedgps_ray.results.store import TrialStore
from fedgps_ray.spec import ExecutionSpec, TrialSpec
from fedgps_ray.sweep import machine
from fedgps_ray.sweep.board import Record, planned, told
from fedgps_ray.sweep.ledger import Entry, Ledger
from fedgps_ray.sweep.state import Running, State, running
from fedgps_ray.units import printable

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
        self.state.records = _records(ledger, {spec.trial_id for spec in to_do})
        self.is_stopping = False  # by the user: what ends from now on is not lost
        self.first_wave: set[str] = set()  # trials that waited for their actors to start
        self.ticks = machine.ticks()
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
        if self.is_stopping:  # Tune starts what was cut off; nobody waits for it
            return
        self.state.losses.pop(trial_id, None)
        before = self.state.running.get(trial_id)
        if before is not None:
            self._begun_again(before)
            return
        spec = self.specs[trial_id]
        done = self.ledger.rounds_done(spec)
        trial = running(trial_id, self.state.records[trial_id], time.time())
        trial.first = trial.rounds_done = done
        # rounds that it had done before it was lost, and does again, are not counted twice
        self.state.rounds_ended += done - self.state.records[trial_id].rounds_done
        self.state.running[trial_id] = trial
        self.state.lanes = max(self.state.lanes, len(self.state.running))
        if not self.state.trials_ended:
            self.first_wave.add(trial_id)
        begins = f"continues after round {done}" if done else "starts"
        self.tell(f"{self._label(trial_id)} {begins}")

    def _begun_again(self, trial: Running) -> None:
        """Note that a trial's own process was replaced."""
        trial.what = "starting again"
        self.state.restarts += 1
        self.tell(f"{self._label(trial.trial_id)} starts again from its checkpoint")

    def moved(self, trial_id: str, told: Table) -> None:
        """Record the progress of a trial."""
        trial = self.state.running.get(trial_id)
        if trial is None:
            return
        self._take(trial, told)
        for problem in told.get("problems", []):
            self.tell(f"{self._label(trial_id)}: {problem}")
        if told.get("failed"):
            self.failed(trial_id, told["failed"])
        if told.get("lost"):
            self.lose(trial_id, told["lost"])
        if told.get("stuck"):
            self.lose(trial_id, told["stuck"], again=False)

    def _take(self, trial: Running, told: Table) -> None:
        restarts = told.get("restarts", 0)
        if restarts > trial.restarts:
            self.state.restarts += restarts - trial.restarts
            self.tell(f"{self._label(trial.trial_id)}: an actor was replaced")
        trial.restarts = restarts
        if told.get("accuracy") is not None and told["rounds_done"] > trial.rounds_done:
            trial.score(told["accuracy"])
        for name in ("rounds_done", "best", "seconds_a_round", "what", "in_flight"):
            if name in told:
                setattr(trial, name, told[name])
        if self.state.working_since is None and "rounds_done" in told:
            self.state.working_since = time.time()
        record = self.state.records[trial.trial_id]
        self.state.records[trial.trial_id] = record._replace(
            status=schema.RUNNING, best=trial.best, rounds_done=trial.rounds_done
        )

    def failed(self, trial_id: str, reason: str) -> None:
        """Note that a trial cannot be carried out."""
        if trial_id in self.state.failures:
            return
        reason = printable(reason)  # or live.json could not be read again
        self.state.failures[trial_id] = reason
        self._end(trial_id)
        self.state.failed += 1
        record = self.state.records[trial_id]
        error = first_line(reason)
        self.state.records[trial_id] = record._replace(status=schema.FAILED, error=error)
        self.tell(f"{self._label(trial_id)} failed: {error}")
        try:
            self.note(trial_id, status="failed", error=reason)
        except (UserError, Lost) as problem:  # an exception here would end the whole sweep
            self.tell(str(problem))

    def lose(self, trial_id: str, reason: str, again: bool = True) -> None:
        """Note that what a trial ran on was lost; again: it is tried again later in this sweep."""
        if self.is_stopping:
            return
        if self.state.leave(trial_id) is not None:
            self.state.losses[trial_id] = reason
            self.lost.update({trial_id} if again else ())
            what = "was lost" if again else "was interrupted"
            self.tell(f"{self._label(trial_id)} {what}: {first_line(reason)}")

    def note(self, trial_id: str, **facts: object) -> None:
        """Note in a trial's folder what its own processes do not know."""
        spec = self.specs[trial_id]
        self.ledger.fetch(spec)  # it may have run on another node
        store = TrialStore(self.ledger.folder, spec)
        store.open(self.execution)
        store.note(**facts)
        self.ledger.put(spec)

    def note_stopped(self, trial_id: str) -> None:
        """Note that a search has stopped a trial; one that was killed while it ended goes on."""
        spec = self.specs[trial_id]
        self.ledger.fetch(spec)
        if "summary" in read_trial(self.ledger.place(spec)):
            self.note(trial_id, status=STOPPED)

    def ended(self, trial_id: str) -> None:
        """Note that a trial has come to its end."""
        if trial_id not in self.state.running:
            return
        try:
            self.ledger.fetch(self.specs[trial_id])
            info = read_trial(self.ledger.place(self.specs[trial_id]))
        except (Lost, UserError) as problem:  # an exception here would end the whole sweep
            self.lose(trial_id, str(problem), again=not isinstance(problem, UserError))
            return
        self._end(trial_id)
        status = info["status"] if info["status"] in ENDED else STOPPED
        record = told(self.state.records[trial_id], {**info, "status": status})
        self.state.records[trial_id] = record
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
            self.state.nodes = self._nodes()
            self.state.count_rounds(time.time())
        if now - self.saved > SAVE_SECONDS:
            self.saved = now
            self._save()

    def _nodes(self) -> list[Table]:
        """Return what the nodes have and use, and how busy this machine is."""
        before, self.ticks = self.ticks, machine.ticks()
        own = {"busy": machine.busy(before, self.ticks), **machine.memory()}
        return [node | own if node["here"] else node for node in session.nodes()]

    def close(self) -> None:
        """Note that this launch is over."""
        self.state.leave_all()
        self.state.ended = time.time()
        self._save()

    def _save(self) -> None:
        """Write live.json, if possible: on a full disk whoever writes results says so."""
        with contextlib.suppress(OSError, UserError):
            self.state.save(self.ledger.folder)

    def _end(self, trial_id: str) -> None:
        trial = self.state.leave(trial_id)
        if trial is None:
            return
        self.state.rounds_ended += trial.rounds - max(trial.first, trial.rounds_done)
        self.state.trials_ended += 1
        if trial.seconds_a_round is None:
            return
        self.state.paces.append((trial.method, trial.setting, trial.seconds_a_round))
        if trial_id not in self.first_wave:
            trained = trial.seconds_a_round * (trial.rounds_done - trial.first)
            self.state.lags.append(max(0.0, time.time() - trial.began - trained))

    def _label(self, trial_id: str) -> str:
        return f"{self.state.records[trial_id].words} ({trial_id})"


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


def _records(ledger: Ledger, to_do: set[str]) -> dict[str, Record]:
    """Return all trials before a launch, with what is known of those that have begun."""
    records = {}
    for spec in ledger.specs:
        record = planned(ledger.columns(spec), ledger.labels[spec.trial_id])
        if (gist := ledger.gist(spec)) is not None:
            record = told(record, gist)
        if spec.trial_id in to_do and not record.is_waiting:
            record = record._replace(status=schema.MISSING, error="")
        records[spec.trial_id] = record
    return records


CURRENT: list[Tracker] = []  # Tune pickles its callbacks, and a tracker is not to be pickled


class Callbacks(tune.Callback):
    """Passes on what Tune tells to the current tracker."""

    def on_trial_start(
        self, iteration: int, trials: list[Trial], trial: Trial, **_: object
    ) -> None:
        """A trial starts."""
        CURRENT[-1].begun(_id(trial))

    def on_trial_result(
        self, iteration: int, trials: list[Trial], trial: Trial, result: Table, **_: object
    ) -> None:
        """A trial reports its progress."""
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
