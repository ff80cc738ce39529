"""Frames to tables, by hand."""

import json

import pandas as pd
import pytest

from fedgps_ray.analysis import metrics
from fedgps_ray.analysis.tables import (
    Cell,
    Column,
    Head,
    assemble,
    by_scenario,
    by_seed,
    by_setting,
    communication,
    hyperparameters,
    overview,
)
from fedgps_ray.errors import UserError

# --- tables of runs -------------------------------------------------------------------------------

SETTING = {
    "dataset": "digits",
    "model": "cnn",
    "partition": "dirichlet",
    "alpha": 0.1,
    "classes_per_client": None,
    "clients": 10,
    "sampling_rate": 0.5,
    "rounds": 100,
    "local_epochs": 1,
    "batch_size": 64,
}


def run(method, accuracy=None, cost=None, status="finished", **other):
    row = {"method": method, "label": method, "scenario": 1, "seed": 0, "target": None}
    row |= {"accuracy": accuracy, "cost": cost, "status": status, "cost_of": "rounds"}
    return {**row, "spent": 100.0, **SETTING, **other}


def frame(*rows):
    made = pd.DataFrame(rows)
    made = made.astype(dict.fromkeys(["accuracy", "cost", "target", "spent"], float))
    made["setting"] = metrics.setting_texts(made)
    return made.assign(speedup=metrics.speedups(made))


def texts(table):
    return [[cell.text for cell in row] for row in table.rows]


def marks(table):
    return [[cell.mark for cell in row[1:]] for row in table.rows]


MAIN = frame(
    run("fedgps", 90.0, 20, target=80),
    run("fedgps", 70.0, 40, scenario=2, target=60),
    run("fedavg", 80.5, 50, target=80),
    run("fedavg", 60.5, 60, scenario=2, target=60),
    run("scaffold", 79.0, None, target=80),
    run("scaffold", 65.0, 30, scenario=2, target=60),
)


def test_overview_is_over_scenarios_and_seeds():
    runs = MAIN.assign(last=MAIN["accuracy"] - 10, last_ten=MAIN["accuracy"] - 20)
    table = overview(runs)
    assert [head.text for head in table.header[-1]] == [
        "method",
        "best",
        "last",
        "mean of last ten",
    ]
    assert texts(table)[0] == ["fedavg", "70.50 ± 14.14", "60.50 ± 14.14", "50.50 ± 14.14"]
    assert [row[0] for row in marks(table)] == ["", "second", "best"]
    one = overview(runs[runs["scenario"] == 1])
    assert texts(one)[0] == ["fedavg", "80.50", "70.50", "60.50"]


def test_methods_by_scenarios():
    table = by_scenario(MAIN)
    assert table.title == metrics.describe(SETTING)
    assert table.header == (
        (
            Head(""),
            Head("scenario 1 (target 80%)", 3),
            Head("scenario 2 (target 60%)", 3),
            Head("all scenarios"),
        ),
        tuple(map(Head, ["method", *["ACC", "ROUND", "SpeedUp"] * 2, "mean ± std"])),
    )
    assert texts(table) == [  # mean 70.5, deviations of 10: std = sqrt(200) = 14.14
        ["fedavg", "80.50", "50", "1.0x", "60.50", "60", "1.0x", "70.50 ± 14.14"],
        ["scaffold", "79.00", ">100", "none", "65.00", "30", "2.0x", "72.00 ± 9.90"],
        ["fedgps", "90.00", "20", "2.5x", "70.00", "40", "1.5x", "80.00 ± 14.14"],
    ]
    assert table.notes == ()


def test_the_best_and_second_of_each_column_are_marked():
    assert marks(by_scenario(MAIN)) == [
        ["second", "second", "second", "", "", "", ""],
        ["", "", "", "second", "best", "best", "second"],
        ["best", "best", "best", "best", "second", "second", "best"],
    ]


def test_equal_in_print_is_equally_good():
    table = by_scenario(frame(run("a", 50.001), run("b", 50.004), run("c", 49.0)))
    assert [row[1].mark for row in table.rows] == ["best", "best", "second"]


def test_a_single_method_and_scenario_has_nothing_to_compare():
    table = by_scenario(frame(run("fedavg", 50.0)))
    assert texts(table) == [["fedavg", "50.00"]]
    assert marks(table) == [[""]]


def test_what_has_no_result_is_shown_as_what_it_is():
    table = by_scenario(
        frame(
            run("fedavg", 80.0, 50, target=80),
            run("fedavg", 60.0, 60, scenario=2, target=60),
            run("vhl", status="diverged", target=80),
            run("vhl", 61.0, 30, scenario=2, target=60),
            run("fedgps", status="running", target=80),
        )
    )
    assert texts(table) == [
        ["fedavg", "80.00", "50", "1.0x", "60.00", "60", "1.0x", "70.00 ± 14.14"],
        ["vhl", "-", "-", "-", "61.00", "30", "2.0x", "61.00 †"],
        ["fedgps", "…", "…", "…", "—", "—", "—", "…"],
    ]
    assert table.rows[1][-1].mark == "partial"
    assert table.rows[2][-1].mark == "missing"
    assert [note[0] for note in table.notes] == ["—", "-", "…", "†"]


def test_everything_diverged():
    table = by_scenario(
        frame(run("fedavg", status="diverged"), run("fedavg", status="failed", scenario=2))
    )
    assert texts(table) == [["fedavg", "-", "-", "-"]]
    assert table.notes == ("-: the run diverged or failed.",)


def test_seeds_are_averaged_within_a_scenario():
    rows = [
        run("fedavg", 80.0, 50, target=80),
        run("fedavg", 82.0, 30, seed=1, target=82),
        run("fedgps", 90.0, 25, target=80),
        run("fedgps", 81.0, None, seed=1, target=82),
    ]
    table = by_scenario(frame(*rows))
    assert table.header[0][1].text == "scenario 1 (target 80 to 82%)"
    assert texts(table) == [
        ["fedavg", "81.00 ± 1.41", "40", "1.0x"],
        ["fedgps", "85.50 ± 6.36", "25 (1 of 2)", "2.0x"],
    ]
    assert marks(table) == [["second", "", ""], ["best", "partial", "partial"]]
    assert "Cells are means over 2 seeds." in table.notes


def test_a_mean_without_all_seeds_is_told_and_not_compared():
    both = [run("fedavg", 50.0, scenario=s, seed=r) for s in (1, 2) for r in (0, 1)]
    rows = [run("vhl", 90.0), run("vhl", 80.0, scenario=2), run("vhl", 80.0, scenario=2, seed=1)]
    table = by_scenario(frame(*both, *rows))
    assert texts(table)[1] == ["vhl", "90.00 †", "80.00 ± 0.00", "80.00 †"]
    table = by_scenario(frame(*both, *rows[:2]))
    assert texts(table)[1] == ["vhl", "90.00 †", "80.00 †", "—"]


@pytest.mark.parametrize(
    ("cost", "amount", "head", "text"),
    [
        ("bytes", 1_550_000, "MB", "1.6"),
        ("gradient_evaluations", 1234, "gradients", "1234"),
        ("seconds", 2.25, "seconds", "2.2"),
    ],
)
def test_other_costs_in_their_units(cost, amount, head, text):
    table = by_scenario(frame(run("fedavg", 80.0, amount, target=80, cost_of=cost)))
    assert table.header[1][2].text == head
    assert texts(table)[0][2] == text


def test_one_table_shows_one_setting():
    with pytest.raises(UserError, match=r"one setting, got 2: .*10 clients.*; .*100 clients"):
        by_scenario(frame(run("fedavg", 1.0), run("fedavg", 1.0, clients=100)))


def test_methods_by_seeds():
    rows = [
        run("fedavg", value, scenario=scenario, seed=seed)
        for (scenario, seed), value in {(1, 0): 10, (1, 1): 30, (2, 0): 40, (2, 1): 80}.items()
    ]
    table = by_seed(frame(*rows))
    assert table.header[0] == (Head(""), Head("scenario 1", 3), Head("scenario 2", 3), Head("all"))
    assert [head.text for head in table.header[1]][:4] == [
        "method",
        "seed 0",
        "seed 1",
        "mean ± std",
    ]
    means = ["20.00 ± 14.14", "60.00 ± 28.28", "40.00 ± 29.44"]
    assert texts(table) == [
        ["fedavg", "10.00", "30.00", means[0], "40.00", "80.00", means[1], means[2]]
    ]


def test_methods_by_a_column_of_the_setting():
    rows = [
        run("fedavg", 50.0),
        run("fedavg", 60.0, scenario=2),
        run("fedgps", 70.0),
        run("fedgps", 72.0, scenario=2),
        run("fedavg", 40.0, clients=100, rounds=200),
    ]
    table = by_setting(frame(*rows), ["clients"])
    assert [head.text for head in table.header[0]] == ["method", "10 clients", "100 clients"]
    assert texts(table) == [
        ["fedavg", "55.00 ± 7.07", "40.00"],
        ["fedgps", "71.00 ± 1.41", "—"],
    ]
    assert table.notes[0] == (
        "All: digits, cnn, dirichlet, alpha 0.1, 50% of clients per round, 1 local epoch,"
        " batch size 64."
    )


def test_a_mean_over_fewer_runs_is_told_and_not_compared():
    rows = [run("fedavg", 50.0), run("fedavg", 60.0, scenario=2), run("fedgps", 70.0)]
    table = by_setting(frame(*rows), ["clients"])
    assert texts(table)[1] == ["fedgps", "70.00 †"]
    assert marks(table) == [[""], ["partial"]]


def test_several_columns_stand_above_one_another():
    rows = [run("fedavg", 1.0, clients=k, local_epochs=e) for k in (10, 100) for e in (1, 5)]
    table = by_setting(frame(*rows), ["clients", "local_epochs"])
    assert table.header == (
        (Head(""), Head("10 clients", 2), Head("100 clients", 2)),
        tuple(map(Head, ["method", *["1 local epoch", "5 local epochs"] * 2])),
    )


def test_a_column_with_and_without_a_value():
    rows = [run("fedavg", 1.0), run("fedavg", 2.0, alpha=None)]
    table = by_setting(frame(*rows), ["alpha"])
    assert [head.text for head in table.header[0]][1:] == ["alpha 0.1", "no alpha"]
    assert "alpha" not in table.notes[0]


def test_settings_are_not_mixed_in_a_cell():
    rows = [run("fedavg", 50.0), run("fedavg", 60.0, rounds=200)]
    with pytest.raises(UserError, match="the runs with clients = 10 also differ in rounds; add"):
        by_setting(frame(*rows), ["clients"])


def test_headings_join_only_under_the_same_heading():
    columns = [Column((top, "x", "y"), []) for top in ("a", "a", "b")]
    assert assemble("", [], columns).header == (
        (Head(""), Head("a", 2), Head("b")),
        (Head(""), Head("x", 2), Head("x")),
        (Head("method"), Head("y"), Head("y"), Head("y")),
    )


# --- communication and hyperparameters ------------------------------------------------------------


def trial(method, up, down, **other):
    row = {"method": method, "bytes_up": up, "bytes_down": down, "variant": "{}"}
    row |= {"rounds_done": 4, "model_bytes": 1_000_000, "trial_id": f"{method} {other}"}
    return {**SETTING, **row, **other}


def test_bytes_are_a_clients_share_of_a_round_in_models():
    rows = [  # 4 rounds of 5 clients: 20 shares
        trial("fedavg", 20_000_000, 20_000_000),
        trial("fedgps", 21_000_000, 35_000_000),
        trial("fedgps", 21_000_000, 37_000_000, seed=1),
        trial("vhl", 0, 0, rounds_done=0, model_bytes=None),
    ]
    table = communication(pd.DataFrame(rows), {"fedgps": ("M + Cd", "2M + Cd")})
    assert texts(table) == [
        ["FedAvg", "1.000", "1.000", "1.000", "unknown", "1.000", "1.000", "unknown"],
        ["FedGPS", "1.000", "1.050", "1.050", "M + Cd", "1.800", "1.800", "2M + Cd"],
    ]
    assert table.header[0] == (Head(""), Head(""), Head("up", 3), Head("down", 3))


def test_models_of_different_size_are_not_averaged():
    rows = [trial("fedavg", 20, 20), trial("fedavg", 40, 40, model="mlp", model_bytes=500_000)]
    table = communication(pd.DataFrame(rows), {})
    names = [row[0].text for row in table.rows]
    assert names == ["FedAvg, digits cnn", "FedAvg, digits mlp"]


def test_bytes_before_any_trial_has_ended():
    with pytest.raises(UserError, match="no trial has ended"):
        communication(pd.DataFrame([trial("fedavg", 0, 0, rounds_done=0)]), {})


def test_what_each_method_ran_with():
    avg = {"method.weighting": "samples", "optimizer.lr": 0.01, "optimizer.max_norm": None}
    gps = {"method.weighting": "uniform", "method.rho": 0.5, "method.goal": True}
    gps |= {"optimizer.lr": 0.02, "optimizer.max_norm": 10.0, "threads": 1}
    table = hyperparameters(
        pd.DataFrame(
            {
                "method": ["fedgps", "fedavg", "fedavg"],
                "variant": [json.dumps(gps), json.dumps(avg), json.dumps(avg)],
            }
        )
    )
    assert [head.text for head in table.header[0]] == [
        *("method", "lr", "max norm", "weighting", "of the method"),
    ]
    assert texts(table) == [
        ["FedAvg", "0.01", "none", "samples", "none"],
        ["FedGPS", "0.02", "10.0", "uniform", "rho 0.5, goal yes"],
    ]


def test_hyperparameters_of_all_settings_are_shown():
    variants = ['{"optimizer.lr": 0.1, "threads": 1}', '{"optimizer.lr": 0.2, "threads": 2}']
    table = hyperparameters(pd.DataFrame({"method": "fedavg", "variant": variants}))
    assert [row[0].text for row in table.rows] == ["FedAvg (lr=0.1)", "FedAvg (lr=0.2)"]


def test_a_cell_without_a_number_is_never_best():
    cells = [Cell(">100"), Cell("5", 5.0), Cell("7", 7.0), Cell("1 †", 1.0, "partial")]
    table = assemble("", list("abcd"), [Column(("x",), cells, "lower")])
    assert marks(table) == [[""], ["best"], ["second"], ["partial"]]
