"""Memory that was freed is used again, not fetched from the system."""

import os
import subprocess
import sys

import pytest

from fedgps_ray.loading import LARGE_PAGES

STEPS = """
import resource, sys, torch
from fedgps_ray.training.memory import keep_freed

if sys.argv[1] == "keep":
    assert keep_freed()

def step():
    kept = [torch.ones(12_000_000) for _ in range(3)]
    del kept

for _ in range(10):
    step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
    step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(how):
    small_pages = {**os.environ, LARGE_PAGES: "0"}
    command = [sys.executable, "-c", STEPS, how]
    return int(subprocess.run(command, env=small_pages, capture_output=True, check=True).stdout)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="a setting of Linux's C library")
def test_what_a_step_frees_is_there_for_the_next():
    assert faults("keep") < 1_000
    assert faults("leave") > 100_000  # 5 steps of 144 MB, in pages of 4 KB
