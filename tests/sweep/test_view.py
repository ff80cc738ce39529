"""What a sweep looks like."""

import io
import time

import pytest
from rich.console import Console

from fedgps_ray.sweep.board import Record
from fedgps_ray.sweep.state import Running, State
from fedgps_ray.sweep.view import Look, counts, shares, view
from fedgps_ray.tools.fabricate import Size, fabricate

SIZES = [(80, 24), (120, 35), (200, 50)]


def shown(state, width=120, height=50, is_driven=True, **look):
    console = Console(file=io.StringIO(), width=width, height=height, force_terminal=False)
    console.print(view(state, is_driven, Look(**look)))
    return console.file.getvalue()


@pytest.fixture
def state():
    clients = [f"client {number}" for number in range(9)]
    trial = Running(
        "a", "FedGPS-CF", 2, 1, "lr 0.3", 50, 0, 10, 0.5, 0.625, 1.5, "training", clients, 3
    )
    trial.curve = [0.1, 0.2, 0.3]
    store = {"object_store_memory": 4e9, "object_store_memory_used": 1.5e9}
    use = {"CPU": 12, "CPU_used": 8, "GPU": 2, "GPU_used": 0.4, "busy": 0.5}
    memory = {"memory": 16e9, "memory_used": 4e9}
    now = time.time()
    return State(
        "my [sweep]",
        total=6,
        rounds_total=300,
        finished=2,
        failed=1,
        rounds_before=50,
        rounds_ended=50,
        trials_ended=2,
        lanes=1,
        restarts=4,
        began=now - 60,
        working_since=now - 40,
        running={"a": trial},
        records={
            "a": Record("FedGPS-CF", "lr 0.3", 2, 1, 50, "running", 10, 0.625),
            "b": Record("FedAvg", "lr 0.3", 2, 1, 50, "finished", 50, 0.7),
            "c": Record("FedAvg", "lr 0.3", 1, 1, 50, "finished", 50, 0.8),
            "0123456789ab": Record("VHL", "lr 0.1", 1, 1, 50, "failed", error="why [it] failed"),
        },
        lags=[1.0],
        recent=[(now - 10, 90), (now, 110)],
        nodes=[{"name": "node-7", **use, **store, **memory}],
        events=[(now, "fedavg [x] finished\nmore"), (now, "fedgps was lost")],
    )


def test_all_that_a_person_wants_to_know(state):
    text = shown(state)
    for part in (
        "my [sweep]",
        "2 of 6 finished, 1 running, 1 failed, 2 left",
        "1:00, about 1:00 left",  # 40 rounds of 1.5 s; no other is known to wait
        "180 trials per hour, 2.0 rounds per second, 4 restarts",
        "FedGPS-CF  lr 0.3",
        "75.00%  7.07       80.00%       2/2",  # FedAvg: mean, deviation, best, finished
        "10/50",
        "▁▄█",
        "50.00%  62.50%     1.50         3  clients 0, 1, 2, 3, 4, 5, 6, 7, 8",
        "0123456789ab  VHL, lr 0.1, scenario 1, seed 1  why [it] failed",
        "node-7: CPU 8/12, GPU 0.4/2, 50 % busy, memory 4.0/16 GB, object store 1.5/4.0 GB",
        "fedavg [x] finished",
        "fedgps was lost",
    ):
        assert part in text
    assert "more" not in text


@pytest.mark.parametrize("width", [40, 80, 200])
def test_fits_any_width(state, width):
    assert max(len(line) for line in shown(state, width).splitlines()) <= width


def test_nothing_is_best_before_a_test(state):
    trial = state.running["a"]
    trial.accuracy = trial.best = None
    state.records["a"] = state.records["a"]._replace(best=None)
    state.records.pop("b")
    state.records.pop("c")
    assert "%" not in "".join(line for line in shown(state).splitlines() if "FedGPS-CF" in line)


def test_ended_and_abandoned_sweeps_say_so(state):
    assert "not running; last seen" in shown(state, is_driven=False)
    state.ended = state.began + 90
    assert "ended after 1:30" in shown(state, is_driven=False)


def test_interrupted_trials_are_counted(state):
    state.records["d"] = Record("FedAvg", "", 1, 0, 50, "interrupted", 5)
    assert counts(state) == "2 of 6 finished, 1 running, 1 failed, 1 interrupted, 2 left"


def test_a_terminal_that_knows_ascii_only(state):
    file = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    Console(file=file, width=80, height=24).print(view(state))
    file.seek(0)
    assert "====" in file.read()


# --- a thousand trials ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    return fabricate(tmp_path_factory.mktemp("many"), Size(trials=240, running=12, failed=30))


@pytest.mark.parametrize("page", ["overview", "trials", "failures"])
@pytest.mark.parametrize(("width", "height"), SIZES)
def test_never_larger_than_the_terminal(many, width, height, page):
    lines = shown(many, width, height, page=page, has_keys=True).splitlines()
    assert len(lines) <= height - 1
    assert max(len(line) for line in lines) <= width


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_every_size_shows_leaders_running_trials_failures_and_nodes(many, width, height):
    text = shown(many, width, height)
    for part in ("best so far", "running", "failed  ", "CPU ", "object store ", " finished, "):
        assert part in text


def test_without_a_limit_all_is_shown(many):
    text = shown(many, lines=0, page="trials")
    assert all(trial_id in text for trial_id in many.records)


def test_scrolling_stops_at_the_last_row(many):
    text = shown(many, height=30, page="trials", top=10_000)
    assert list(many.records)[-1] in text
    assert f"of {len(many.records)}" in text


def test_filter(many):
    text = shown(many, lines=0, page="trials", wanted="fedgps-cf")
    assert len([line for line in text.splitlines() if "FedGPS-CF" in line]) == 240 / 8
    assert "SCAFFOLD" not in text


def test_drawing_a_thousand_trials_is_quick(many):
    console = Console(file=io.StringIO(), width=200, height=50, force_terminal=True)
    state = State(**vars(many))
    state.records = {f"{k}{n}": record for n in range(5) for k, record in many.records.items()}
    assert len(state.records) == 1200
    began = time.process_time()
    for _ in range(10):
        console.print(view(state))
    assert (time.process_time() - began) / 10 < 0.05


@pytest.mark.parametrize(
    ("sizes", "least", "free", "rooms"),
    [
        ([5, 2, 0], [4, 3, 2], 30, [5, 2, 0]),  # enough for all
        ([24, 4, 3], [4, 3, 2], 15, [7, 3, 2]),  # 15 lines less three headings; the first has more
        ([24, 4, 3], [4, 3, 2], 10, [4, 3, 0]),  # the last one has to go without
        ([24, 4, 3], [4, 3, 2], 0, [0, 0, 0]),
    ],
)
def test_lines_are_shared_out(sizes, least, free, rooms):
    assert shares(sizes, least, free) == rooms
