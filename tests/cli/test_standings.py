"""The result of a sweep as a table, at several widths."""

import io

from rich.console import Console

from fedgps_ray.cli.standings import result
from fedgps_ray.sweep.board import Record


def shown(records, width=80):
    console = Console(file=io.StringIO(), width=width)
    result(console, records)
    return console.file.getvalue()


def record(method, setting, best, status="finished", error=""):
    return Record(method, setting, 1, 0, 20, status, best=best, error=error)


RECORDS = [
    record("FedAvg", "alpha 0.1", 0.6),
    record("FedAvg", "alpha 0.1", 0.8),
    record("FedAvg", "alpha 1.0", 0.9),
    record("FedGPS", "alpha 0.1", 0.75),
    record("FedGPS", "alpha 1.0", None, "failed", "the dog ate it"),
]


def test_methods_down_and_settings_across():
    lines = shown(RECORDS).splitlines()
    assert lines[1].split() == ["method", "alpha", "0.1", "alpha", "1.0"]
    assert lines[2].split() == ["FedGPS", "75.00", "%", "(1)", "-"]
    assert lines[3].split() == ["FedAvg", "70.00", "±", "14.14", "%", "(2)", "90.00", "%", "(1)"]
    assert lines[4] == "failed: FedGPS, alpha 1.0, scenario 1, seed 0: the dog ate it"


def test_too_many_settings_for_the_width_are_listed():
    records = [record("FedAvg", f"alpha {n}, lr {n}", n / 10) for n in range(1, 9)]
    lines = shown(records).splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0].split()[:2] == ["method", "setting"]
    assert len(lines) == 9


def test_settings_that_would_be_cut_have_lines_of_their_own():
    settings = [f"dataset digits, model cnn, alpha {n}.5, clients 10, rounds 60" for n in range(2)]
    lines = shown(
        [record("my_method.py:MyMethod", setting, 0.5) for setting in settings]
    ).splitlines()
    assert lines[0].split()[:2] == ["method", "mean"]
    assert lines[1].split()[0] == "my_method.py:MyMethod"
    assert [lines[2].strip(), lines[4].strip()] == settings


def test_one_setting_is_a_list_of_methods():
    lines = shown([record("FedAvg", "", 0.5), record("FedGPS", "", 0.75)]).splitlines()
    assert [line.split()[0] for line in lines] == ["method", "FedGPS", "FedAvg"]


def test_many_failures_are_counted():
    failed = [record("FedAvg", "", None, "failed", "why") for _ in range(13)]
    assert shown(failed).splitlines()[-1] == "and 3 more failed"


def test_nothing_tested_is_no_table():
    assert shown([record("FedAvg", "", None, "missing")]) == ""
