"""Accuracies, costs to target, speed-ups, means: by hand."""

import json

import pandas as pd
import pytest

from fedgps_ray.analysis import metrics
from fedgps_ray.errors import UserError
from fedgps_ray.methods import METHODS
from fedgps_ray.results import schema
from fedgps_ray.titles import TITLES

SETTINGS = {
    "dataset": "digits",
    "model": "cnn",
    "partition": "dirichlet",
    "alpha": 0.1,
    "classes_per_client": None,
    "clients": 10,
    "sampling_rate": 0.5,
    "rounds": 4,
    "local_epochs": 1,
    "batch_size": 64,
}


def trial(method, accuracies, status="finished", variant=None, **settings):
    """Return a trial's row and its rounds: 10 bytes up, 20 down, 3 gradients, 1.5 s a round."""
    settings = {"scenario": 1, "seed": 0, **SETTINGS, **settings}
    tested = [accuracy for accuracy in accuracies if accuracy is not None]
    name = f"{method} {settings['scenario']} {settings['seed']} {settings['clients']} {variant}"
    row = {
        "trial_id": name,
        "status": status,
        "method": method,
        "variant": json.dumps(variant or {}),
        "best_accuracy": max(tested, default=None),
        "last_accuracy": tested[-1] if tested else None,
        "last_ten_accuracy": sum(tested[-10:]) / len(tested[-10:]) if tested else None,
        **settings,
    }
    costs = {"bytes_up": 10, "bytes_down": 20, "gradient_evaluations": 3}
    costs |= {"train_seconds": 1.0, "aggregate_seconds": 0.5}
    rows = [
        {"trial_id": name, "round": number, "accuracy": accuracy, **costs}
        for number, accuracy in enumerate(accuracies, start=1)
    ]
    return row, rows


def runs(*trials, **how):
    rows = pd.DataFrame([row for _, rows in trials for row in rows])
    return metrics.runs(pd.DataFrame([row for row, _ in trials]), rows, **how)


AVG = trial("fedavg", [0.2, 0.575, 0.3, 0.571])
FAST = trial("fedgps", [0.57, 0.6, 0.7, 0.65])
SLOW = trial("scaffold", [0.1, 0.2, 0.3, 0.56])


def test_accuracies_are_in_percent():
    frame = runs(AVG)
    assert frame["accuracy"].tolist() == [57.5]
    assert frame["last"].tolist() == [57.1]
    assert frame["last_ten"].tolist() == pytest.approx([41.15])  # (20 + 57.5 + 30 + 57.1) / 4


def test_cost_to_fedavgs_best_rounded_down():
    frame = runs(AVG, FAST, SLOW)
    assert frame["target"].tolist() == [57.0] * 3
    assert frame["cost"].tolist()[:2] == [2, 1]
    assert frame["speedup"].tolist()[:2] == [1.0, 2.0]
    assert frame.loc[2, ["cost", "speedup"]].isna().all()  # 56 % is never enough
    assert frame["spent"].tolist() == [4, 4, 4]


def test_a_whole_percent_is_not_lost_in_the_last_bit():
    frame = runs(trial("fedavg", [0.57]), trial("fedgps", [0.57]))  # 100 * 0.57 = 56.99999999999999
    assert frame["target"].tolist() == [57.0, 57.0]
    assert frame["cost"].tolist() == [1, 1]


def test_cost_to_fedavgs_exact_best():
    frame = runs(AVG, FAST, target="exact")
    assert frame["target"].tolist() == [57.5, 57.5]
    assert frame["cost"].tolist() == [2, 2]


def test_cost_to_a_given_accuracy():
    frame = runs(AVG, FAST, SLOW, target=30)
    assert frame["cost"].tolist() == [2, 1, 3]
    assert frame["speedup"].tolist() == [1, 2, pytest.approx(2 / 3)]


@pytest.mark.parametrize(
    ("cost", "at_target", "in_all"),
    [
        ("rounds", 2, 4),
        ("bytes", 60, 120),
        ("bytes_up", 20, 40),
        ("bytes_down", 40, 80),
        ("gradient_evaluations", 6, 12),
        ("seconds", 3.0, 6.0),
    ],
)
def test_what_is_counted_as_cost(cost, at_target, in_all):
    frame = runs(AVG, cost=cost)
    assert frame[["cost_of", "cost", "spent"]].iloc[0].tolist() == [cost, at_target, in_all]


def test_rounds_that_were_not_tested_cost_but_do_not_reach():
    frame = runs(trial("fedavg", [None, 0.3, None, 0.5]), cost="bytes_up")
    assert frame[["accuracy", "target", "cost"]].iloc[0].tolist() == [50, 50, 40]


def test_the_target_is_of_the_same_scenario_seed_and_setting():
    others = [
        trial("fedavg", [0.9, 0.9], scenario=2),
        trial("fedavg", [0.8, 0.8], seed=1),
        trial("fedavg", [0.7, 0.7], clients=100),
        trial("fedgps", [0.1, 0.75], seed=1),
    ]
    frame = runs(AVG, *others)
    assert frame["target"].tolist() == [57, 90, 80, 70, 80]
    assert frame["cost"].isna().tolist() == [False, False, False, False, True]


@pytest.mark.parametrize("status", ["diverged", "failed", "running", "interrupted"])
def test_only_finished_trials_have_results(status):
    frame = runs(AVG, trial("fedgps", [0.9, 0.95], status=status))
    assert frame.loc[1, ["accuracy", "last", "last_ten", "cost", "speedup"]].isna().all()
    assert frame.loc[1, "status"] == status


def test_without_a_finished_fedavg_there_is_no_target():
    frame = runs(trial("fedavg", [0.5], status="diverged"), FAST)
    assert frame[["target", "cost", "speedup"]].isna().all(axis=None)
    assert frame["accuracy"].tolist()[1] == 70


def test_a_trial_whose_rounds_cannot_be_read_has_no_cost():
    row, _ = FAST
    frame = runs(AVG, (row, []))
    assert frame.loc[1, "accuracy"] == 70
    assert frame.loc[1, ["target", "cost", "spent", "speedup"]].isna().all()


def test_trials_without_any_row():
    empty = pd.DataFrame(columns=schema.ROUNDS.names).astype({"accuracy": float})
    row, _ = trial("fedavg", [], status="running")
    frame = metrics.runs(pd.DataFrame([row]), empty)
    assert frame[["accuracy", "target", "cost"]].isna().all(axis=None)


def test_of_several_fedavgs_the_most_accurate_is_the_reference():
    one = trial("fedavg", [0.5, 0.5], variant={"optimizer.lr": 0.1})
    two = trial("fedavg", [0.5, 0.62], variant={"optimizer.lr": 0.2})
    frame = runs(one, two, FAST)
    assert frame["target"].tolist() == [62, 62, 62]
    assert frame["speedup"].tolist()[1:] == [1, pytest.approx(2 / 3)]


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"target": "ceil"}, "target 'ceil': must be floor, exact or a number"),
        ({"cost": "byte"}, "unknown cost 'byte'. Did you mean 'bytes'?"),
    ],
)
def test_what_is_not_known_is_told(how, message):
    with pytest.raises(UserError, match=message.replace("?", r"\?")):
        runs(AVG, **how)


def test_problems_of_both_frames_are_passed_on():
    trials, rounds = pd.DataFrame([AVG[0]]), pd.DataFrame(AVG[1])
    trials.attrs["problems"], rounds.attrs["problems"] = ["one"], ["two"]
    assert metrics.runs(trials, rounds).attrs["problems"] == ["one", "two"]


# --- names ----------------------------------------------------------------------------------------


def test_variants_are_told_apart_by_what_differs():
    variants = [
        ("fedgps", {"method.rho": 0.5, "method.goal": True, "optimizer.lr": 0.01}),
        ("fedgps", {"method.rho": 0.3, "method.goal": True, "optimizer.lr": 0.01}),
        ("fedgps", {"method.rho": 0.3, "method.goal": False, "optimizer.lr": 0.01}),
        ("fedavg", {"optimizer.lr": 0.1}),
    ]
    rows = [{"method": m, "variant": json.dumps(v), **SETTINGS} for m, v in variants]
    assert metrics.labels(pd.DataFrame(rows)).tolist() == [
        "FedGPS (goal=true, rho=0.5)",
        "FedGPS (goal=true, rho=0.3)",
        "FedGPS (goal=false, rho=0.3)",
        "FedAvg",
    ]


def test_what_differs_between_settings_is_not_a_variant():
    rows = [
        {"variant": '{"partition.mode": "feasible", "optimizer.lr": 0.01}', **SETTINGS},
        {"variant": '{"partition.extra": 2, "optimizer.lr": 0.1}', **SETTINGS, "partition": "iid"},
    ]
    frame = pd.DataFrame(rows).assign(method="fedavg")
    assert metrics.labels(frame).tolist() == ["FedAvg", "FedAvg"]
    assert metrics.labels(frame, within=[]).tolist() == [
        "FedAvg (lr=0.01, extra=null, mode=feasible)",
        "FedAvg (lr=0.1, extra=2, mode=null)",
    ]


def test_labels_are_in_the_papers_order_and_others_last():
    methods = ["own", "fedgps", "fedavg", "fedgps", "another"]
    labels = ["own", "fedgps (rho=1)", "fedavg", "fedgps (rho=0)", "another"]
    frame = pd.DataFrame({"method": methods, "label": labels})
    ordered = ["fedavg", "fedgps (rho=0)", "fedgps (rho=1)", "another", "own"]
    assert metrics.order(frame) == ordered


def test_the_published_methods_come_in_the_order_of_the_registry():
    known = [name for name in METHODS if name in TITLES]
    assert metrics.ORDER[0] == known[-1] == "centralized"
    assert [*metrics.ORDER[1:]] == known[:-1]


# --- settings -------------------------------------------------------------------------------------


def test_a_setting_is_all_but_method_scenario_and_seed():
    names = {name for name, _ in schema.SPEC}
    others = {"trial_id", "method", "method_options", "lr", "weighting", "client_momentum"}
    assert set(metrics.SETTING) == names - others - {"scenario", "seed"}


def test_a_setting_in_words():
    assert metrics.describe(SETTINGS) == (
        "digits, cnn, dirichlet, alpha 0.1, 10 clients, 50% of clients per round, 4 rounds,"
        " 1 local epoch, batch size 64"
    )
    by_class = {"partition": "classes", "alpha": None, "classes_per_client": 2, "local_epochs": 11}
    text = metrics.describe({**SETTINGS, **by_class})
    assert "classes, 2 classes per client, 10 clients" in text
    assert "11 local epochs" in text


def test_runs_are_split_by_setting_in_their_order():
    frame = runs(trial("fedavg", [0.5], clients=100), AVG, FAST)
    found = [(text, len(part)) for text, part in metrics.settings(frame)]
    assert [count for _, count in found] == [1, 2]
    assert "100 clients" in found[0][0]


# --- mean and deviation ---------------------------------------------------------------------------

GRID = [
    trial("fedavg", [best], scenario=scenario, seed=seed)
    for (scenario, seed), best in {(1, 0): 0.1, (1, 1): 0.3, (2, 0): 0.4, (2, 1): 0.8}.items()
]


def test_mean_over_scenarios_averages_seeds_first():
    mean = metrics.mean_std(runs(*GRID))  # 20 and 60: mean 40, std sqrt(2 * 20^2) = 28.28
    assert mean[["mean", "std", "n"]].iloc[0].tolist() == [40, pytest.approx(28.2842712), 2]


def test_mean_over_seeds_is_per_scenario():
    mean = metrics.mean_std(runs(*GRID), over="seeds")
    assert mean["mean"].tolist() == [20, 60]
    assert mean["std"].tolist() == pytest.approx([14.1421356, 28.2842712])


def test_mean_over_all_runs():
    mean = metrics.mean_std(runs(*GRID), over="all")  # squares 900 + 100 + 0 + 1600 over 3
    assert mean[["mean", "std", "n"]].iloc[0].tolist() == [40, pytest.approx(29.4392029), 4]


@pytest.mark.parametrize(("status", "worst"), [("failed", "failed"), ("running", "running")])
def test_a_seed_without_result_leaves_its_scenario_without_one(status, worst):
    frame = runs(*GRID[:3], trial("fedavg", [0.9], status=status, scenario=2, seed=1))
    averages = metrics.average_seeds(frame)
    assert averages["accuracy"].tolist()[0] == 20
    assert averages["accuracy"].isna().tolist() == [False, True]
    assert averages["status"].tolist() == ["finished", worst]
    assert metrics.mean_std(frame)["n"].tolist() == [1]


def test_a_seed_that_only_others_have_leaves_a_scenario_without_average():
    frame = runs(*GRID, trial("fedgps", [0.9]), trial("fedgps", [0.9], seed=1))
    frame = frame[~((frame["method"] == "fedgps") & (frame["seed"] == 1))]
    averages = metrics.average_seeds(frame).set_index(["label", "scenario"])["accuracy"]
    assert averages.loc["FedAvg"].tolist() == [20, 60]
    assert averages.loc["FedGPS"].isna().tolist() == [True]


def test_of_many_differences_a_label_names_only_what_is_special():
    neutral = {f"method.{name}": 0 for name in "abcd"} | {"optimizer.lr": 0.1}
    changed = [{}, {"method.a": 1}, {"method.b": 1, "method.c": 1}, {"method.d": 1}, {"lr": 0.3}]
    rows = []
    for each in changed:
        lr = {"optimizer.lr": each["lr"]} if "lr" in each else {}
        own = {name: value for name, value in each.items() if name != "lr"}
        options = {name.removeprefix("method."): value for name, value in own.items()}
        rows.append(
            {
                "method": "fedgps",
                "variant": json.dumps({**neutral, **own, **lr}),
                "method_options": json.dumps(options),
            }
        )
    made = metrics.labels(pd.DataFrame(rows), within=[])
    assert made.tolist() == [
        "FedGPS",
        "FedGPS (a=1)",
        "FedGPS (b=1, c=1)",
        "FedGPS (d=1)",
        "FedGPS (lr=0.3)",
    ]
