"""A single trial on the screen: in a terminal of any width, and as lines elsewhere."""

import io
import time

import pytest
from rich.console import Console

from fedgps_ray.api.progress import Follower, ending, follow, opening
from fedgps_ray.events import Started, Status


def row(number, accuracy):
    return {"round": number, "accuracy": accuracy, "weights_sha256": "ab"}


EVENTS = [
    Status("starting Ray"),
    Started(0, []),
    row(1, None),
    row(2, 0.25),
    Status("training", ("client 3", "client 7", "test"), restarts=2),
    row(3, 0.5),
]


def console(width=80, terminal=True):
    return Console(file=io.StringIO(), width=width, force_terminal=terminal, color_system=None)


def picture(events, width=80):
    screen = console(width)
    show = Follower(screen, "FedGPS", 60)
    for event in events:
        show(event)
    screen.print(show.picture)
    return screen.file.getvalue().splitlines()


@pytest.mark.parametrize("width", [60, 80, 160])
def test_three_lines_that_fit(width):
    lines = picture(EVENTS, width)
    assert len(lines) == 3
    assert max(map(len, lines)) <= width
    assert lines[0].startswith("FedGPS  ━")
    assert "3/60" in lines[0]
    assert "left" in lines[0]
    assert lines[1].endswith("▁█")


def test_nothing_is_best_before_a_test():
    assert picture(EVENTS[:3])[1].startswith("not tested  ")
    assert "best" not in "".join(picture(EVENTS[:3]))


def test_what_the_actors_do():
    assert picture(EVENTS[:5])[2].rstrip() == "2 actors restarted  training clients 3, 7"


def test_start_up_does_not_count_as_pace(monkeypatch):
    clock = iter([0.0, 0.0, 100.0, 104.0, 104.0])  # 100 s until Ray was there, 2 s for each round
    monkeypatch.setattr(time, "monotonic", lambda: next(clock, 104.0))
    assert "about 1:56 left" in picture([EVENTS[1], row(2, 0.5)])[0]  # 58 rounds of 2 s


def test_one_line_per_event_without_a_terminal():
    screen = console(terminal=False)
    follow(screen, "FedGPS", 60, EVENTS)
    lines = screen.file.getvalue().splitlines()
    assert lines[:2] == ["starting Ray", "first round begins"]
    assert lines[2].startswith("FedGPS  round 1/60  not tested")
    assert lines[4].startswith("FedGPS  round 3/60  accuracy 50.00%  best 50.00%")


def test_opening_marks_what_was_chosen():
    told = opening({"rounds": 60, "lr": 0.1}, ["rounds"])
    assert told == "rounds 60*, lr 0.1  (* chosen for this data set)"
    assert opening({"rounds": 60}, []) == "rounds 60"


def test_no_line_of_the_ending_breaks_at_80_columns():
    costs = {"train_seconds": 1.0, "evaluate_seconds": 1.0, "bytes_up": 1, "bytes_down": 1}
    scores = dict.fromkeys(("best_accuracy", "last_accuracy", "last_ten_accuracy"), 0.5)
    summary = {**costs, **scores, "best_round": 3, "rounds_done": 4, "weights_sha256": "a" * 64}
    text = ending({"status": "finished", "summary": summary}, "runs/default")
    assert max(map(len, text.splitlines())) < 80
    assert "a" * 64 in text
