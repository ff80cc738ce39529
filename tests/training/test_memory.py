"""Memory that was freed is used again, not fetched from the system."""

import subprocess
import sys

import pytest

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
    done = subprocess.run([sys.executable, "-c", STEPS, how], capture_output=True, check=True)
    return int(done.stdout)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="a setting of Linux's C library")
def test_what_a_step_frees_is_there_for_the_next():
    assert faults("keep") < 1_000
    assert faults("leave") > 100_000  # 5 steps of 144 MB, in pages of 4 KB
