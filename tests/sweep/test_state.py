"""The state of a sweep: counts, time left, and the file that others read."""

import json

import pytest

from fedgps_ray.identity import Label
from fedgps_ray.results import files
from fedgps_ray.sweep.board import Record, planned
from fedgps_ray.sweep.state import NOT_SEALED, Running, State, is_driven, load, pace, running


@pytest.fixture
def state():
    """Return a sweep of ten cells of 20 rounds: four ended now, one before, two under way."""
    running = {
        name: Running(name, "fedgps", 1, 0, "", 20, first=first, rounds_done=done)
        for name, first, done in (("a", 10, 15), ("b", 0, 5))
    }
    return State(
        "tiny",
        total=10,
        rounds_total=200,
        finished=3,
        diverged=1,
        failed=1,
        rounds_before=30,
        rounds_ended=80,
        began=100.0,
        running=running,
    )


def test_a_trial_shows_the_settings_that_have_no_column():
    label = Label(
        "fedgps rho=0.3", {"seed": "1", "lr": "0.1", "name": "a, seed 2", "scenario": "3"}
    )
    columns = {"method": "fedgps", "scenario": 3, "seed": 1, "rounds": 20}
    trial = running("ab", planned(columns, label))
    assert (trial.method, trial.setting) == ("FedGPS rho=0.3", "lr 0.1, name a, seed 2")
    assert (trial.trial_id, trial.scenario, trial.seed, trial.rounds) == ("ab", 3, 1, 20)


def test_counts(state):
    assert state.left == 3
    assert state.rounds_done == 120


# --- time left --------------------------------------------------------------------------------


def record(method="FedAvg", setting="", status="missing", rounds_done=0):
    return Record(method, setting, 1, 0, 20, status, rounds_done)


def test_nothing_is_said_about_the_time_left_before_a_round_was_measured(state):
    assert state.seconds_left() is None


def test_time_left_counts_the_rounds_that_run_and_those_that_wait(state):
    # running: 5 and 15 rounds of 2 s; waiting: 20 rounds of 2 s and 1 s around them; two lanes
    for trial in state.running.values():
        trial.method, trial.seconds_a_round = "FedAvg", 2.0
    state.records = {"a": record(status="running"), "b": record(), "c": record()}
    state.lanes, state.lags = 2, [1.0]
    assert state.seconds_left() == (5 * 2 + 15 * 2 + 20 * 2 + 1) / 2


def test_time_left_is_at_least_that_of_the_slowest_trial(state):
    for trial, seconds in zip(state.running.values(), (0.1, 10.0), strict=True):
        trial.seconds_a_round = seconds
        trial.method = f"method of {seconds} s"
    state.lanes = 2
    assert state.seconds_left() == 15 * 10.0


def test_trials_that_ended_do_not_count_as_waiting(state):
    state.running = {}
    state.paces = [("FedAvg", "", 3.0)]
    state.records = {
        name: record(status=name) for name in ("finished", "diverged", "failed", "stopped")
    }
    assert state.seconds_left() == 0.0
    state.records["interrupted"] = record(status="interrupted", rounds_done=15)
    state.lags = [0.5, 0.5, 90.0]  # one that hung does not count for all
    assert state.seconds_left() == 5 * 3.0 + 0.5


def test_start_up_is_not_taken_for_the_pace(state):
    # 100 s until the first round: it is not known to the estimate at all
    state.began = 0.0
    trial = state.running["b"]
    state.running = {"b": trial}
    trial.seconds_a_round = 1.0
    assert state.seconds_left() == 15.0


@pytest.mark.parametrize(
    ("key", "seconds"),
    [
        (("FedAvg", "lr 0.1"), 1.0),  # measured
        (("SCAFFOLD", "lr 0.1"), 2.0),  # mean of what has the same setting
        (("FedGPS", "lr 9"), 4.0),  # mean of the same method
        (("SCAFFOLD", "lr 9"), 3.0),  # mean of all
    ],
)
def test_pace_of_what_was_not_measured_is_that_of_the_most_similar(key, seconds):
    known = {("FedAvg", "lr 0.1"): 1.0, ("FedGPS", "lr 0.1"): 3.0, ("FedGPS", "lr 1"): 5.0}
    assert pace(known, key) == seconds


def test_trials_per_hour_leave_start_up_out(state):
    assert state.trials_an_hour(now=400.0) is None
    state.trials_ended, state.working_since = 5, 200.0  # began at 100
    assert state.trials_an_hour(now=380.0) == 5 * 3600 / 180


def test_rounds_per_second_are_those_of_the_last_minute(state):
    assert state.rounds_a_second() is None
    state.count_rounds(1000.0)  # 120 rounds; too long ago
    state.rounds_ended += 100
    state.count_rounds(1030.0)
    state.rounds_ended += 30
    state.count_rounds(1090.0)
    assert state.rounds_a_second() == 30 / 60


def test_a_trial_keeps_a_short_curve_with_its_last_accuracy():
    trial = Running("a", "FedGPS", 1, 0, "", 1000)
    for number in range(1000):
        trial.score(number / 1000 if number != 500 else 0.9999)
    assert len(trial.curve) <= 48
    assert (trial.accuracy, trial.best, trial.curve[-1]) == (0.999, 0.9999, 0.999)


def test_interrupted_are_those_that_began_and_do_not_run(state):
    state.records = {
        "a": record(status="running"),  # is running
        "c": record(status="running"),  # its process has gone
        "d": record(status="interrupted"),
        "e": record(),
        "f": record(status="finished"),
    }
    assert state.interrupted == 2


def test_state_is_read_as_it_was_saved(state, tmp_path):
    state.tell("something happened")
    state.records = {"a": record(status="running", rounds_done=15)}
    state.save(tmp_path)
    assert load(tmp_path).records == state.records
    assert load(tmp_path).running == state.running
    assert load(tmp_path).events[0][1] == "something happened"
    assert [path.name for path in tmp_path.iterdir()] == ["live.json"]


@pytest.mark.parametrize("content", [None, "", "{}", '{"running": {"a": {}}}', "[]"])
def test_no_state_where_there_is_none_to_read(content, tmp_path):
    if content is not None:
        (tmp_path / "live.json").write_text(content)
    assert load(tmp_path) is None


def test_what_a_newer_version_adds_to_the_state_is_left_out(state, tmp_path):
    state.save(tmp_path)
    path = tmp_path / "live.json"
    files.write_json(path, {**json.loads(path.read_text()), "flavour": "sweet"})
    assert load(tmp_path).name == "tiny"


@pytest.mark.parametrize(("diverged", "is_read"), [(0, True), (10**30, False), (-1, False)])
def test_a_state_that_cannot_be_is_not_believed(diverged, is_read, state, tmp_path):
    state.save(tmp_path)
    path = tmp_path / "live.json"
    known = json.loads(path.read_text())
    del known[files.SEAL]  # as older versions write it
    path.write_text(json.dumps({**known, "diverged": diverged}))
    found = load(tmp_path)
    assert (found is not None) == is_read
    assert found is None or found.says(NOT_SEALED)


def test_a_sealed_state_says_nothing_about_its_seal(state, tmp_path):
    state.save(tmp_path)
    assert not load(tmp_path).says(NOT_SEALED)


def test_old_events_are_forgotten(state):
    for number in range(1000):
        state.tell(str(number))
    assert len(state.events) <= 200
    assert state.events[-1][1] == "999"


def test_folder_is_driven_while_its_lock_is_held(tmp_path):
    assert not is_driven(tmp_path)
    with files.lock(tmp_path):
        assert is_driven(tmp_path)
    assert not is_driven(tmp_path)


@pytest.mark.parametrize("number", [float("inf"), float("nan"), 10**400, 2**53, "inf"])
@pytest.mark.parametrize("key", ["began", "lags", "events", "nodes", "records"])
def test_numbers_that_cannot_be_are_not_believed(number, key, state, tmp_path):
    state.records = {"a": record()}
    state.save(tmp_path)
    known = json.loads((tmp_path / "live.json").read_text())
    values = {
        "began": number,
        "lags": [number],
        "events": [[number, "x"]],
        "nodes": [{"CPU": float(number) if number == "inf" else number}],
        "records": {"a": [*record()[:7], number, *record()[8:]]},
    }
    files.write_json(tmp_path / "live.json", {**known, key: values[key]})
    assert load(tmp_path) is None
