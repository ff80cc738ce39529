"""What is measured of a process, on Linux and elsewhere, and how growth is computed."""

import os
import subprocess
import sys

import pytest

from fedgps_ray.tools import soak
from fedgps_ray.tools.soak import Sample, growth_of, usage

LSOF = "p77\nfcwd\nftxt\nf0\nf1\nf12\n"


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_linux_counts_private_memory_and_open_files(tmp_path):
    megabytes, files = usage(os.getpid())
    assert 10 < megabytes < 100_000
    with (tmp_path / "one").open("w"), (tmp_path / "two").open("w"):
        assert usage(os.getpid())[1] == files + 2


def test_elsewhere_ps_and_lsof_are_asked(monkeypatch, tmp_path):
    answers = {"ps": " 52000\n", "lsof": LSOF}

    def run(command, **_):
        assert "77" in command
        return subprocess.CompletedProcess(command, 0, answers[command[0]])

    monkeypatch.setattr(soak, "PROC", tmp_path / "absent")
    monkeypatch.setattr(soak.subprocess, "run", run)
    assert usage(77) == (52.0, 3)


def test_growth_compares_the_first_third_after_the_warm_up_with_the_last():
    # rounds 50 to 100 count: 6 samples, thirds of two
    samples = [Sample(r, "server", float(r), r // 10) for r in range(0, 101, 10)]
    growth = growth_of("server", samples)
    assert growth == ("server", 55.0, 95.0, 6, 10)
    assert growth.ratio == pytest.approx(95 / 55)
