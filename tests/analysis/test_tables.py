"""Frames to tables, by hand."""

import pandas as pd

from analysis.tables import HEADER, comparison, write_report

FINISHED = {
    "method": "fedavg",
    "status": "finished",
    "best_accuracy": 0.5,
    "last_accuracy": 0.4567,
    "last_ten_accuracy": 0.25,
    "bytes_up": 1_500_000,
    "bytes_down": 123_456_789,
    "train_seconds": 12.34,
}
BETTER = {**FINISHED, "method": "fedgps", "best_accuracy": 0.75}
NONE = {"best_accuracy": None, "last_accuracy": None, "last_ten_accuracy": None}
DIVERGED = {
    **FINISHED,
    **NONE,
    "status": "diverged",
    "bytes_up": 0,
    "bytes_down": 0,
    "train_seconds": 0,
}


def test_a_line_is_in_the_units_of_the_header():
    assert HEADER[2:] == ["best", "last", "mean of last ten", "MB up", "MB down", "seconds"]
    assert comparison(pd.DataFrame([FINISHED])) == [
        ["fedavg", "finished", "50.00", "45.67", "25.00", "1.5", "123.5", "12.3"]
    ]


def test_the_most_accurate_comes_first_and_a_diverged_one_last():
    lines = comparison(pd.DataFrame([DIVERGED, FINISHED, BETTER]))
    assert [line[:3] for line in lines] == [
        ["fedgps", "finished", "75.00"],
        ["fedavg", "finished", "50.00"],
        ["fedavg", "diverged", "-"],
    ]
    assert lines[2] == ["fedavg", "diverged", "-", "-", "-", "0.0", "0.0", "0.0"]


def test_nothing_but_diverged_trials():
    lines = comparison(pd.DataFrame([DIVERGED, DIVERGED]))
    assert [line[2] for line in lines] == ["-", "-"]


def test_the_report_is_a_markdown_table(tmp_path):
    path = write_report(pd.DataFrame([FINISHED, BETTER]), tmp_path)
    assert path == tmp_path / "report.md"
    lines = path.read_text().splitlines()
    table = [line for line in lines if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table]
    assert cells[0] == HEADER
    assert cells[1] == ["---"] * 8
    assert cells[2:] == comparison(pd.DataFrame([FINISHED, BETTER]))
    assert "percent" in path.read_text()
