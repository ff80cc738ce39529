"""Bars, sparklines and tables that keep to a width and cut no word."""

import pytest

from fedgps_ray.sweep.drawing import Column, bar, fit, spark, table, thinned


@pytest.mark.parametrize(("share", "done"), [(0.0, 0), (0.5, 5), (1.0, 10), (7.0, 10), (-1.0, 0)])
def test_bar(share, done):
    assert bar(share, 10).plain == "━" * done + "─" * (10 - done)


def test_sparkline_goes_from_the_lowest_to_the_highest():
    assert spark([0.1, 0.2, 0.3], 10) == "▁▄█"
    assert spark([0.5, 0.5], 10) == "▁▁"
    assert spark([], 10) == ""
    assert len(spark([i / 100 for i in range(100)], 10)) == 10


def test_thinned_values_end_with_the_last():
    assert thinned([1, 2, 3, 4, 5, 6], 3) == [2, 4, 6]
    assert thinned([1, 2], 3) == [1, 2]


@pytest.mark.parametrize(
    ("text", "width", "shown"),
    [
        ("short", 10, "short"),
        ("client 2 failed in round 4", 20, "client 2 failed in …"),
        ("alpha 0.1, lr 0.3", 12, "alpha 0.1 …"),
        ("unbreakable", 5, "…"),
        ("a\x1b[31mred\nb", 20, "a [31mred b"),  # nothing that steers a terminal
    ],
)
def test_texts_are_cut_between_words(text, width, shown):
    assert fit(text, width) == shown
    assert len(fit(text, width)) <= width


COLUMNS = (
    Column("method", cut=True),
    Column("why", cut=True, rank=1),
    Column("id"),
    Column("n", right=True, rank=2),
)
ROWS = [("FedGPS rho=0.3", "it failed at once", "0123456789ab", "7")]


def lines(width, rows=ROWS):
    return [line.plain for line in table(COLUMNS, rows, width)]


def test_table_with_enough_room():
    assert lines(80) == [
        "method          why                id            n",
        "FedGPS rho=0.3  it failed at once  0123456789ab  7",
    ]


@pytest.mark.parametrize("width", [24, 30, 36, 42, 48])
def test_narrow_tables_cut_texts_or_leave_columns_out_but_never_an_id(width):
    heading, row = lines(width)
    assert "0123456789ab" in row
    assert max(len(heading), len(row)) <= width
    words = {"FedGPS", "rho=0.3", "it", "failed", "at", "once", "0123456789ab", "7", "…"}
    assert set(row.split()) <= words


def test_columns_with_the_highest_rank_go_first():
    assert lines(29)[0].split() == ["method", "why", "id"]
    assert lines(24)[0].split() == ["method", "id"]


def test_empty_columns_that_may_be_left_out_are():
    assert lines(80, [("FedAvg", "", "0123456789ab", "")])[0].split() == ["method", "id"]
