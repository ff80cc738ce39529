"""What a results folder says is done, and what has to be run."""

import json

import pytest

from fedgps_ray.errors import InUse, Lost, UserError
from fedgps_ray.identity import Label
from fedgps_ray.results import files
from fedgps_ray.results.mirror import Mirror
from fedgps_ray.results.moves import aside
from fedgps_ray.results.read import check
from fedgps_ray.results.store import TrialStore
from fedgps_ray.rounds.trial import run_trial
from fedgps_ray.spec import ExecutionSpec
from fedgps_ray.sweep.inline import run_here as run_sweep_here
from fedgps_ray.sweep.ledger import Ledger, read
from fedgps_ray.sweep.plan import SweepPlan


def note(ledger, spec, **facts):
    store = TrialStore(ledger.folder, spec)
    store.open(ExecutionSpec(out=ledger.folder))
    store.note(**facts)


def test_everything_is_to_do_at_first(ledger, specs):
    grid = specs(["fedavg", "fedgps"], seeds=2)
    assert ledger(grid).to_do() == grid


def test_ended_trials_are_not_run_again_and_failed_ones_only_when_asked(ledger, specs):
    grid = specs(["fedavg", "fedprox", "fedgps", "scaffold", "ccvr", "vhl"])
    book = ledger(grid)
    statuses = ["finished", "diverged", "failed", "interrupted", "running", "stopped"]
    for spec, status in zip(grid, statuses, strict=True):
        note(book, spec, status=status, summary={"rounds_done": 1})
    assert book.to_do() == grid[3:5]
    assert book.to_do(again=True) == grid[2:5]
    assert [entry.status for entry in book.entries()] == statuses


def test_adding_a_seed_adds_only_its_cells(ledger, specs, run_here):
    first = specs(["fedavg", "fedprox"])
    run_here(ledger(first).folder, first)
    both = specs(["fedavg", "fedprox"], seeds=2)
    assert ledger(both).to_do() == both[2:]


def test_changed_setting_is_another_trial(ledger, specs, run_here):
    run_here(ledger([]).folder, specs(["fedavg"]))
    changed = specs(["fedavg"], batch_size=16)
    assert ledger(changed).to_do() == changed


def test_finished_trials_of_another_folder_are_taken_over(ledger, specs, run_here, tmp_path):
    grid = specs(["fedavg", "fedprox"])
    other = Ledger(tmp_path / "other", grid)
    hashes = run_here(other.folder, grid[:1])
    note(other, grid[1], status="interrupted", summary={"rounds_done": 1})
    book = ledger(grid)
    assert book.borrow([tmp_path / "empty", other.folder]) == [grid[0].trial_id]
    assert book.to_do() == grid[1:]
    info = json.loads((book.place(grid[0]) / "trial.json").read_text())
    assert info["summary"]["weights_sha256"] == hashes[grid[0].trial_id]
    assert (book.place(grid[0]) / "rounds.parquet").exists()


@pytest.mark.parametrize("damage", ["{", "{}", '{"status": "finished"}'])
def test_damaged_trial_is_put_aside_and_run_again(damage, ledger, specs, run_here):
    grid = specs(["fedavg", "fedprox"])
    book = ledger(grid)
    run_here(book.folder, grid)
    (book.place(grid[0]) / "trial.json").write_text(damage)
    (moved,) = book.quarantine()
    assert moved == book.folder / "quarantine" / f"{grid[0].trial_id}-1"
    assert (moved / "rounds.parquet").exists(), "nothing is thrown away"
    assert book.to_do() == grid[:1]
    assert grid[0].trial_id in book.notes[0]
    assert "damaged" in book.notes[0]
    assert book.quarantine() == []


def test_folder_tells_the_experiment_again(ledger, specs, run_here):
    grid = specs(["fedavg", {"name": "fedgps", "rho": 0.25}])
    book = ledger(grid)
    run_here(book.folder, grid[:1])
    book.write({"name": "tiny", "search": None, "execution": {}})
    again, facts = read(book.folder)
    assert [spec.trial_id for spec in again.specs] == [spec.trial_id for spec in grid]
    told = {"name": "tiny", "search": None, "execution": {}}
    assert facts == {**told, "finished": [grid[0].trial_id]}
    cells = json.loads((book.folder / "experiment.json").read_text())["cells"]
    assert [cell["method"] for cell in cells] == ["fedavg", "fedgps"]


def test_labels_are_read_as_they_were_written(specs, tmp_path):
    grid = specs(["fedavg", "fedgps"])
    labels = {
        spec.trial_id: Label(f"method, {number}", {"lr": "0.1, 0.2"})
        for number, spec in enumerate(grid)
    }
    facts = {"name": "tiny", "search": None, "execution": {}}
    Ledger(tmp_path, grid, labels).write(facts)
    assert read(tmp_path)[0].labels == labels


def test_a_trial_whose_settings_make_another_identity_is_put_in_quarantine(ledger, specs, run_here):
    grid = specs(["fedavg"])
    book = ledger(grid)
    run_here(book.folder, grid)
    path = book.place(grid[0]) / "trial.json"
    info = json.loads(path.read_text())
    info["spec"]["batch_size"] = 16
    files.write_json(path, info)
    (moved,) = book.quarantine()
    assert moved.parent.name == "quarantine"
    assert "belongs to another spec" in book.notes[0]
    assert book.to_do() == grid


@pytest.mark.parametrize("content", [None, "[", "{}", '{"cells": [{"spec": {"rounds": -1}}]}'])
def test_folder_that_does_not_tell_an_experiment(content, tmp_path):
    if content is not None:
        (tmp_path / "experiment.json").write_text(content)
    with pytest.raises(UserError, match=r"experiment\.json"):
        read(tmp_path)


# --- a copy elsewhere -----------------------------------------------------------------------------


@pytest.fixture
def there(tmp_path):
    return tmp_path / "bucket"


def to_do(book, there, **options):
    """Return what a launch with a storage has to do."""
    execution = ExecutionSpec(out=book.folder, actors=0, storage=there.as_uri())
    return SweepPlan("tiny", book, execution, {}, **options).to_do(Silent())


class Silent:
    """Somebody who is told things."""

    def say(self, text):
        pass


def kept(there, spec):
    folder = there / "trials" / spec.trial_id
    return (folder / "trial.json").exists() and check(folder, full=True) == []


def test_what_ended_before_is_sent_by_the_next_launch(ledger, specs, run_here, there):
    (spec,) = specs(["fedavg"])
    book = ledger([spec])
    run_here(book.folder, [spec])
    assert to_do(book, there) == []
    assert kept(there, spec)
    (there / "trials" / spec.trial_id / "rounds.parquet").unlink()
    assert to_do(ledger([spec]), there) == []
    assert kept(there, spec)
    assert kept(book.folder, spec)


def test_what_is_borrowed_is_sent(ledger, specs, run_here, there, tmp_path):
    (spec,) = specs(["fedavg"])
    run_here(tmp_path / "other", [spec])
    assert to_do(ledger([spec]), there, borrow_from=(tmp_path / "other",)) == []
    assert kept(there, spec)


def test_a_sweep_in_this_process_keeps_its_trials_elsewhere(ledger, specs, there):
    (spec,) = specs(["fedavg"])
    book = ledger([spec])
    execution = ExecutionSpec(out=book.folder, actors=0, storage=there.as_uri())
    plan = SweepPlan("tiny", book, execution, {})
    assert run_sweep_here(plan, Silent(), lambda spec, events: [*events] and None) == []
    assert kept(there, spec)


def test_a_storage_that_is_away_fails_no_trial(ledger, specs, there, monkeypatch):
    (spec,) = specs(["fedavg"])
    book = ledger([spec])
    execution = ExecutionSpec(out=book.folder, actors=0, storage=there.as_uri())

    def away(*_):
        raise Lost("the storage does not answer")

    monkeypatch.setattr(Mirror, "put", away)
    plan = SweepPlan("tiny", book, execution, {})
    assert run_sweep_here(plan, Silent(), lambda spec, events: [*events] and None) == []
    assert [entry.status for entry in book.entries()] == ["finished"]


def test_a_trial_that_runs_is_neither_replaced_nor_moved(ledger, specs, run_here, tmp_path):
    (spec,) = specs(["fedavg"])
    run_here(tmp_path / "other", [spec])
    book = ledger([spec])
    running = run_trial(spec, ExecutionSpec(out=book.folder, actors=0))
    next(running)
    assert book.borrow([tmp_path / "other"]) == []
    with pytest.raises(InUse):
        aside(book.place(spec), book.folder / "quarantine")
    there = tmp_path / "bucket"
    Mirror(there.as_uri()).put(tmp_path / "other", f"trials/{spec.trial_id}")
    book.keep_at(Mirror(there.as_uri()))
    assert "in use by another process" in book.notes[0]
    list(running)
    assert check(book.place(spec), full=True) == []


@pytest.mark.parametrize("sealed", [True, False])
def test_a_plan_without_a_seal_is_told(sealed, ledger, specs):
    book = ledger(specs(["fedavg"]))
    book.folder.mkdir(parents=True, exist_ok=True)
    book.write({"name": "tiny", "search": None, "execution": {}})
    path = book.folder / "experiment.json"
    content = json.loads(path.read_text())
    if not sealed:
        del content[files.SEAL]
    path.write_text(json.dumps(content))
    assert [note for note in read(book.folder)[0].notes if "experiment.json" in note] == (
        [] if sealed else ["experiment.json is not sealed: changes to it cannot be noticed"]
    )


@pytest.mark.parametrize("part", ["name", "search", "execution", "finished"])
def test_a_plan_that_lacks_a_part_is_damaged(part, ledger, specs):
    book = ledger(specs(["fedavg"]))
    book.folder.mkdir(parents=True, exist_ok=True)
    book.write({"name": "tiny", "search": None, "execution": {}})
    path = book.folder / "experiment.json"
    content = json.loads(path.read_text())
    files.write_json(path, {key: value for key, value in content.items() if key != part})
    with pytest.raises(UserError, match=f"is damaged .it lacks {part}.; start the sweep again"):
        read(book.folder)
