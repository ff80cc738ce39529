"""What the program does when Ray is lost under it: start over with what is missing, or say how."""

import os
import shlex
import sys
import time
from collections.abc import Callable
from pathlib import Path

from fedgps_ray.cli.app import err, say
from fedgps_ray.loading import load

LOST = 3  # exit code: what was done is kept, and the same command continues
STARTS = "FEDGPS_RAY_STARTS"  # how often this program was started by itself
DISCARDING = ("--restart", "--anew")
BEGAN, ENVIRONMENT = time.monotonic(), dict(os.environ)  # before Ray adds to it


def survive(folder: Path, address: str | None) -> None:
    """Go on after the loss of Ray: with a new one, or on a joined cluster by the user's hand."""
    there = "" if address is None else f" --address {shlex.quote(address)}"
    again = f"fedgps-ray resume {shlex.quote(str(folder))}{there}"
    load("fedgps_ray.cluster.session:answer_losses")(
        lambda loss: _answer(loss.what, loss.is_own, again)
    )


def _answer(what: str, is_own: bool, again: str) -> None:
    err.show_cursor(True)
    if not is_own:
        leave(f"{what}; once the cluster is back, continue with: {again}")
    starts = int(ENVIRONMENT.get(STARTS, "0"))
    seconds = time.monotonic() - BEGAN
    policy = load("fedgps_ray.cluster.policy:POLICY")
    if not policy.after_ray_loss(starts, seconds).again:
        leave(f"{what}, for the {starts + 1}th time in a row; to continue: {again}")
    say(f"{what}; starting Ray again and going on with what is missing")
    number = 1 if seconds > policy.calm_seconds else starts + 1
    _replace_this_process({**ENVIRONMENT, STARTS: str(number)})


def leave(text: str, exit_now: Callable[[int], None] = os._exit) -> None:
    """Say something and end; no thread of Ray's can delay it."""
    say(text)
    sys.stdout.flush()
    sys.stderr.flush()
    exit_now(LOST)


def _replace_this_process(environment: dict[str, str]) -> None:
    """Run the same command in this process: whatever state Ray's threads are in, they are gone."""
    sys.stdout.flush()
    sys.stderr.flush()
    words = [word for word in sys.orig_argv[1:] if word not in DISCARDING]
    os.execve(sys.executable, [sys.executable, *words], environment)
