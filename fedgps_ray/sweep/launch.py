"""One launch of a sweep: what is missing becomes Tune trials, until nothing is missing."""

import contextlib
import itertools
import logging
import math
import os
import signal
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import ray
from pydantic import TypeAdapter
from ray import tune
from ray.tune.error import TuneError
from ray.tune.execution.tune_controller import TuneController
from ray.tune.experiment import Trial
from ray.tune.schedulers import ASHAScheduler, FIFOScheduler, MedianStoppingRule, TrialScheduler

from fedgps_ray.cluster import session
from fedgps_ray.cluster.crew import answer, client_share, settings_of
from fedgps_ray.cluster.losses import is_loss
from fedgps_ray.cluster.parent import is_echo
from fedgps_ray.cluster.policy import POLICY
from fedgps_ray.data.datasets import DatasetSpec
from fedgps_ray.errors import Lost, UserError, first_line
from fedgps_ray.references import Found
from fedgps_ray.results.uri import redacted
from fedgps_ray.spec import ExecutionSpec, TrialSpec
from fedgps_ray.sweep import library
from fedgps_ray.sweep.plan import Stopping
from fedgps_ray.sweep.pulse import Pulse, identity
from fedgps_ray.sweep.tracker import CURRENT, Callbacks, Tracker
from fedgps_ray.sweep.trainable import SweepTrial, bundles

QUIET = {
    "RAY_AIR_NEW_OUTPUT": "0",
    "TUNE_PRINT_ALL_TRIAL_ERRORS": "0",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "0",
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",  # no accuracy before the first test
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # ours does more
    "TUNE_GLOBAL_CHECKPOINT_S": "3600",  # its state is never read
}
STOPPING = (signal.SIGINT, signal.SIGTERM)

Config = dict[str, Any]  # of the grid that Tune runs: what a trial process needs, without PyTorch


def plan(to_do: Sequence[TrialSpec], execution: ExecutionSpec) -> int:
    """Return how many client actors each trial gets: all the same, so that crews can be reused.

    Trials side by side use a cluster better than actors of one trial, so with many trials to do
    each has one actor, and with few the room is shared out among them.
    """
    fit = session.capacity(execution)
    if fit == 0:
        raise UserError(
            f"no node has room for an actor of {execution.client_cpus:g} CPU and"
            f" {execution.client_gpus:g} GPU: the cluster has {session.totals()};"
            " use smaller --client-cpus / --client-gpus"
        )
    most = min(spec.per_round for spec in to_do)
    if execution.actors == "auto":
        return max(1, min(fit // len(to_do), most))
    return max(session.num_actors(execution, spec.clients, spec.per_round) for spec in to_do)


class Way(NamedTuple):
    """How the trials of a sweep are run."""

    max_concurrent: int | None = None  # None: as many as fit
    stopping: Stopping | None = None  # of a search
    reuse_crews: bool = True


def run(tracker: Tracker, to_do: Sequence[TrialSpec], way: Way) -> None:
    """Carry out what is to be done; returns when all has ended or the user interrupted."""
    execution = tracker.execution
    actors = plan(to_do, execution)
    together = way.max_concurrent or max(1, session.capacity(execution) // actors)
    way = way._replace(max_concurrent=together)
    tracker.state.slots = min(together, len(to_do)) * actors
    source = ExecutionSpec(**execution.anywhere()).source
    name, shelf = library.start(source, _code(to_do), execution.storage)
    for dataset in {spec.dataset: None for spec in to_do}:
        _read(shelf, dataset)
    for launches in itertools.count(1):
        cells = [_cell(spec, execution, actors, name) for spec in to_do]
        tracker.lost.clear()
        _fit_or_lose(cells, way, tracker)
        to_do = [spec for spec in to_do if spec.trial_id in tracker.lost]
        another = POLICY.after_trial_loss(launches)
        if not to_do or not another.again or tracker.is_stopping:
            break
        tracker.tell(f"{len(to_do)} trials were lost; they start again in {another.pause:g} s")
        time.sleep(another.pause)
    if tracker.is_stopping:
        tracker.state.losses.clear()  # that the user stopped the sweep is why trials are left
    for trial_id in tracker.stopped:  # not to be continued, though it has rounds left
        tracker.note_stopped(trial_id)


def _code(specs: Sequence[TrialSpec]) -> list[Found]:
    """Return the outside code of all trials, each once."""
    return list({origin.code: origin for spec in specs for origin in spec.code}.values())


def _read(shelf: session.Actor, dataset: DatasetSpec) -> None:
    """Let the library read a data set; problems are reported before any trial starts."""
    value = TypeAdapter(type(dataset)).dump_python(dataset, mode="json")
    try:
        answer(shelf, lambda: shelf.find.remote(value))
    except ray.exceptions.RayTaskError as problem:
        if isinstance(problem.cause, UserError):
            raise problem.cause from None
        raise
    except ray.exceptions.RayActorError as problem:
        raise Lost(
            f"the process that reads {value.get('name', value)} died again and again, or could not"
            f" be reached: is there enough memory? ({problem})"
        ) from None


def _cell(spec: TrialSpec, execution: ExecutionSpec, actors: int, library_name: str) -> Config:
    uri = execution.storage and redacted(execution.storage)  # Tune writes all this to a file
    shown = execution.model_copy(update={"storage": uri})
    return {
        "trial_id": spec.trial_id,
        "settings": settings_of(spec, shown)._asdict(),  # Tune makes plain tuples of named ones
        "rounds": spec.rounds,
        "share": client_share(execution),
        "actors": actors,
        "library": library_name,
    }


def _fit_or_lose(cells: list[Config], way: Way, tracker: Tracker) -> None:
    """Let Tune work; where it gives up, all trials that have not ended are lost."""
    folder = tracker.ledger.folder
    home = identity(folder)
    try:
        _fit(cells, way, tracker)
    except Exception as problem:  # a trial's own process was killed for its memory, for instance
        if not (isinstance(problem, (RuntimeError, TuneError)) or is_loss(problem)):
            raise
        if identity(folder) != home:
            raise UserError(
                f"{folder} was moved or deleted while the sweep ran; to continue where it is now:"
                " fedgps-ray resume DIR"
            ) from None
        tracker.tell(f"Tune gave up: {first_line(problem)}")
        tracker.state.leave_all()
        left = {spec.trial_id for spec in tracker.ledger.to_do()}
        lost = {cell["trial_id"] for cell in cells} & left
        tracker.lost.update(lost)
        tracker.state.losses |= dict.fromkeys(lost, f"Tune gave up: {problem}")


def _fit(cells: list[Config], way: Way, tracker: Tracker) -> None:
    os.environ.update(QUIET)
    logging.getLogger("ray.tune").setLevel(logging.CRITICAL)
    pulse = Pulse(tracker.execution.hang_seconds, tracker.ledger.folder)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, _watched(tracker):
        tuner = tune.Tuner(
            tune.with_resources(SweepTrial, bundles),
            param_space={"cell": tune.grid_search(cells)},
            tune_config=tune.TuneConfig(
                reuse_actors=way.reuse_crews,
                max_concurrent_trials=way.max_concurrent,
                scheduler=_scheduler(way.stopping, cells),
                trial_name_creator=_name,
                trial_dirname_creator=_name,
            ),
            run_config=tune.RunConfig(
                name="tune",
                storage_path=folder,
                callbacks=[Callbacks(), pulse],
                failure_config=tune.FailureConfig(max_failures=POLICY.max_trial_deaths),
                checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
                verbose=0,
            ),
        )
        tuner.fit()


def _name(trial: Trial) -> str:
    return str(trial.config["cell"]["trial_id"])


def _scheduler(stopping: Stopping | None, cells: list[Config]) -> TrialScheduler:
    """Return what may stop trials early: in a search only, never a cell of a table."""
    if stopping is None or stopping.scheduler == "none":
        return _InOrder()  # type: ignore[no-untyped-call]
    rounds = max(cell["rounds"] for cell in cells)
    mode = "min" if stopping.metric == "loss" else "max"
    common: dict[str, Any] = {"time_attr": "rounds_done", "metric": stopping.metric, "mode": mode}
    if stopping.scheduler == "asha":
        return _Asha(**common, max_t=rounds, grace_period=max(1, rounds // 9))
    return _Median(**common, grace_period=max(1, rounds // 5), min_samples_required=3)


class _LetsEnd(TrialScheduler):
    """Gives trials that are stopped the time to write their checkpoints, and stops none at its end.

    One that has its last round has only its model still to write.
    """

    def on_trial_add(self, tune_controller: TuneController, trial: Trial) -> None:
        """Tune itself kills trials ten seconds after Ctrl-C."""
        seconds = POLICY.stop_seconds * POLICY.pace().slowness + POLICY.status_seconds
        wrapped: Any = tune_controller  # what Tune gives to schedulers
        wrapped._tune_controller._actor_force_cleanup_timeout = math.ceil(seconds)
        super().on_trial_add(tune_controller, trial)

    def on_trial_result(
        self, tune_controller: TuneController, trial: Trial, result: dict[str, Any]
    ) -> str:
        """Say whether a trial goes on."""
        if result.get("rounds_done", 0) >= trial.config["cell"]["rounds"]:
            return TrialScheduler.CONTINUE
        return super().on_trial_result(tune_controller, trial, result)


class _InOrder(_LetsEnd, FIFOScheduler):
    """Runs every trial to its end."""


class _Asha(_LetsEnd, ASHAScheduler):
    """Successive halving."""


class _Median(_LetsEnd, MedianStoppingRule):
    """Stops what is worse than the median."""


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def _heard() -> list[signal.Signals]:
    """Return the requests to stop that are for this thread; some are ignored, as by nohup."""
    if threading.current_thread() is not threading.main_thread():
        return []
    return [number for number in STOPPING if signal.getsignal(number) != signal.SIG_IGN]


@contextlib.contextmanager
def _watched(tracker: Tracker) -> Iterator[None]:
    """Let Tune's callbacks reach the tracker, and Ctrl-C and SIGTERM stop Tune, once gently."""

    def stop(*_: object) -> None:
        if is_echo():
            return
        if tracker.is_stopping:
            raise KeyboardInterrupt
        tracker.is_stopping = True
        tracker.state.tell("stopping: trials write their checkpoints; Ctrl-C again ends at once")
        session.expect_deaths()
        os.kill(os.getpid(), signal.SIGUSR1)

    before = {number: signal.signal(number, stop) for number in _heard()}
    if before:
        before[signal.SIGUSR1] = signal.signal(signal.SIGUSR1, _interrupt)  # until Tune has its own
    CURRENT.append(tracker)
    try:
        yield
    finally:
        CURRENT.pop()
        for number, handler in before.items():
            signal.signal(number, handler)
