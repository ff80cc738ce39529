"""A trial's folder: its columns, its rows before and after a stop, and what may be wrong in it."""

import json
import shutil

import numpy as np
import pandas as pd
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from fedgps_ray.errors import UserError
from fedgps_ray.results import files, schema, store
from fedgps_ray.results.read import read_trial, trial_folders
from fedgps_ray.results.schema import LAYOUT_VERSION
from fedgps_ray.results.store import TrialStore, spec_of
from fedgps_ray.spec import ExecutionSpec, columns, trial_spec

SPEC = trial_spec(method="fedavg", clients=3, sampling_rate=0.67, rounds=4)  # two clients a round
SPEC_COLUMNS = [name for name, _ in schema.SPEC]


def row(number, **others):
    return {
        "round": number,
        "accuracy": number / 10,
        "loss": 1.0,
        "train_loss": 2.0,
        "weights_sha256": f"hash {number}",
        "bytes_up": 2**40,
        "bytes_down": 5,
        "steps": 6,
        "gradient_evaluations": 7,
        "divergence": None,
        "metrics": {"drift": 0.5},
        "train_seconds": 0.1,
        "aggregate_seconds": 0.2,
        "evaluate_seconds": 0.3,
        **others,
    }


def client_rows(number):
    return [
        {
            "round": number,
            "client": client,
            "samples": 10 + client,
            "steps": 2,
            "gradient_evaluations": 2,
            "loss": 0.5,
            "bytes_up": 8,
            "bytes_down": 8,
            "worker": "in-process",
            "work_seconds": 0.1,
        }
        for client in (2, 0)
    ]


def filled(folder, spec=SPEC, rounds=3):
    trial = TrialStore(folder, spec)
    trial.open(ExecutionSpec(out=folder))
    trial.write_partition(np.array([[3, 0], [0, 4], [5, 6]]))
    for number in range(1, rounds + 1):
        trial.add(row(number), client_rows(number))
    trial.flush()
    return trial


def edited(trial, **changes):
    path = trial.folder / "trial.json"
    info = json.loads(path.read_text())
    files.write_json(path, {**info, **changes})


# --- what is written ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "columns_"),
    [("rounds", schema.ROUNDS), ("clients", schema.CLIENTS), ("partition", schema.PARTITION)],
)
def test_columns_and_types_are_those_of_the_schema(tmp_path, name, columns_):
    trial = filled(tmp_path)
    assert pq.read_schema(trial.folder / f"{name}.parquet").equals(columns_)


@pytest.mark.parametrize("name", ["rounds", "clients", "partition"])
def test_every_row_has_every_setting(tmp_path, name):
    frame = pd.read_parquet(filled(tmp_path).folder / f"{name}.parquet")
    assert len(frame)
    for key, value in columns(SPEC).items():
        assert frame[key].isna().all() if value is None else (frame[key] == value).all()
    assert set(SPEC_COLUMNS) == set(columns(SPEC))


def test_rounds_read_back_with_pandas(tmp_path):
    frame = pd.read_parquet(filled(tmp_path).folder / "rounds.parquet")
    assert frame["round"].tolist() == [1, 2, 3]
    assert frame["accuracy"].tolist() == [0.1, 0.2, 0.3]
    assert frame["bytes_up"].tolist() == [2**40] * 3
    assert frame["divergence"].isna().all()
    assert [dict(metrics) for metrics in frame["metrics"]] == [{"drift": 0.5}] * 3


def test_clients_and_partition_read_back_with_pandas(tmp_path):
    folder = filled(tmp_path).folder
    clients = pd.read_parquet(folder / "clients.parquet")
    assert clients[["round", "client", "samples"]].values.tolist() == [
        [number, client, 10 + client] for number in (1, 2, 3) for client in (2, 0)
    ]
    partition = pd.read_parquet(folder / "partition.parquet")
    counts = partition.pivot(index="client", columns="class", values="count")
    assert counts.to_numpy().tolist() == [[3, 0], [0, 4], [5, 6]]


def test_many_trials_read_as_one_frame(tmp_path):
    others = [
        SPEC,
        trial_spec(method="fedgps", partition="iid"),
        trial_spec(
            method={"name": "fedgps", "rho": 0.1},
            partition="classes",
            clients=3,
            sampling_rate=0.67,
        ),
    ]
    for spec in others:
        filled(tmp_path, spec)
    paths = sorted(map(str, tmp_path.glob("trials/*/rounds.parquet")))
    frame = ds.dataset(paths).to_table().to_pandas()
    assert len(frame) == 9
    by_trial = frame.groupby("trial_id", observed=True)
    assert by_trial.size().to_dict() == {spec.trial_id: 3 for spec in others}
    assert sorted(frame["partition"].unique()) == ["classes", "dirichlet", "iid"]
    alphas = frame[frame["partition"] == "dirichlet"]["alpha"]
    assert alphas.tolist() == [0.1] * 3
    assert pd.read_parquet(tmp_path / "trials" / SPEC.trial_id / "rounds.parquet").shape[0] == 3


def test_a_diverged_row_is_empty_but_for_its_settings(tmp_path):
    trial = filled(tmp_path, rounds=1)
    trial.add({"round": 2}, [])
    trial.flush()
    last = pd.read_parquet(trial.folder / "rounds.parquet").iloc[-1]
    assert (last["round"], last["trial_id"]) == (2, SPEC.trial_id)
    assert pd.isna(last["accuracy"])
    assert pd.isna(last["bytes_up"])


def test_rows_reach_the_disk_about_once_a_second(tmp_path, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(store.time, "monotonic", lambda: now[0])
    trial = TrialStore(tmp_path, SPEC)
    trial.make()
    path = trial.folder / "rounds.parquet"
    for number, pause, rows_there in ((1, 0, 1), (2, 0, 1), (3, 0.9, 1), (4, 0.2, 4)):
        now[0] += pause
        trial.add(row(number), client_rows(number))
        trial.flush_in_time()
        assert pq.read_table(path).num_rows == rows_there


def test_trial_json_says_what_was_asked_for(tmp_path):
    trial = TrialStore(tmp_path, SPEC)
    info = trial.open(ExecutionSpec(out=tmp_path, actors=3))
    assert info == json.loads((trial.folder / "trial.json").read_text())
    assert trial_spec(**info["spec"]) == SPEC
    assert ExecutionSpec(**info["execution"]).actors == 3
    assert (info["trial_id"], info["status"]) == (SPEC.trial_id, "new")
    assert info["schema_version"] == LAYOUT_VERSION
    assert (info["identity_version"], info["identity"]) == (2, SPEC.identity)
    assert set(info["versions"]) == {"fedgps-ray", "torch", "numpy", "ray"}


def test_opening_again_keeps_what_was_noted(tmp_path):
    trial = TrialStore(tmp_path, SPEC)
    trial.open(ExecutionSpec(out=tmp_path))
    trial.note(status="interrupted", moved_samples=3)
    info = TrialStore(tmp_path, SPEC).open(ExecutionSpec(out=tmp_path))
    assert (info["status"], info["moved_samples"]) == ("interrupted", 3)
    assert "updated" in info


# --- rows after a stop --------------------------------------------------------------------------


def test_rows_beyond_the_checkpoint_are_dropped(tmp_path):
    filled(tmp_path)
    trial = TrialStore(tmp_path, SPEC)
    assert trial.resume_rows(2)
    assert [kept["round"] for kept in trial.rows] == [1, 2]
    trial.add(row(3, accuracy=0.9), client_rows(3))
    trial.flush()
    frame = pd.read_parquet(trial.folder / "rounds.parquet")
    assert frame["accuracy"].tolist() == [0.1, 0.2, 0.9]
    assert [dict(metrics) for metrics in frame["metrics"]] == [{"drift": 0.5}] * 3
    assert len(pd.read_parquet(trial.folder / "clients.parquet")) == 6


def test_no_rounds_done_means_no_rows(tmp_path):
    filled(tmp_path)
    trial = TrialStore(tmp_path, SPEC)
    assert trial.resume_rows(0)
    assert list(trial.rows) == []


@pytest.mark.parametrize("name", ["rounds.parquet", "clients.parquet"])
@pytest.mark.parametrize("harm", ["missing", "cut", "empty", "middle"])
def test_rows_that_are_gone_or_damaged_are_noticed(tmp_path, name, harm):
    path = filled(tmp_path).folder / name
    content = path.read_bytes()
    if harm == "missing":
        path.unlink()
    elif harm == "cut":
        path.write_bytes(content[: len(content) // 2])
    elif harm == "empty":
        path.write_bytes(b"")
    else:
        path.write_bytes(b"PAR1" + bytes(200) + content[204:])
    assert not TrialStore(tmp_path, SPEC).resume_rows(2)


def test_a_missing_round_is_noticed(tmp_path):
    trial = TrialStore(tmp_path, SPEC)
    trial.make()
    for number in (1, 3):
        trial.add(row(number), client_rows(number))
    trial.flush()
    assert not TrialStore(tmp_path, SPEC).resume_rows(3)
    assert TrialStore(tmp_path, SPEC).resume_rows(1)


def test_a_client_without_a_row_is_noticed(tmp_path):
    trial = TrialStore(tmp_path, SPEC)
    trial.make()
    trial.add(row(1), client_rows(1)[:1])
    trial.flush()
    assert not TrialStore(tmp_path, SPEC).resume_rows(1)


# --- what may be wrong --------------------------------------------------------------------------


def test_a_folder_without_trial_json(tmp_path):
    with pytest.raises(UserError, match=r"is not a trial's folder: it has no trial\.json"):
        read_trial(tmp_path)


@pytest.mark.parametrize("content", ["", "{", '{"status": "new"', "3", "[]", "{}", "\x00\x01"])
def test_a_damaged_trial_json_is_told_with_what_to_do(tmp_path, content):
    trial = filled(tmp_path)
    (trial.folder / "trial.json").write_text(content)
    with pytest.raises(UserError, match=r"trial\.json is damaged .*; move the folder away"):
        read_trial(trial.folder)


def test_bytes_that_are_no_text(tmp_path):
    trial = filled(tmp_path)
    (trial.folder / "trial.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match="is damaged"):
        read_trial(trial.folder)


def test_what_trial_json_lacks_is_named(tmp_path):
    trial = filled(tmp_path)
    info = json.loads((trial.folder / "trial.json").read_text())
    del info["spec"], info["status"]
    files.write_json(trial.folder / "trial.json", info)
    with pytest.raises(UserError, match="it lacks status, spec"):
        read_trial(trial.folder)


def test_a_folder_of_another_spec_is_refused(tmp_path):
    trial = filled(tmp_path)
    other = trial_spec(**{**SPEC.model_dump(mode="json"), "rounds": 5})
    edited(trial, spec=other.model_dump(mode="json"))
    with pytest.raises(UserError, match=r"another spec: spec and identity .* differ; move"):
        read_trial(trial.folder)
    neutral_before = trial_spec(**{**SPEC.model_dump(mode="json"), "batch_size": 5})
    edited(trial, spec=neutral_before.model_dump(mode="json"))
    made = neutral_before.trial_id
    with pytest.raises(UserError, match=rf"another spec: .* make trial {made}; move"):
        trial.open(ExecutionSpec(out=tmp_path))


def test_an_identity_of_another_trial_is_refused(tmp_path):
    trial = filled(tmp_path)
    other = trial_spec(**{**SPEC.model_dump(mode="json"), "rounds": 5})
    edited(trial, identity=other.identity)
    with pytest.raises(UserError, match=rf"another spec: .* make trial {other.trial_id}; move"):
        read_trial(trial.folder)


def test_settings_that_are_not_valid_any_more_are_told(tmp_path):
    trial = filled(tmp_path)
    edited(trial, spec={**SPEC.model_dump(mode="json"), "model": "cnnn"})
    with pytest.raises(UserError, match=r"not valid .unknown model 'cnnn'. Did you mean 'cnn'"):
        trial.open(ExecutionSpec(out=tmp_path))
    edited(trial, spec=[1])
    with pytest.raises(UserError, match=r"damaged .spec is \[1\]"):
        read_trial(trial.folder)


@pytest.mark.parametrize("layout", [LAYOUT_VERSION + 1, 99])
def test_results_of_a_newer_layout_are_refused(tmp_path, layout):
    trial = filled(tmp_path)
    edited(trial, schema_version=layout)
    words = f"newer version .* layout {layout}, .* up to {LAYOUT_VERSION}; update fedgps-ray"
    with pytest.raises(UserError, match=words):
        read_trial(trial.folder)


@pytest.mark.parametrize("layout", [0, "two", None, 1.5])
def test_a_layout_that_never_was_is_damage(tmp_path, layout):
    trial = filled(tmp_path)
    edited(trial, schema_version=layout)
    with pytest.raises(UserError, match=f"damaged .schema_version is {layout!r}"):
        read_trial(trial.folder)


@pytest.mark.parametrize("name", ["copy of it", "0123456789AB", "0123456789abc", "..."])
def test_a_folder_that_is_not_named_after_a_trial_is_refused(tmp_path, name):
    folder = filled(tmp_path).folder.rename(tmp_path / "trials" / name)
    with pytest.raises(UserError, match="named after its id, 12 digits from 0 to f"):
        read_trial(folder)


def test_settings_that_did_not_exist_yet_have_their_neutral_value(tmp_path):
    trial = filled(tmp_path)
    old = SPEC.model_dump(mode="json")
    del old["evaluate_every"], old["method"]["weighting"], old["optimizer"]["lr_decay"]
    edited(trial, spec=old)
    assert spec_of(trial.folder, read_trial(trial.folder)) == SPEC


def test_trials_of_a_folder(tmp_path):
    first, second = filled(tmp_path), filled(tmp_path, trial_spec(method="fedgps"), rounds=0)
    (tmp_path / "trials" / "empty").mkdir()
    shutil.copytree(first.folder, first.folder.with_name(f".{first.folder.name}.copy"))
    assert trial_folders(tmp_path) == sorted([first.folder, second.folder])
    assert trial_folders(first.folder) == [first.folder]
    assert trial_folders(tmp_path / "nothing") == []


def test_a_failing_flush_leaves_the_rows_of_before(tmp_path):
    trial = filled(tmp_path)
    with pytest.raises(ValueError, match="high"):
        trial.add(row(4, loss="high"), client_rows(4))
    trial.flush()
    assert pq.read_table(trial.folder / "rounds.parquet").num_rows == 3
    kept = ["clients.parquet", "partition.parquet", "rounds.parquet", "trial.json"]
    assert sorted(path.name for path in trial.folder.iterdir()) == kept
