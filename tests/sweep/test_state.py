"""The state of a sweep: counts, time left, and the file that others read."""

import pytest

from fedgps_ray.identity import Label
from fedgps_ray.results import files
from fedgps_ray.sweep.state import Running, State, is_driven, load, running


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
    columns = {"trial_id": "ab", "method": "fedgps", "scenario": 3, "seed": 1, "rounds": 20}
    trial = running(columns, label)
    assert (trial.method, trial.setting) == ("fedgps rho=0.3", "lr 0.1, name a, seed 2")
    assert (trial.trial_id, trial.scenario, trial.seed, trial.rounds) == ("ab", 3, 1, 20)


def test_counts(state):
    assert state.left == 3
    assert state.rounds_done == 120


def test_time_left_is_at_the_pace_of_this_launch(state):
    assert state.seconds_left(now=150.0) == 80 * 50 / 90


def test_no_pace_before_the_first_round():
    assert State("tiny", total=1, rounds_total=20, rounds_before=5).seconds_left(1e12) is None


def test_state_is_read_as_it_was_saved(state, tmp_path):
    state.tell("something happened")
    state.save(tmp_path)
    assert load(tmp_path).running == state.running
    assert load(tmp_path).events[0][1] == "something happened"
    assert [path.name for path in tmp_path.iterdir()] == ["live.json"]


@pytest.mark.parametrize("content", [None, "", "{}", '{"running": {"a": {}}}', "[]"])
def test_no_state_where_there_is_none_to_read(content, tmp_path):
    if content is not None:
        (tmp_path / "live.json").write_text(content)
    assert load(tmp_path) is None


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
