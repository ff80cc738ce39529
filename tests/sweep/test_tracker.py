"""What Tune tells becomes the state of a sweep."""

import json

import pytest

from fedgps_ray.results.mirror import Mirror
from fedgps_ray.results.read import read_trial
from fedgps_ray.rounds.trial import run_trial
from fedgps_ray.spec import ExecutionSpec
from fedgps_ray.sweep.state import load
from fedgps_ray.sweep.tracker import Tracker


@pytest.fixture
def tracker(ledger, specs, run_here):
    """Return the tracker of a sweep of three trials, of which one is finished."""
    all_of_them = specs(["fedavg", "fedgps", "fedprox"])
    own = ledger(all_of_them)
    run_here(own.folder, all_of_them[:1])
    said = []
    made = Tracker("tiny", own, all_of_them[1:], ExecutionSpec(out=own.folder), said.append)
    made.said = said
    return made


def ids(tracker):
    return [spec.trial_id for spec in tracker.ledger.specs]


def moved(tracker, trial_id, rounds_done, accuracy, **more):
    told = {"rounds_done": rounds_done, "accuracy": accuracy, "best": accuracy}
    tracker.moved(trial_id, {**told, "seconds_a_round": 0.5, **more})


def test_finished_trials_are_known_from_the_start(tracker):
    first, *others = ids(tracker)
    record = tracker.state.records[first]
    assert (record.method, record.status, record.rounds_done) == ("FedAvg", "finished", 3)
    assert record.best is not None
    assert {tracker.state.records[key].status for key in others} == {"missing"}


def test_running_trials_reach_the_leaderboard(tracker):
    _, trial_id, _ = ids(tracker)
    tracker.begun(trial_id)
    assert tracker.state.records[trial_id].best is None
    tracker.moved(trial_id, {"what": "starting"})
    assert tracker.state.working_since is None, "start-up does not count"
    moved(tracker, trial_id, 1, 0.25)
    moved(tracker, trial_id, 1, 0.25)  # told again without another round
    moved(tracker, trial_id, 2, 0.5)
    assert tracker.state.records[trial_id].best == 0.5
    assert tracker.state.running[trial_id].curve == [0.25, 0.5]
    assert tracker.state.working_since is not None


def test_restarts_are_counted(tracker):
    _, trial_id, _ = ids(tracker)
    tracker.begun(trial_id)
    moved(tracker, trial_id, 1, 0.25, restarts=2)
    moved(tracker, trial_id, 2, 0.25, restarts=2)
    tracker.begun(trial_id)
    assert tracker.state.restarts == 3
    assert "starts again from its checkpoint" in tracker.said[-1]


@pytest.mark.parametrize("has_summary", [True, False])
def test_a_trial_that_a_search_stops_may_end_later_but_has_to_sum_itself_up(tracker, has_summary):
    _, trial_id, _ = ids(tracker)
    tracker.begun(trial_id)
    tracker.note(trial_id, status="running")
    tracker.ended(trial_id)
    assert tracker.stopped == {trial_id}
    if has_summary:
        tracker.note(trial_id, status="interrupted", summary={"rounds_done": 1})
    tracker.note_stopped(trial_id)
    info = read_trial(tracker.ledger.place(tracker.specs[trial_id]))
    assert info["status"] == ("stopped" if has_summary else "running")


def test_a_failure_is_kept_with_its_first_line(tracker):
    _, trial_id, _ = ids(tracker)
    tracker.begun(trial_id)
    moved(tracker, trial_id, 1, 0.25, failed="why\nmore")
    record = tracker.state.records[trial_id]
    assert (record.status, record.error) == ("failed", "why")
    assert tracker.said[-1].startswith("FedGPS, scenario 1, seed 0 (")
    assert tracker.said[-1].endswith("failed: why")


def test_an_error_with_half_of_a_character_leaves_a_state_that_can_be_read(tracker):
    _, trial_id, _ = ids(tracker)
    tracker.begun(trial_id)
    moved(tracker, trial_id, 1, 0.25, failed="no file \udcff")
    tracker.state.save(tracker.ledger.folder)
    assert load(tracker.ledger.folder).failures == {trial_id: "no file \ufffd"}


def test_once_the_user_stops_nothing_starts_again_and_nothing_is_lost(tracker):
    _, running, waiting = ids(tracker)
    tracker.begun(running)
    tracker.is_stopping = True
    said = list(tracker.said)
    tracker.begun(running)
    tracker.begun(waiting)
    tracker.lose(running, "its process died")
    assert tracker.said == said
    assert list(tracker.state.running) == [running]
    assert tracker.lost == set()


def test_pace_and_lag_of_a_trial_that_found_its_actors_ready(tracker, run_here, specs):
    _, first, second = ids(tracker)
    for trial_id in (first, second):
        tracker.begun(trial_id)
        moved(tracker, trial_id, 3, 0.25)
        run_here(tracker.ledger.folder, [tracker.specs[trial_id]])
        tracker.state.running[trial_id].began -= 2.5
        tracker.ended(trial_id)
    assert [seconds for *_, seconds in tracker.state.paces] == [0.5, 0.5]
    (lag,) = tracker.state.lags  # not of the first, which waited for its actors to start
    assert lag >= 1.0  # 2.5 s less three rounds of 0.5 s, and what running it took
    assert (tracker.state.finished, tracker.state.trials_ended) == (3, 2)


def test_rounds_of_a_trial_that_was_lost_are_counted_once(tracker, run_here):
    _, trial_id, _ = ids(tracker)
    before = tracker.state.rounds_done
    tracker.begun(trial_id)
    moved(tracker, trial_id, 2, 0.25)
    tracker.lose(trial_id, "its node is gone")
    assert tracker.state.rounds_done == before + 2
    tracker.begun(trial_id)  # its checkpoint is gone: from the first round
    assert tracker.state.rounds_done == before
    moved(tracker, trial_id, 1, 0.25)
    assert tracker.state.rounds_done == before + 1
    run_here(tracker.ledger.folder, [tracker.specs[trial_id]])
    tracker.ended(trial_id)
    assert tracker.state.rounds_done == before + 3


def test_rounds_of_a_trial_that_goes_on_from_a_checkpoint_are_all_counted(tracker):
    _, trial_id, _ = ids(tracker)
    before = tracker.state.rounds_done
    tracker.begun(trial_id)
    moved(tracker, trial_id, 2, 0.25)
    tracker.lose(trial_id, "its node is gone")
    events = run_trial(tracker.specs[trial_id], ExecutionSpec(out=tracker.ledger.folder, actors=0))
    next(events), next(events), next(events)
    events.close()
    tracker.begun(trial_id)
    assert tracker.state.running[trial_id].first == 2
    assert tracker.state.rounds_done == before + 2


def test_rounds_of_an_interrupted_launch_stay_counted(tracker):
    _, trial_id, _ = ids(tracker)
    before = tracker.state.rounds_done
    tracker.begun(trial_id)
    moved(tracker, trial_id, 2, 0.25)
    tracker.close()
    assert (tracker.state.running, tracker.state.rounds_done) == ({}, before + 2)


def test_closed_state_is_on_disk(tracker):
    tracker.close()
    saved = json.loads((tracker.ledger.folder / "live.json").read_text())
    assert saved["ended"] is not None
    assert len(saved["records"]) == 3


def test_a_lost_trial_is_tried_again_and_one_that_cannot_be_written_is_left_to_resume(tracker):
    _, lost, stuck = ids(tracker)
    for trial_id in (lost, stuck):
        tracker.begun(trial_id)
    tracker.moved(lost, {"lost": "its node is gone"})
    tracker.moved(stuck, {"stuck": "cannot write x: No space left on device"})
    assert tracker.lost == {lost}
    assert set(tracker.state.losses) == {lost, stuck}
    assert tracker.state.failed == 0
    assert any("was interrupted: cannot write x" in text for text in tracker.said)
    tracker.begun(lost)
    assert set(tracker.state.losses) == {stuck}


def test_a_trial_that_failed_on_another_node_keeps_its_rows(tracker, tmp_path):
    _, trial_id, _ = ids(tracker)
    there, name = tmp_path / "bucket", f"trials/{trial_id}"
    events = run_trial(
        tracker.specs[trial_id],
        ExecutionSpec(out=tmp_path / "node", actors=0, checkpoint_seconds=0),
    )
    next(events), next(events)
    events.close()
    Mirror(there.as_uri()).put(tmp_path / "node", name)
    before = sorted(path.name for path in (there / name).rglob("*"))
    tracker.ledger.mirror = Mirror(there.as_uri())
    tracker.begun(trial_id)
    tracker.failed(trial_id, "a client failed")
    assert sorted(path.name for path in (there / name).rglob("*")) == before
    assert json.loads((there / name / "trial.json").read_text())["status"] == "failed"


def test_a_trial_that_cannot_be_brought_here_does_not_end_the_sweep(tracker, tmp_path):
    _, trial_id, absent = ids(tracker)
    there = tmp_path / "bucket" / "trials" / trial_id
    there.mkdir(parents=True)
    (there / "junk").touch()
    tracker.ledger.mirror = Mirror((tmp_path / "bucket").as_uri())
    for each in (trial_id, absent):
        tracker.begun(each)
        tracker.ended(each)
    assert "is not a file of a trial" in tracker.state.losses[trial_id]
    assert "no trial.json" in tracker.state.losses[absent]
    assert tracker.lost == set()
