"""What a sweep looks like."""

import io
import time

import pytest
from rich.console import Console

from fedgps_ray.sweep.state import Running, State
from fedgps_ray.sweep.view import view


def shown(state, width=120, **options):
    console = Console(file=io.StringIO(), width=width, force_terminal=False)
    console.print(view(state, **options))
    return console.file.getvalue()


@pytest.fixture
def state():
    clients = [f"client {number}" for number in range(9)]
    trial = Running(
        "a", "fedgps_cf", 2, 1, "lr 0.3", 50, 0, 10, 0.5, 0.625, 1.5, "training", clients, 3
    )
    use = {"nodes": 3, "CPU": 12, "CPU_used": 8, "GPU": 2, "GPU_used": 0.4}
    store = {"object_store_memory": 4e9, "object_store_memory_used": 1.5e9}
    now = time.time()
    return State(
        "my [sweep]",
        total=6,
        rounds_total=300,
        finished=2,
        failed=1,
        rounds_before=50,
        rounds_ended=50,
        began=now - 60,
        running={"a": trial},
        cluster={**use, **store},
        events=[(now, "fedavg [x] finished\nmore"), (now, "fedgps failed: why")],
    )


def test_all_that_a_person_wants_to_know(state):
    text = shown(state)
    for part in (
        "my [sweep]",
        "2 of 6 finished, 1 running, 1 failed, 2 left",
        "1:00, about 3:",  # 190 rounds left at 60 rounds a minute
        "fedgps_cf",
        "lr 0.3",
        "10/50",
        "50.00%",
        "62.50%",
        "1.50",
        "0, 1, 2, 3, 4, 5 ...",
        "3 nodes, CPU 8/12, GPU 0.4/2, object store 1.50/4.0 GB",
        "fedavg [x] finished",
        "fedgps failed: why",
    ):
        assert part in text
    assert "more" not in text


@pytest.mark.parametrize("width", [40, 80, 200])
def test_fits_any_width(state, width):
    assert max(len(line) for line in shown(state, width).splitlines()) <= width


def test_many_trials_are_cut_short(state):
    trial = state.running["a"]
    state.running = {str(number): trial for number in range(100)}
    text = shown(state)
    assert "and 80 more" in text
    assert len(text.splitlines()) < 40


def test_ended_and_abandoned_sweeps_say_so(state):
    assert "not running; last seen" in shown(state, is_driven=False)
    state.ended = state.began + 90
    assert "ended after 1:30" in shown(state, is_driven=False)
