"""Results folders to frames."""

import json

import pandas as pd
import pytest

from analysis.load import rounds, trials
from fedgps_ray.errors import UserError
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
    assert trials(tmp_path)["dataset"].tolist() == ["own.npz"]


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


@pytest.mark.parametrize(("read", "name"), [(trials, "trial.json"), (rounds, "rounds.parquet")])
@pytest.mark.parametrize("folder", ["", "gone", "file"])
def test_nothing_there(tmp_path, read, name, folder):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=rf"no trials in .*{folder}: expected trials/\*/{name}"):
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
