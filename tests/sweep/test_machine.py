"""How busy a machine is, from what Linux says; nothing where it does not."""

import pytest

from fedgps_ray.data import memory
from fedgps_ray.sweep import machine
from fedgps_ray.sweep.machine import Ticks, busy


@pytest.fixture
def proc(tmp_path, monkeypatch):
    monkeypatch.setattr(machine, "STAT", tmp_path / "stat")
    monkeypatch.setattr(memory, "MEMINFO", tmp_path / "meminfo")
    return tmp_path


def test_figures_of_linux(proc):
    (proc / "stat").write_text("cpu  10 0 10 70 5 0 5 0 0 0\ncpu0 1\n")
    (proc / "meminfo").write_text("MemTotal: 1000 kB\nMemFree: 1 kB\nMemAvailable: 250 kB\n")
    assert machine.ticks() == Ticks(100, 75)  # idle, and waiting for a disk
    assert machine.memory() == {"memory": 1_024_000.0, "memory_used": 768_000.0}


def test_busy_share_of_the_time_in_between():
    assert busy(Ticks(100, 75), Ticks(300, 125)) == 0.75
    assert busy(None, Ticks(1, 1)) is None
    assert busy(Ticks(1, 1), Ticks(1, 1)) is None


@pytest.mark.parametrize("text", [None, "", "cpu x y"])
def test_systems_that_do_not_say(proc, text):
    for name in ("stat", "meminfo"):
        if text is not None:
            (proc / name).write_text(text)
    assert machine.ticks() is None
    assert machine.memory() == {}
