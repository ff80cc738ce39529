"""How a server's events travel to the owner of its trial."""

import pytest

from fedgps_ray.cluster import crew
from fedgps_ray.events import Started

FIRST = Started(0, [])


def rows(*numbers):
    return [{"round": number} for number in numbers]


def timed(monkeypatch, events):
    """Yield events, each at a time of a clock that stands still in between."""
    now = [100.0]
    monkeypatch.setattr(crew.time, "monotonic", lambda: now[0])
    for seconds, event in events:
        now[0] += seconds
        if isinstance(event, Exception):
            raise event
        yield event


def test_rows_of_short_rounds_travel_together(monkeypatch):
    one, two, three, four = rows(1, 2, 3, 4)
    events = [(0, FIRST), (0.1, one), (0.1, two), (0.05, three), (0.1, four)]
    lists = list(crew.bunched(timed(monkeypatch, events), 0.2))
    assert lists == [[FIRST], [one], [two, three, four]]


def test_rows_of_long_rounds_travel_at_once(monkeypatch):
    one, two = rows(1, 2)
    lists = list(crew.bunched(timed(monkeypatch, [(0, FIRST), (0.3, one), (0.3, two)]), 0.2))
    assert lists == [[FIRST], [one], [two]]


def test_rows_that_are_held_come_before_an_error(monkeypatch):
    one, two = rows(1, 2)
    events = [(0, one), (0.1, two), (0.01, ValueError("lost"))]
    lists = crew.bunched(timed(monkeypatch, events), 0.2)
    assert [next(lists), next(lists)] == [[one], [two]]
    with pytest.raises(ValueError, match="lost"):
        next(lists)
