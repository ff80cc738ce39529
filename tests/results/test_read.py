"""Results of every layout there was are read, without PyTorch and Ray."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fedgps_ray import cli
from fedgps_ray.analysis import load
from fedgps_ray.analysis.report import write
from fedgps_ray.errors import UserError
from fedgps_ray.identity import trial_id
from fedgps_ray.results import files, schema, tables
from fedgps_ray.results.read import (
    joined,
    read_experiment,
    read_rows,
    read_trial,
    refuse_older,
    trial_folders,
)
from fedgps_ray.results.schema import LAYOUT_VERSION
from fedgps_ray.results.store import spec_of
from fedgps_ray.spec import columns, trial_spec
from fedgps_ray.sweep.ledger import Ledger
from fedgps_ray.sweep.ledger import read as read_ledger
from fedgps_ray.sweep.observe import Observer, standing

HERE = Path(__file__).parent
LAYOUTS = {1: HERE / "layout1", 2: HERE / "layout2"}
FEDAVG = "601999e902c63f0413842c15a56f2706173ea88c1738b03e874c2ea243d181d6"


@pytest.fixture(params=LAYOUTS)
def folder(request, tmp_path):
    return shutil.copytree(LAYOUTS[request.param], tmp_path / "results")


@pytest.fixture
def old(tmp_path):
    return shutil.copytree(LAYOUTS[1], tmp_path / "old")


# --- every layout ---------------------------------------------------------------------------------


def test_there_is_a_folder_of_every_layout():
    assert list(LAYOUTS) == list(range(1, LAYOUT_VERSION + 1))
    for layout, there in LAYOUTS.items():
        infos = [read_trial(trial) for trial in trial_folders(there)]
        assert [info["schema_version"] for info in infos] == [layout] * 3


def test_every_layout_is_shown(folder):
    answer = standing(folder, timing=True)
    assert answer["counts"] == {"finished": 2, "diverged": 1}
    assert answer["damaged"] == []
    assert answer["timing"]["client_actors"] == 2
    assert Observer(folder).look().state.finished == 2
    (folder / "live.json").unlink()
    state, is_driven = Observer(folder).look()
    assert (state.total, state.finished, state.diverged, is_driven) == (3, 2, 1, False)


def test_every_layout_is_loaded(folder):
    trials = load.trials(folder).set_index("trial_id")
    rounds, clients, partitions = load.rounds(folder), load.clients(folder), load.partitions(folder)
    assert trials.attrs["problems"] == rounds.attrs["problems"] == []
    assert sorted(trials["method"]) == ["fedavg", "fedavg", "fedgps"]
    assert (len(rounds), len(clients), len(partitions)) == (7, 12, 36)
    for frame, known in [(rounds, schema.ROUNDS), (clients, schema.CLIENTS)]:
        assert list(frame.columns) == known.names
    fedavg = trials[(trials["method"] == "fedavg") & (trials["status"] == "finished")].iloc[0]
    assert fedavg["weights_sha256"] == FEDAVG
    for name, row in trials.iterrows():
        first = rounds[rounds["trial_id"] == name].iloc[0]
        for column, _ in schema.SPEC[1:]:
            assert row[column] == first[column] or pd.isna(row[column]), column


def test_every_layout_is_reported(folder, tmp_path):
    page = write([folder], tmp_path / "report").read_text()
    assert [trial.name for trial in trial_folders(folder) if trial.name not in page] == []


def test_a_trial_that_was_run_again_beside_its_older_self_counts_once(tmp_path):
    for layout, there in LAYOUTS.items():
        shutil.copytree(there / "trials", tmp_path / "trials", dirs_exist_ok=layout > 1)
    frame = load.trials(tmp_path)
    assert len(trial_folders(tmp_path)) == 6
    assert sorted(frame["method"]) == ["fedavg", "fedavg", "fedgps", "fedgps"]
    new = {trial.name for trial in trial_folders(LAYOUTS[2])}
    assert set(frame[frame["method"] == "fedavg"]["trial_id"]) < new
    assert set(load.rounds(tmp_path)["trial_id"]) == set(frame["trial_id"])
    assert sorted(load.rounds(*LAYOUTS.values())["round"]) == [1, 1, 1, 1, 2, 2, 2, 3, 3, 3]


def test_reading_needs_neither_torch_nor_ray():
    program = """
import sys
from pathlib import Path
from fedgps_ray.analysis import load
from fedgps_ray.results import files, mirror, read, schema, summary
from fedgps_ray.sweep import observe, state, view
for folder in map(Path, sys.argv[1:]):
    assert [read.read_trial(trial) for trial in read.trial_folders(folder)]
    assert observe.standing(folder, True)["counts"]["finished"] == 2
    view.view(*observe.Observer(folder).look())
    for frame in (load.trials, load.rounds, load.clients, load.partitions):
        assert len(frame(folder))
print(sorted({"torch", "ray"} & set(sys.modules)))
"""
    command = [sys.executable, "-c", program, *map(str, LAYOUTS.values())]
    assert subprocess.check_output(command, text=True).strip() == "[]"


def test_an_id_can_be_checked_by_json_alone():
    for trial in trial_folders(LAYOUTS[2]):
        info = json.loads((trial / "trial.json").read_text())
        assert trial_id(info["identity"], info["identity_version"]) == trial.name
        assert spec_of(trial, info).trial_id == trial.name


# --- an older layout is not continued -------------------------------------------------------------


def test_an_old_trial_is_not_continued(old):
    for trial in trial_folders(old):
        with pytest.raises(UserError, match=r"older version .*layout 1, now 2.*can be read .* but"):
            spec_of(trial, read_trial(trial))


def test_an_old_sweep_is_not_continued(old):
    with pytest.raises(UserError, match=r"older version .* not continued; start it again with"):
        read_ledger(old)
    assert len(read_experiment(old)["cells"]) == 3


def test_resume_says_so(old, monkeypatch, capsys):
    info = json.loads((old / "trials" / "30239fcd191c" / "trial.json").read_text())
    unfinished = {**info, "status": "interrupted"}
    (old / "trials" / "30239fcd191c" / "trial.json").write_text(json.dumps(unfinished))
    for _ in range(2):  # as a sweep, then as single runs
        monkeypatch.setattr(sys, "argv", ["fedgps-ray", "resume", str(old)])
        with pytest.raises(SystemExit) as end:
            cli.main()
        assert end.value.code == 2
        told = " ".join(capsys.readouterr().err.split())
        assert "older version of fedgps-ray (layout 1, now 2)" in told
        (old / "experiment.json").unlink(missing_ok=True)
    assert len(trial_folders(old)) == 3


def test_a_new_sweep_goes_beside_old_trials(old):
    cells = read_experiment(old)["cells"]
    ledger = Ledger(old, [trial_spec(**cell["spec"]) for cell in cells])
    assert ledger.quarantine() == []
    (note,) = ledger.notes
    assert note.startswith(f"3 trials in {old} were written by an older version")
    assert len(ledger.to_do()) == 3
    assert not (old / "quarantine").exists()


def test_a_trial_of_a_newer_version_is_not_put_aside(tmp_path):
    folder = shutil.copytree(LAYOUTS[2], tmp_path / "new")
    ledger, _ = read_ledger(folder)
    path = trial_folders(folder)[0] / "trial.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "schema_version": 3}))
    with pytest.raises(UserError, match="newer version"):
        ledger.quarantine()
    assert path.exists()
    refuse_older(folder, {"schema_version": LAYOUT_VERSION})


def test_an_experiment_of_a_newer_version_is_refused(tmp_path):
    folder = shutil.copytree(LAYOUTS[2], tmp_path / "new")
    content = json.loads((folder / "experiment.json").read_text())
    (folder / "experiment.json").write_text(json.dumps({**content, "schema_version": 3}))
    with pytest.raises(UserError, match=r"experiment\.json was written by a newer version"):
        standing(folder, timing=False)


@pytest.mark.parametrize("name", ["../../elsewhere", "", "30239FCD191C", 3])
def test_an_id_that_cannot_be_one_is_refused(tmp_path, name):
    cell = {**columns(trial_spec()), "spec": {}, "trial_id": name}
    (tmp_path / "experiment.json").write_text(json.dumps({"cells": [cell]}))
    with pytest.raises(UserError, match=r"experiment\.json is damaged"):
        standing(tmp_path, timing=False)


def test_an_experiment_has_no_trial_twice(tmp_path):
    folder = shutil.copytree(LAYOUTS[2], tmp_path / "twice")
    content = json.loads((folder / "experiment.json").read_text())
    content["cells"].append(content["cells"][0])
    files.write_json(folder / "experiment.json", content)
    with pytest.raises(UserError, match=r"experiment\.json is damaged \(trial \w+ is there twice"):
        standing(folder, timing=False)


# --- columns that come and go ---------------------------------------------------------------------


def test_missing_columns_are_empty_and_unknown_ones_are_kept(tmp_path):
    path = next(LAYOUTS[2].glob("trials/*/rounds.parquet"))
    whole = pq.read_table(path)
    older = whole.drop_columns(["divergence", "steps"])
    newer = whole.append_column("energy", pa.array(np.arange(len(whole), dtype=float)))
    pq.write_table(older, tmp_path / "older.parquet")
    pq.write_table(newer, tmp_path / "newer.parquet")
    tables = [
        read_rows(tmp_path / name, schema.ROUNDS) for name in ("older.parquet", "newer.parquet")
    ]
    assert tables[0]["steps"].null_count == len(whole)
    frame = joined(tables, schema.ROUNDS).to_pandas()
    assert frame["energy"].isna().tolist() == [True] * len(whole) + [False] * len(whole)
    assert frame["accuracy"].notna().sum() == 2 * whole["accuracy"].drop_null().length()


def test_a_column_of_another_type_is_read_as_ours(tmp_path):
    path = next(LAYOUTS[2].glob("trials/*/rounds.parquet"))
    whole = pq.read_table(path)
    place = whole.column_names.index("steps")
    other = whole.set_column(place, "steps", whole["steps"].cast(pa.float64()))
    pq.write_table(other, tmp_path / "rounds.parquet")
    table = read_rows(tmp_path / "rounds.parquet", schema.ROUNDS)
    assert table.schema.field("steps").type == pa.int64()
    assert table["steps"].equals(whole["steps"])


# --- values that cannot be ------------------------------------------------------------------------


def resealed(tmp_path, **changes):
    """Return a trial some of whose settings are others, with an id and a seal that fit them."""
    source = trial_folders(LAYOUTS[2])[0]
    info = json.loads((source / "trial.json").read_text())
    for part in ("spec", "identity"):
        info[part] = {**info[part], **changes}
    name = trial_id(info["identity"], info["identity_version"])
    folder = shutil.copytree(source, tmp_path / "trials" / name)
    info.pop("trial_id", None)
    files.write_json(folder / "trial.json", info)
    return folder


def noted(tmp_path, **changes):
    """Return a trial whose trial.json says something else, with a seal that fits it."""
    source = trial_folders(LAYOUTS[2])[0]
    folder = shutil.copytree(source, tmp_path / source.name)
    info = json.loads((folder / "trial.json").read_text())
    files.write_json(folder / "trial.json", {**info, **changes})
    return folder


@pytest.mark.parametrize("figure", [10**400, float("inf"), float("nan"), 2**63])
def test_figures_that_cannot_be_are_refused(tmp_path, figure):
    folder = noted(tmp_path, summary={"rounds_done": 1, "best_accuracy": figure})
    with pytest.raises(UserError, match=r"is damaged \(summary\.best_accuracy is"):
        read_trial(folder)


@pytest.mark.parametrize("key", ["error", "diverged", "partition_sha256"])
@pytest.mark.parametrize("value", [{}, 0, False, []])
def test_notes_that_are_no_text_are_refused(tmp_path, key, value):
    with pytest.raises(UserError, match=rf"is damaged \({key} is"):
        read_trial(noted(tmp_path, **{key: value}))


@pytest.mark.parametrize(
    "changes",
    [
        {"scenario": None},
        {"sampling_rate": 2**53},
        {"sampling_rate": 10**400},
        {"sampling_rate": float("inf")},
        {"dataset": {"name": {}}},
        {"surrogate": {"kind": []}},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_settings_that_cannot_be_are_refused(tmp_path, changes):
    with pytest.raises(UserError, match=r"trial\.json is damaged \(.* is "):
        read_trial(resealed(tmp_path, **changes))


def test_settings_that_can_be_are_read_with_another_seal(tmp_path):
    assert read_trial(resealed(tmp_path, scenario=77))["spec"]["scenario"] == 77


def test_rows_that_cannot_be_are_unreadable(tmp_path):
    whole = pq.read_table(next(LAYOUTS[2].glob("trials/*/rounds.parquet")))
    no_text = pa.array([b"\xff"] * len(whole)).cast(pa.string(), safe=False)
    harmed = {
        "no column trial_id": whole.drop_columns(["trial_id"]),
        "columns of the same name": whole.append_column("round", whole["round"]),
        "(?i)utf": whole.append_column("unknown", no_text),
    }
    for said, table in harmed.items():
        tables.write(tmp_path / "rounds.parquet", table)
        with pytest.raises(pa.ArrowInvalid, match=said):
            read_rows(tmp_path / "rounds.parquet", schema.ROUNDS)
