"""What the program does when Ray is lost under it."""

import os
import subprocess
import sys

import pytest

from fedgps_ray.cli import again
from fedgps_ray.rounds.trial import run_trial
from fedgps_ray.spec import ExecutionSpec, trial_spec

PROGRAM = """
import os, sys, threading, time
from pathlib import Path
from fedgps_ray.cli import again
from fedgps_ray.cluster.session import Loss
from fedgps_ray.spec import ExecutionSpec
starts = int(os.environ.get(again.STARTS, "0"))
print(starts, os.getpid(), sys.argv[1:], flush=True)
if starts != 2:
    loss = Loss("Ray's raylet has died", "own" in sys.argv[-1], "stopped" in sys.argv[-1])
    about = (loss, Path(os.environ["FOLDER"]), ExecutionSpec())
    threading.Thread(target=again._answer, args=about).start()
    time.sleep(60)  # as one who waits for Ray
"""


def run(*arguments, starts=0, folder="nowhere"):
    environment = {**os.environ, again.STARTS: str(starts), "FOLDER": str(folder)}
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


@pytest.mark.parametrize("name", ["trial.json", "experiment.json"])
@pytest.mark.parametrize(
    ("arguments", "starts", "told"),
    [
        (("own",), 5, "for the 6th time in a row; to continue: "),
        (("joined",), 0, "once the cluster is back, continue with: "),
    ],
)
def test_otherwise_it_says_how_to_continue(arguments, starts, told, name, tmp_path):
    (tmp_path / name).touch()
    done = run(*arguments, starts=starts, folder=tmp_path)
    assert done.returncode == again.LOST
    assert done.stderr.endswith(f"{told}fedgps-ray resume {tmp_path}\n")
    assert len(done.stderr.splitlines()) == 1


def test_an_old_result_is_still_thrown_away(tmp_path):
    spec = trial_spec(dataset="digits", model="mlp", method="fedavg", rounds=1)
    for _ in run_trial(spec, ExecutionSpec(out=tmp_path, actors=0)):
        pass
    done = run("--restart", "own", folder=tmp_path / "trials" / spec.trial_id)
    assert [line.split(maxsplit=2)[2] for line in done.stdout.splitlines()] == [
        "['--restart', 'own']"
    ] * 3
    stopped = run("--restart", "own, stopped", folder=tmp_path / "trials" / spec.trial_id)
    assert stopped.stderr == "interrupted; to continue: the same command\n"


def test_a_ray_that_was_stopped_with_the_command_is_not_started_again():
    done = run("own, stopped")
    assert done.returncode == 130
    assert done.stderr.splitlines() == ["interrupted; to continue: the same command"]


STOPPED = """
import contextlib, os, signal
from pathlib import Path
from fedgps_ray.cli import again
from fedgps_ray.cluster import stops
from fedgps_ray.cluster.session import Loss
from fedgps_ray.spec import ExecutionSpec
stops.hear()
assert not stops.has_come()
with contextlib.suppress(KeyboardInterrupt):  # nobody has noted that the user has stopped it
    os.kill(os.getpid(), signal.SIGTERM)
again._answer(Loss("Ray's raylet has died", True), Path("nowhere"), ExecutionSpec())
"""


def test_ray_that_was_stopped_together_with_the_command_is_not_started_again():
    done = subprocess.run(
        [sys.executable, "-c", STOPPED], capture_output=True, text=True, check=False
    )
    assert done.returncode == 130, done.stderr
    assert done.stderr == "interrupted; to continue: the same command\n"
