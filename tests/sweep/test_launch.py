"""A launch without Tune: what a stop does before Tune listens, and which errors are losses."""

import dataclasses
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
from ray.exceptions import ActorDiedError, RaySystemError
from ray.tune.schedulers import TrialScheduler

from fedgps_ray.data import datasets
from fedgps_ray.errors import Lost
from fedgps_ray.sweep import launch
from fedgps_ray.sweep.launch import Way
from fedgps_ray.sweep.plan import Stopping
from fedgps_ray.sweep.state import State


@pytest.fixture
def tracker(tmp_path):
    """Make what a launch needs of a tracker: a folder with one trial to do."""
    spec = SimpleNamespace(trial_id="a")
    ledger = SimpleNamespace(folder=tmp_path, to_do=lambda: [spec])
    state = State("tiny", total=1, rounds_total=3)
    return SimpleNamespace(
        ledger=ledger, state=state, lost=set(), is_stopping=False, tell=lambda text: None
    )


@pytest.fixture
def hears_ctrl_c():
    """Hear SIGINT also where a shell runs the tests in the background, which ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("hears_ctrl_c")
@pytest.mark.parametrize("number", launch.STOPPING)
def test_a_stop_before_tune_listens_is_an_interrupt(number, tracker):
    before = [signal.getsignal(n) for n in (*launch.STOPPING, signal.SIGUSR1)]
    with pytest.raises(KeyboardInterrupt), launch._watched(tracker):
        os.kill(os.getpid(), number)
    assert tracker.is_stopping
    assert "stopping: trials write" in tracker.state.events[-1][1]
    assert [signal.getsignal(n) for n in (*launch.STOPPING, signal.SIGUSR1)] == before


def test_a_request_that_is_ignored_stays_ignored(tracker):
    """In the background of a shell or under nohup: Ctrl-C is for others."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with launch._watched(tracker):
            os.kill(os.getpid(), signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
    assert not tracker.is_stopping


def test_a_sweep_may_run_in_any_thread(tracker):
    """Only the main thread may say what signals do."""

    def watched():
        with launch._watched(tracker):
            return launch.CURRENT[-1]

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(watched).result() is tracker


def test_what_ray_loses_under_tune_is_a_loss_of_its_trials(tracker, monkeypatch):
    def fit(*_):
        raise RaySystemError("the raylet is gone")

    monkeypatch.setattr(launch, "_fit", fit)
    launch._fit_or_lose([{"trial_id": "a"}], Way(), tracker)
    assert tracker.lost == {"a"}


def test_other_errors_are_raised(tracker, monkeypatch):
    def fit(*_):
        raise ValueError("a mistake of ours")

    monkeypatch.setattr(launch, "_fit", fit)
    with pytest.raises(ValueError, match="of ours"):
        launch._fit_or_lose([{"trial_id": "a"}], Way(), tracker)


def test_a_data_set_that_kills_its_reader_ends_the_sweep(monkeypatch):
    def died(*_, **__):
        raise ActorDiedError

    monkeypatch.setattr(launch, "answer", died)
    with pytest.raises(Lost, match="the process that reads digits died again and again"):
        launch._read(SimpleNamespace(), datasets.parse({"name": "digits"}))


@dataclasses.dataclass(eq=False)
class TuneTrial:
    """What a scheduler asks of a trial."""

    trial_id: str
    config: dict
    status: str = "RUNNING"


@pytest.mark.parametrize("scheduler", ["asha", "median"])
@pytest.mark.parametrize(
    ("done", "decision"), [(8, TrialScheduler.STOP), (9, TrialScheduler.CONTINUE)]
)
def test_a_search_stops_no_trial_that_has_its_last_round(scheduler, done, decision):
    cells = [{"rounds": 9} for _ in range(6)]
    chosen = launch._scheduler(Stopping(scheduler, "accuracy"), cells)
    trials = [TuneTrial(str(number), {"cell": cell}) for number, cell in enumerate(cells)]
    controller = SimpleNamespace(get_live_trials=lambda: trials, _tune_controller=SimpleNamespace())
    for trial in trials:
        chosen.on_trial_add(controller, trial)
    *better, worst = trials
    for trial in better:
        told = {"rounds_done": 7, "accuracy": 0.9}
        chosen.on_trial_result(controller, trial, told)
        chosen.on_trial_complete(controller, trial, {**told, "rounds_done": 9})
    told = {"rounds_done": done, "accuracy": 0.1}
    assert chosen.on_trial_result(controller, worst, told) == decision
