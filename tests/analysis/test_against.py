"""Our results beside the paper's."""

import pytest

from fedgps_ray.analysis import against, load, metrics, published
from fedgps_ray.results.store import TrialStore
from fedgps_ray.results.summary import summary
from fedgps_ray.spec import ExecutionSpec, trial_spec

PAPER = {"dataset": "cifar10", "model": "resnet18", "rounds": 500}
NO_COST = dict.fromkeys(["bytes_up", "bytes_down", "gradient_evaluations"], 0)
NO_TIME = dict.fromkeys(["train_seconds", "evaluate_seconds"], 0.0)


def add(folder, accuracy, status="finished", **values):
    """Leave a trial of the paper's main setting, or one that differs from it."""
    store = TrialStore(folder, trial_spec(**{**PAPER, **values}))
    store.open(ExecutionSpec(out=folder))
    row = {"round": 1, "accuracy": accuracy / 100, "weights_sha256": "x", **NO_COST, **NO_TIME}
    store.add(row, [])
    store.flush()
    store.note(status=status, summary=summary(store.rows))


def compared(folder):
    rows = against.compare(metrics.runs(load.trials(folder), load.rounds(folder)))
    return rows.set_index("label")


def test_means_over_the_same_cells(tmp_path):
    add(tmp_path, 90.0, method="fedgps", scenario=1)  # printed 90.31
    add(tmp_path, 86.0, method="fedgps", scenario=3)  # printed 87.78
    row = compared(tmp_path).loc["FedGPS"]
    assert row["cells"] == 2
    assert row["ours"] == pytest.approx(88.0)
    assert row["published"] == pytest.approx((90.31 + 87.78) / 2)
    assert row["difference"] == pytest.approx(88.0 - 89.045)
    assert row["published_std"] == pytest.approx((90.31 - 87.78) / 2**0.5)  # 1.789
    assert row["within"] == "within"
    assert row["differs"] == ""


def test_outside_is_more_than_two_printed_deviations(tmp_path):
    add(tmp_path, 86.0, method="fedgps", scenario=1)
    add(tmp_path, 84.8, method="fedgps", scenario=3)  # mean 85.4: 3.645 off, 2 * 1.789 allowed
    row = compared(tmp_path).loc["FedGPS"]
    assert (row["cells"], row["within"]) == (2, "outside")


@pytest.mark.parametrize(("accuracy", "flag"), [(66.0, "within"), (65.0, "outside")])
def test_one_cell_is_held_against_the_range_of_the_setting(tmp_path, accuracy, flag):
    add(tmp_path, accuracy, method="fedavg")  # printed from 65.86 to 84.21
    row = compared(tmp_path).loc["FedAvg"]
    assert (row["cells"], row["within"]) == (1, flag)
    assert row["difference"] == pytest.approx(accuracy - 84.21)


def test_of_one_printed_value_nothing_can_be_said(tmp_path):
    add(tmp_path, 60.0, method="fedavg", clients=500, sampling_rate=0.1)
    row = compared(tmp_path).loc["FedAvg"]
    assert (row["cells"], row["within"]) == (1, "")
    assert row["difference"] == pytest.approx(row["ours"] - row["published"])


def test_the_main_table_counts_where_a_run_is_printed_twice(tmp_path):
    add(tmp_path, 80.0, method="fedlesam", scenario=2)
    assert compared(tmp_path).loc["FedLESAM", "published"] == 85.52  # 84.88 in the seed table


def test_seeds_are_compared_with_seeds(tmp_path):
    add(tmp_path, 84.0, method="fedavg", seed=1)
    runs = published.runs("CIFAR10_10_5_1_random").set_index(["method", "scenario", "seed"])
    row = compared(tmp_path).loc["FedAvg"]
    assert (row["cells"], row["published"]) == (1, runs.loc[("fedavg", 1, 1), "accuracy"])


def test_another_setting_names_what_differs_from_the_nearest(tmp_path):
    add(tmp_path, 90.0, method="fedavg", dataset="digits", model="cnn", rounds=30)
    row = compared(tmp_path).loc["FedAvg"]
    assert row["differs"] == (
        "dataset digits instead of cifar10; model cnn instead of resnet18; rounds 30 instead of 500"
    )
    assert (row["cells"], row["within"]) == (0, "")
    assert row[["difference"]].isna().all()


def test_the_nearest_setting_is_the_one_with_fewest_differences(tmp_path):
    add(tmp_path, 50.0, method="fedavg", clients=100, sampling_rate=0.2, rounds=400)
    differs = compared(tmp_path).loc["FedAvg", "differs"]
    assert differs == "rounds 400 instead of 500"


def test_other_hyperparameters_are_another_setting(tmp_path):
    add(tmp_path, 80.0, method={"name": "fedprox", "mu": 0.5}, optimizer={"lr": 0.02})
    row = compared(tmp_path).loc["FedProx"]
    assert row["differs"] == "lr 0.02 instead of 0.01; mu 0.5 instead of 0.125"
    assert row["within"] == ""


def test_our_defaults_are_the_papers_hyperparameters(tmp_path):
    for method in published.hyperparameters():
        add(tmp_path, 70.0, method=method)
    rows = compared(tmp_path)
    assert set(rows["differs"]) == {""}
    assert set(rows["cells"]) == {1}


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"method": "fedavg", "scenario": 9}, "no scenario and seed in common"),
        ({"method": "fedavg", "status": "diverged"}, "no run of ours has a result"),
        ({"method": "centralized"}, "the paper has no Centralized"),
        (
            {"method": "feddisco", "clients": 100, "sampling_rate": 0.1},
            "the paper prints no result",
        ),
    ],
)
def test_why_there_is_nothing_to_compare(tmp_path, values, reason):
    add(tmp_path, 70.0, **values)
    row = compared(tmp_path).iloc[0]
    assert reason in row["differs"]
    assert (row["cells"], row["within"]) == (0, "")


def test_a_failed_run_leaves_the_others_to_compare(tmp_path):
    add(tmp_path, 80.0, method="fedavg")
    add(tmp_path, 10.0, method="fedavg", scenario=2, status="diverged")
    row = compared(tmp_path).loc["FedAvg"]
    assert (row["cells"], row["ours"]) == (1, 80)


def test_the_table(tmp_path):
    add(tmp_path, 90.0, method="fedgps", scenario=1)
    add(tmp_path, 86.0, method="fedgps", scenario=3)
    add(tmp_path, 80.0, method="fedavg", optimizer={"lr": 0.5})
    add(tmp_path, 10.0, method="vhl", status="running")
    table = against.against_paper(load.trials(tmp_path), load.rounds(tmp_path))
    texts = {row[0].text: [cell.text for cell in row[1:]] for row in table.rows}
    assert texts["FedGPS"] == ["88.00 ± 2.83", "89.05 ± 1.79", "-1.05", "2", "within", ""]
    assert texts["FedAvg"][2:] == ["—", "0", "—", "lr 0.5 instead of 0.01"]
    assert texts["VHL"][0] == "—"
    assert texts["VHL"][-1] == "no run of ours has a result"
    assert table.notes[0] == against.WITHIN


def test_rows_of_several_settings_name_theirs(tmp_path):
    add(tmp_path, 90.0, method="fedavg")
    add(tmp_path, 90.0, method="fedavg", clients=100)
    table = against.against_paper(load.trials(tmp_path), load.rounds(tmp_path))
    names = sorted(row[0].text for row in table.rows)
    assert names[0].startswith("FedAvg, cifar10, resnet18, dirichlet, alpha 0.1, 10 clients")
    assert "100 clients" in names[1]
