"""Results folders to frames."""

import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import save_file

from fedgps_ray.analysis.load import clients, partitions, rounds, trials
from fedgps_ray.errors import UserError
from fedgps_ray.results import files, schema, tables
from fedgps_ray.results.store import TrialStore
from fedgps_ray.results.summary import summary
from fedgps_ray.spec import ExecutionSpec, trial_spec

SHA = "0123456789abcdef" * 4


def row(number, accuracy):
    return {
        "round": number,
        "accuracy": accuracy,
        "weights_sha256": f"hash {number}",
        "bytes_up": 10,
        "bytes_down": 20,
        "gradient_evaluations": 3,
        "train_seconds": 1.5,
        "evaluate_seconds": 0.5,
        "metrics": {"drift": 0.5},
    }


def add(folder, accuracies, status="finished", **values):
    """Leave a trial with these accuracies, as a run would."""
    spec = trial_spec(**values)
    trial = TrialStore(folder, spec)
    trial.open(ExecutionSpec(out=folder))
    if status != "new":
        for number, accuracy in enumerate(accuracies, start=1):
            trial.add(row(number, accuracy), [])
        trial.flush()
        trial.note(status=status, summary=summary(trial.rows))
    return trial


def test_one_row_a_trial(tmp_path):
    first = add(tmp_path, [0.2, 0.6], method="fedavg", clients=7, scenario=2, seed=3, rounds=2)
    second = add(tmp_path, [0.5], method="fedgps", status="interrupted", model="mlp")
    frame = trials(tmp_path).set_index("trial_id")
    assert set(frame.index) == {first.folder.name, second.folder.name}
    one = frame.loc[first.folder.name]
    assert one[["method", "status", "dataset", "model"]].tolist() == [
        "fedavg",
        "finished",
        "digits",
        "cnn",
    ]
    assert one[["clients", "scenario", "seed", "rounds"]].tolist() == [7, 2, 3, 2]
    assert one[["best_accuracy", "best_round", "last_accuracy"]].tolist() == [0.6, 2, 0.6]
    assert one[["bytes_up", "train_seconds"]].tolist() == [20, 3.0]
    other = frame.loc[second.folder.name]
    assert (other["status"], other["rounds_done"], other["model"]) == ("interrupted", 1, "mlp")


def test_an_own_file_is_named(tmp_path):
    add(tmp_path, [0.5], dataset={"name": "npz", "file": "own.npz", "sha256": SHA})
    assert trials(tmp_path)["dataset"].tolist() == rounds(tmp_path)["dataset"].tolist() == ["own"]


def test_a_trial_that_has_not_begun_is_empty_but_there(tmp_path):
    add(tmp_path, [], status="new")
    frame = trials(tmp_path)
    assert frame["status"].tolist() == ["new"]
    assert frame["best_accuracy"].isna().all()
    assert frame["rounds_done"].tolist() == [0]


def test_one_trials_own_folder(tmp_path):
    folder = add(tmp_path, [0.2, 0.6]).folder
    assert trials(folder)["best_accuracy"].tolist() == [0.6]
    assert rounds(folder)["accuracy"].tolist() == [0.2, 0.6]


def test_one_row_a_round_with_the_settings_in_each(tmp_path):
    add(tmp_path, [0.2, 0.6], method="fedavg", partition="iid")
    add(tmp_path, [0.5, 0.4], method={"name": "fedgps", "rho": 0.1}, partition={"alpha": 0.3})
    add(tmp_path, [], status="new", method="scaffold")
    frame = rounds(tmp_path)
    assert len(frame) == 4
    means = frame.groupby("method", observed=True)["accuracy"].mean()
    assert means.to_dict() == pytest.approx({"fedavg": 0.4, "fedgps": 0.45})
    gps = frame[frame["method"] == "fedgps"]
    assert gps["alpha"].tolist() == [0.3, 0.3]
    assert [json.loads(options) for options in gps["method_options"]] == [{"rho": 0.1}] * 2
    assert frame[frame["method"] == "fedavg"]["alpha"].isna().all()
    assert isinstance(frame["method"].dtype, pd.CategoricalDtype)


@pytest.mark.parametrize("read", [trials, rounds, clients, partitions])
@pytest.mark.parametrize("folder", ["", "gone", "file"])
def test_nothing_there(tmp_path, read, folder):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=rf"no trials in .*{folder}: expected trials/\*/trial.json"):
        read(tmp_path / folder)


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"spec": {"method": 3}}'])
def test_a_damaged_trial_json_is_named(tmp_path, content):
    trial = add(tmp_path, [0.5])
    (trial.folder / "trial.json").write_text(content)
    with pytest.raises(UserError, match=rf"{trial.folder.name}/trial.json is damaged .*; move"):
        trials(tmp_path)


def test_damaged_rows_are_named(tmp_path):
    trial = add(tmp_path, [0.5])
    path = trial.folder / "rounds.parquet"
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(UserError, match=rf"{trial.folder.name}/rounds.parquet is damaged"):
        rounds(tmp_path)


def test_what_is_damaged_is_left_out_and_told(tmp_path):
    whole = add(tmp_path, [0.5], seed=1)
    damaged = add(tmp_path, [0.5], seed=2)
    (damaged.folder / "trial.json").write_text("{")
    (damaged.folder / "rounds.parquet").write_bytes(b"PAR1")
    for read in (trials, rounds):
        frame = read(tmp_path)
        assert frame["trial_id"].tolist() == [whole.folder.name]
        (problem,) = frame.attrs["problems"]
        assert f"{damaged.folder.name}/trial.json is damaged" in problem


def test_nothing_wrong_is_no_problem(tmp_path):
    add(tmp_path, [0.5])
    assert trials(tmp_path).attrs["problems"] == rounds(tmp_path).attrs["problems"] == []


def test_a_running_trial_without_rows_is_there_without_rows(tmp_path):
    trial = add(tmp_path, [], status="new")
    trial.note(status="running")
    assert trials(tmp_path)["status"].tolist() == ["running"]
    frame = rounds(tmp_path)
    assert frame.empty
    assert {"trial_id", "method", "round", "accuracy"} <= set(frame.columns)


def test_the_settings_of_a_trial_are_those_of_its_rows(tmp_path):
    trial = add(
        tmp_path, [0.5], method={"name": "fedgps", "rho": 0.3}, partition={"alpha": 0.2}, seed=4
    )
    trial.write_partition(np.array([[1, 2], [3, 4]]))
    one = trials(tmp_path).iloc[0]
    row = rounds(tmp_path).iloc[0]
    for name, _ in schema.SPEC:
        assert one[name] == row[name] or (pd.isna(one[name]) and pd.isna(row[name])), name
    assert json.loads(one["method_options"]) == {"rho": 0.3}


def test_a_trial_tells_how_it_ended_and_what_it_ran_with(tmp_path):
    trial = add(tmp_path, [0.5], status="failed", method={"name": "fedprox", "mu": 0.5})
    trial.write_partition(np.ones((2, 2), np.int64))
    trial.note(error="client 3 failed", partition_sha256=SHA)
    one = trials(tmp_path).iloc[0]
    assert (one["error"], one["diverged"], one["partition_sha256"]) == (
        "client 3 failed",
        None,
        SHA,
    )
    assert set(json.loads(one["versions"])) == {"fedgps-ray", "torch", "numpy", "ray"}
    variant = json.loads(one["variant"])
    assert (variant["method.mu"], variant["optimizer.lr"], variant["threads"]) == (0.5, 0.01, 1)
    assert not {"method.name", "seed", "clients", "partition.alpha"} & set(variant)


def test_the_size_of_a_model_is_that_of_its_tensors(tmp_path):
    trial = add(tmp_path, [0.5])
    save_file(
        {"a": np.zeros((3, 5), np.float32), "b": np.zeros(7, np.float32)},
        trial.folder / "model.safetensors",
    )
    assert trials(tmp_path)["model_bytes"].tolist() == [4 * (15 + 7)]


def test_clients_and_partitions(tmp_path):
    trial = add(tmp_path, [], status="new")
    worked = {"client": 3, "samples": 10, "loss": 0.5, "bytes_up": 1}
    trial.add(row(1, 0.5), [{"round": 1, **worked}, {"round": 1, **worked, "client": 4}])
    trial.flush()
    trial.write_partition(np.array([[1, 2], [3, 4]]))
    assert clients(tmp_path)["client"].tolist() == [3, 4]
    frame = partitions(tmp_path)
    assert frame[["client", "class", "count"]].to_numpy().tolist() == [
        [0, 0, 1],
        [0, 1, 2],
        [1, 0, 3],
        [1, 1, 4],
    ]
    assert set(frame["trial_id"]) == {trial.folder.name}


def test_several_folders_and_a_folder_of_experiments(tmp_path):
    add(tmp_path / "a", [0.5], seed=1)
    add(tmp_path / "b", [0.6], seed=2)
    for frame in (trials(tmp_path / "a", tmp_path / "b"), trials(tmp_path)):
        assert sorted(frame["seed"]) == [1, 2]
    assert len(rounds(tmp_path / "a", tmp_path / "b")) == 2


@pytest.mark.parametrize("order", [["a", "b"], ["b", "a"]])
@pytest.mark.parametrize("status", ["interrupted", "new"])
def test_a_trial_in_two_folders_counts_once_where_it_went_further(tmp_path, order, status):
    add(tmp_path / "a", [0.2], status=status)
    add(tmp_path / "b", [0.2, 0.6], status="finished")
    folders = [tmp_path / name for name in order]
    assert trials(*folders)["status"].tolist() == ["finished"]
    assert rounds(*folders)["accuracy"].tolist() == [0.2, 0.6]


def test_of_two_copies_the_readable_one_counts(tmp_path):
    damaged = add(tmp_path / "a", [0.2])
    add(tmp_path / "b", [0.2])
    (damaged.folder / "trial.json").write_text("{")
    assert trials(tmp_path / "a", tmp_path / "b")["status"].tolist() == ["finished"]


def test_trials_with_other_columns_are_one_frame(tmp_path):
    for seed in (1, 2, 3):
        path = add(tmp_path, [0.2, 0.6], "interrupted", seed=seed).folder / "rounds.parquet"
        table = pq.read_table(path)
        if seed == 1:
            table = table.drop_columns(["train_loss"])
        if seed == 2:
            table = table.append_column("energy", pa.array([1.5, 2.5]))
        tables.write(path, table)
    frame = rounds(tmp_path).sort_values(["seed", "round"])
    assert frame["energy"].fillna(0).tolist() == [0, 0, 1.5, 2.5, 0, 0]
    assert frame["accuracy"].tolist() == [0.2, 0.6] * 3
    assert frame["train_loss"].isna().all()
    assert frame.attrs["problems"] == []


def test_a_setting_that_came_later_has_its_neutral_value(tmp_path):
    old = add(tmp_path, [0.5], method="fedprox", seed=1)
    add(tmp_path, [0.5], method="fedprox", seed=2)
    add(tmp_path, [0.5], method="fedavg", seed=3)
    info = json.loads((old.folder / "trial.json").read_text())
    del info["spec"]["method"]["mu"], info["spec"]["threads"]
    files.write_json(old.folder / "trial.json", info)
    frame = trials(tmp_path).set_index("seed")
    first, second, other = (json.loads(frame.loc[seed, "variant"]) for seed in (1, 2, 3))
    assert first == second
    assert "method.mu" not in other


def test_a_summary_overrides_no_setting(tmp_path):
    trial = add(tmp_path, [0.2], method="fedavg", rounds=1)
    path = trial.folder / "trial.json"
    info = json.loads(path.read_text())
    files.write_json(path, {**info, "summary": {**info["summary"], "seed": 9, "strange": 1}})
    frame = trials(tmp_path)
    assert frame["seed"].tolist() == [0]
    assert "strange" not in frame
