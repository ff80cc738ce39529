"""What the program does when Ray is lost under it."""

import os
import subprocess
import sys

import pytest

from fedgps_ray.cli import again

PROGRAM = """
import os, sys, threading, time
from fedgps_ray.cli import again
starts = int(os.environ.get(again.STARTS, "0"))
print(starts, os.getpid(), sys.argv[1:], flush=True)
if starts != 2:
    loss = ("Ray's raylet has died", sys.argv[-1] == "own", "fedgps-ray resume runs")
    threading.Thread(target=again._answer, args=loss).start()
    time.sleep(60)  # as one who waits for Ray
"""


def run(*arguments, starts=0):
    environment = {**os.environ, again.STARTS: str(starts)}
    command = [sys.executable, "-c", PROGRAM, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_same_command_goes_on_in_the_same_process():
    done = run("--restart", "own")
    assert done.returncode == 0, done.stderr
    starts, pids, arguments = zip(
        *(x.split(maxsplit=2) for x in done.stdout.splitlines()), strict=True
    )
    assert starts == ("0", "1", "2")
    assert len(set(pids)) == 1
    assert arguments == ("['--restart', 'own']", "['own']", "['own']"), "nothing is thrown away"
    told = "Ray's raylet has died; starting Ray again and going on with what is missing"
    assert done.stderr.splitlines() == [told] * 2


@pytest.mark.parametrize(
    ("arguments", "starts", "told"),
    [
        (("own",), 5, "for the 6th time in a row; to continue: fedgps-ray resume runs"),
        (("joined",), 0, "once the cluster is back, continue with: fedgps-ray resume runs"),
    ],
)
def test_otherwise_it_says_how_to_continue(arguments, starts, told):
    done = run(*arguments, starts=starts)
    assert done.returncode == again.LOST
    assert told in done.stderr
    assert len(done.stderr.splitlines()) == 1
