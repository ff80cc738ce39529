"""Files of a trial that must not be believed or cannot be opened: told, and not left out."""

import json
import os
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fedgps_ray.analysis import load
from fedgps_ray.errors import UserError
from fedgps_ray.results import files, tables
from fedgps_ray.results.folders import below, has_results
from fedgps_ray.results.read import check, read_trial, trial_folders, work_seconds
from fedgps_ray.results.schema import CLIENTS
from fedgps_ray.results.store import TrialStore
from fedgps_ray.rounds.trial import run_trial
from fedgps_ray.spec import ExecutionSpec, trial_spec
from fedgps_ray.sweep.observe import standing

SPEC = trial_spec(
    method="fedavg",
    model="mlp",
    dataset={"name": "synthetic", "image_size": 8, "train_size": 40, "test_size": 20},
    partition="iid",
    clients=2,
    sampling_rate=1.0,
    rounds=3,
)


def interrupted(folder):
    """Leave a trial that stopped after its first round; return its folder."""
    events = run_trial(SPEC, ExecutionSpec(out=folder, actors=0, checkpoint_seconds=0))
    next(events), next(events)
    events.close()
    return folder / "trials" / SPEC.trial_id


@pytest.fixture
def trial(tmp_path):
    return interrupted(tmp_path)


@pytest.fixture
def nobody():
    """Make a folder in which a user without rights may not read everything, and be that user."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        trial = interrupted(folder / "results")
        folder.chmod(0o755)
        trial.chmod(0)
        is_root = os.geteuid() == 0
        if is_root:
            os.seteuid(65534)
        yield folder
        if is_root:
            os.seteuid(0)
        trial.chmod(0o755)


def rewritten(path, column="accuracy", value=0.999):
    """Change a number with another program, which does not know of the hash in the file."""
    table = pq.read_table(path)
    place = table.column_names.index(column)
    changed = pa.array([value] * len(table), table.schema.field(place).type)
    pq.write_table(table.set_column(place, table.schema.field(place), changed), path)


def bomb(path, rows):
    """Write many equal rows, which take no room on disk."""
    names = {"trial_id": path.parent.name, "work_seconds": 1.0}
    columns = [pa.repeat(pa.scalar(names.get(f.name)).cast(f.type), rows) for f in CLIENTS]
    tables.write(path, pa.table(columns, schema=CLIENTS))
    assert path.stat().st_size < 2**20


def test_a_number_changed_in_an_unfinished_trial_is_told(trial):
    rewritten(trial / "rounds.parquet")
    with pytest.raises(UserError, match="does not match its hash"):
        load.rounds(trial.parent.parent)
    assert "rounds.parquet is damaged" in check(trial, full=True)[0]
    problems = standing(trial.parent.parent, timing=False, verify=True)["problems"]
    assert "rounds.parquet is damaged" in problems[SPEC.trial_id]


def test_a_number_changed_in_a_finished_trial_is_told(tmp_path):
    for _ in run_trial(SPEC, ExecutionSpec(out=tmp_path, actors=0)):
        pass
    folder = tmp_path / "trials" / SPEC.trial_id
    assert load.rounds(tmp_path)["accuracy"].max() < 0.999
    rewritten(folder / "rounds.parquet")
    with pytest.raises(UserError, match=r"rounds\.parquet is damaged"):
        load.rounds(tmp_path)
    assert any("rounds.parquet is damaged" in told for told in check(folder))


def test_rows_of_a_trial_without_a_seal_need_none(trial):
    info = {key: value for key, value in read_trial(trial).items() if key != files.SEAL}
    (trial / "trial.json").write_text(json.dumps(info))
    rewritten(trial / "rounds.parquet")
    assert load.rounds(trial)["accuracy"].tolist() == [0.999]
    assert load.trials(trial).attrs["not_sealed"] == [SPEC.trial_id]


def test_more_rows_than_a_trial_can_have_are_not_read(trial):
    bomb(trial / "clients.parquet", 100_000)
    with pytest.raises(UserError, match="100000 rows, at most 6"):
        load.clients(trial)
    assert not TrialStore(trial.parent.parent, SPEC).resume_rows(1)
    assert sum(work_seconds([trial])) == 100_000  # only one column is read


def test_more_values_than_fit_into_memory_are_not_read(trial, monkeypatch):
    path = trial / "clients.parquet"
    bomb(path, 100_000)
    monkeypatch.setattr(files, "MOST_BYTES", 2**20)
    with pytest.raises(pa.ArrowInvalid, match="more than fit"):
        tables.read(path)


def test_a_trial_that_may_not_be_read_is_told(nobody):
    folder = nobody / "results"
    assert has_results(folder)
    assert [trial.name for trial in trial_folders(folder)] == [SPEC.trial_id]
    problem = standing(folder, timing=False)["problems"][SPEC.trial_id]
    assert problem.endswith("trial.json cannot be read: Permission denied")
    with pytest.raises(UserError, match="cannot be read: Permission denied"):
        load.trials(folder)


def test_trials_that_may_not_be_listed_are_told(tmp_path, monkeypatch):
    def refuse(folder):
        raise PermissionError(13, "Permission denied", str(folder))

    monkeypatch.setattr(os, "listdir", refuse)
    with pytest.raises(UserError, match="trials cannot be read: Permission denied"):
        trial_folders(tmp_path)


def test_folders_that_may_not_be_read_are_passed_over(nobody):
    assert list(below(nobody)) == [nobody / "results"]
    assert list(below(nobody / "results" / "trials")) == []
