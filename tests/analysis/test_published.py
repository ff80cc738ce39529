"""The paper's tables from its own numbers: every printed cell, or a known slip."""

import csv
import dataclasses
from collections import Counter
from importlib.resources import files

import pytest

from fedgps_ray.analysis import metrics, published
from fedgps_ray.analysis.names import published_name
from fedgps_ray.analysis.tables import MEAN
from fedgps_ray.errors import UserError
from fedgps_ray.methods import METHODS
from fedgps_ray.training.local import Sgd

FOLDER = files("fedgps_ray.analysis") / "published"
NO_ROUND = {"not_reached": ("none", ">{rounds}"), "failed": ("-", "-")}


def raw(name):
    """Return a file's rows as text, read without the code under test."""
    text = (
        files("fedgps_ray.analysis")
        .joinpath("published", f"{name}.csv")
        .read_text(encoding="utf-8")
    )
    return [
        {**row, "table": row["table"].removeprefix("tab:")}
        for row in csv.DictReader(text.splitlines())
    ]


def known(*kinds):
    """Return the table, scenario and method of the known slips of these kinds."""
    rows = [row for row in raw("inconsistencies") if row["kind"] in kinds]
    return {(row["table"], row["scenario"], row["method"]) for row in rows}


@pytest.fixture(scope="module")
def shown():
    """Return the cells of all tables: table, method, headings -> text."""
    cells = {}
    for name, table in published.tables().items():
        levels = [[head.text for head in row for _ in range(head.span)] for row in table.header]
        for row in table.rows:
            for heads, cell in zip(list(zip(*levels, strict=True))[1:], row[1:], strict=True):
                cells[(name, row[0].text, *heads)] = cell.text
    return cells


def headings(row):
    """Return under which headings a printed accuracy must stand."""
    name = row["table"]
    if name in published.SMALL:
        numbers = {column: row[column] for column in published.SMALL[name]}
        values = {k: v if k in ("dataset", "model") else float(v) for k, v in numbers.items()}
        return tuple(metrics.text(column, value) for column, value in values.items())
    if name.endswith("_random"):
        return f"scenario {row['scenario']}", f"seed {row['train_seed']}"
    return f"scenario {row['scenario']} (target {target(row)}%)", "ACC"


def target(row):
    """Return the printed target, but for the one column whose target is a known slip."""
    slips = {table_scenario[:2] for table_scenario in known("target_vs_fedavg")}
    assert slips == {("CIFAR10_10_5_1_005", "2")}
    return "45" if (row["table"], row["scenario"]) in slips else row["target_accuracy"]


def test_there_are_all_tables_and_cells(shown):
    assert len(published.names()) == 19
    assert {key[0] for key in shown} == set(published.names())
    assert len(raw("results")) == 1260
    assert len(shown) == 1260 + 2 * 686 + 322


def test_every_printed_accuracy(shown):
    for row in raw("results"):
        wanted = "-" if row["status"] == "failed" else f"{float(row['accuracy']):.2f}"
        assert shown[(row["table"], published_name(row["method"]), *headings(row))] == wanted, row


def with_rounds():
    return [row for row in raw("results") if row["status_round"]]


def test_every_printed_round(shown):
    rows = with_rounds()
    assert len(rows) == 686
    for row in rows:
        place = (row["table"], published_name(row["method"]), headings(row)[0], "ROUND")
        _, none = NO_ROUND.get(row["status_round"], ("", row["rounds_to_target"]))
        assert shown[place] == none.format(**row), row


def test_every_printed_speedup_but_known_slips(shown):
    differing = set()
    for row in with_rounds():
        place = (row["table"], published_name(row["method"]), headings(row)[0], "SpeedUp")
        wanted, _ = NO_ROUND.get(row["status_round"], (f"{row['speedup']}x", ""))
        if shown[place] != wanted:
            differing.add((row["table"], row["scenario"], row["method"]))
    assert differing == known("speedup")
    assert len(differing) == 6


def test_every_printed_mean_and_deviation_but_known_slips(shown):
    rows, differing, ties = raw("summary"), Counter(), []
    for row in rows:
        kind, scenario = row["kind"], row["scenario"]
        head = {"over_scenarios": "all scenarios", "total": "all"}.get(kind, f"scenario {scenario}")
        text = shown[(row["table"], published_name(row["method"]), head, MEAN)]
        wanted = f"{row['mean']} ± {row['std']}" if row["status"] == "ok" else "-"
        if text != wanted:
            place = (row["table"], scenario, row["method"])
            ties.append(place) if tied(row) else differing.update([place])
    assert len(rows) == 322
    assert set(differing) == known("mean_std", "mean_missing", "mean_partial")
    assert set(differing.values()) == {1}
    assert ties == [("CIFAR10_100_10_1_005", "", "fedavg")]  # 33.665, printed 33.67


def tied(row):
    """Say whether the exact mean lies half way between two numbers of two digits."""
    same = [
        round(100 * float(other["accuracy"]))
        for other in raw("results")
        if other["table"] == row["table"] and other["method"] == row["method"] and other["accuracy"]
    ]
    return 2 * sum(same) % (2 * len(same)) == len(same)


def test_a_mean_over_survivors_shows_the_printed_numbers_with_a_sign(shown):
    place = ("CIFAR10_100_10_1", "FedDecorr", "all scenarios", MEAN)
    assert shown[place] == "66.73 ± 3.12 †"


def test_slips_are_marked_with_their_reason():
    runs = published.runs("SVHN_100_10_1", "CIFAR10_10_5_5_random")
    cells = {(row.table, row.scenario, row.method, row.seed): row.slip for row in runs.itertuples()}
    assert "473 / 107 rounds" in cells["SVHN_100_10_1", 1, "ccvr", 0]
    assert cells["SVHN_100_10_1", 1, "fedavg", 0] == ""
    assert "printed 73.36 / 71.74" in cells["CIFAR10_10_5_5_random", 5, "fedexp", 0]
    assert cells["CIFAR10_10_5_5_random", 5, "fedexp", 1] == ""  # two values of seed 0


def test_slips_of_means_are_marked_with_their_reason():
    means = published.means()
    told = means[means["slip"] != ""]
    assert len(told) == len(known("mean_std", "mean_missing", "mean_partial")) == 14
    avg = told[(told["table"] == "SVHN_10_5_1") & (told["method"] == "fedavg")]
    assert "std fits ddof 0" in avg["slip"].item()


def test_a_tables_notes_tell_its_slips_and_what_it_leaves_out():
    tables = published.tables()
    assert any("FedAvg, scenario 2, target vs fedavg" in n for n in notes(tables, "_005"))
    assert any("Not printed: clients; sampling_rate" in n for n in tables["c2_c3"].notes)


def notes(tables, ending):
    return [note for name, table in tables.items() if name.endswith(ending) for note in table.notes]


def test_the_published_runs_are_like_ours():
    runs = published.runs()
    assert {*metrics.SETTING, *metrics.CASE, "label", "accuracy", "cost", "spent"} <= set(runs)
    assert runs["trial_id"].is_unique
    assert set(runs["status"]) == {"finished", "failed"}


def test_an_unknown_table_is_told():
    with pytest.raises(UserError, match=r"unknown table 'SVHN'\. Known: CIFAR10_10_5_1, "):
        published.runs("SVHN")


def test_hyperparameters_are_under_the_names_of_our_settings():
    found = published.hyperparameters()
    assert len(found) == 14
    for method, values in found.items():
        own = {field.name for field in dataclasses.fields(METHODS[method])}
        sgd = {field.name for field in dataclasses.fields(Sgd)}
        names = {f"method.{name}" for name in own} | {f"optimizer.{name}" for name in sgd}
        assert set(values) <= names, method
    assert found["fedprox"]["method.mu"] == 0.125
    assert found["fedinit"]["optimizer.momentum"] == 0.0
    assert found["fedavgm"]["method.nesterov"] is True
    assert found["fedavg"]["optimizer.nesterov"] is False
    assert found["nucfl"]["optimizer.weight_decay"] == 1e-4


def test_centralized_accuracies():
    frame = published.centralized().set_index("table")["centralized_accuracy"]
    assert frame["SVHN_100_10_1"] == 97
    assert frame.isna().sum() == 2  # placeholders in print
