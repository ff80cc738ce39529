"""What the program does when Ray is lost under it: start over with what is missing, or say how."""

import os
import shlex
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from fedgps_ray.cli.app import err, say
from fedgps_ray.cluster.parent import STARTS, End, replace_command
from fedgps_ray.cluster.stops import has_come, hear
from fedgps_ray.errors import UserError
from fedgps_ray.loading import load

if TYPE_CHECKING:
    from fedgps_ray.cluster.session import Loss
    from fedgps_ray.spec import ExecutionSpec

LOST = 3  # exit code: what was done is kept, and the same command continues
DISCARDING = ("--restart", "--anew")
BEGAN, ENVIRONMENT = time.monotonic(), dict(os.environ)  # before Ray adds to it


class Start(NamedTuple):
    """A start of this program: its words, how many came before, and how long Ray lasted."""

    words: list[str]
    number: int
    seconds: float


def how_to_continue(folder: Path, execution: "ExecutionSpec") -> str:
    """Return what to type to continue: where to run and store is not taken from a folder."""
    if not any((folder / name).exists() for name in ("trial.json", "experiment.json")):
        return "the same command"
    words = ["fedgps-ray", "resume", str(folder)]
    if execution.address is not None:
        words += ["--address", execution.address]
    if execution.storage is not None:
        words += ["--storage", load("fedgps_ray.results.uri:redacted")(execution.storage)]
    return shlex.join(words)


def survive(folder: Path, execution: "ExecutionSpec") -> None:
    """Go on after the loss of Ray: with a new one, or on a joined cluster by the user's hand.

    Once Ray is there, there will be work to keep when the user stops the command.
    """
    load("fedgps_ray.cluster.session:answer_with")(
        on_connection=hear, on_loss=lambda loss: _answer(loss, folder, execution)
    )


def expect_deaths() -> None:
    """Note that the user has stopped the command: that Ray ends is meant."""
    load("fedgps_ray.cluster.session:expect_deaths")()


def _answer(loss: "Loss", folder: Path, execution: "ExecutionSpec") -> None:
    err.show_cursor(True)
    what, again = loss.what, how_to_continue(folder, execution)
    if loss.is_ending or has_come():  # whoever stopped the command may have stopped Ray too
        leave(f"interrupted; to continue: {again}", 130)
    if not loss.is_own:
        leave(f"{what}; once the cluster is back, continue with: {again}")
    starts, seconds = int(ENVIRONMENT.get(STARTS, "0")), time.monotonic() - BEGAN
    discards = _has_ended(folder)  # the command is still to throw away what is there
    words = [word for word in sys.orig_argv if discards or word not in DISCARDING]
    _start_again(what, again, Start(words, starts, seconds))


def go_on(end: End) -> None:
    """Go on after the command's process was stopped, or ended by Ray."""
    err.show_cursor(True)
    what, again = "Ray has died or hung while the command was connecting to it", "the same command"
    attempt, seconds = end.attempt, 0.0
    if attempt is not None and attempt.until is None:
        what, seconds = "Ray has died and has ended the command", time.monotonic() - attempt.since
    if end.is_stopped or attempt is None:  # whoever stopped the command may have stopped Ray too
        leave(f"interrupted; to continue: {again}", 130)
    elif not attempt.is_own:
        leave(f"{what}; once the cluster is back, continue with: {again}")
    else:
        _start_again(what, again, Start(attempt.words, attempt.starts, seconds))


def _start_again(what: str, again: str, last: Start) -> None:
    """Run the same command in this process, unless Ray was lost too often.

    Whatever state Ray's threads are in, they are gone then.
    """
    policy = load("fedgps_ray.cluster.policy:POLICY")
    if not policy.after_ray_loss(last.number, last.seconds).again:
        leave(f"{what}, for the {last.number + 1}th time in a row; to continue: {again}")
    say(f"{what}; starting Ray again and going on with what is missing")
    number = 1 if last.seconds > policy.calm_seconds else last.number + 1
    sys.stdout.flush()
    sys.stderr.flush()
    replace_command(last.words[1:], {**ENVIRONMENT, STARTS: str(number)})


def leave(text: str, code: int = LOST, exit_now: Callable[[int], None] = os._exit) -> None:
    """Say something and end; no thread of Ray's can delay it."""
    say(text)
    sys.stdout.flush()
    sys.stderr.flush()
    exit_now(code)


def _has_ended(folder: Path) -> bool:
    """Say whether a trial's folder has a result: what was to discard it has not begun."""
    try:
        info = load("fedgps_ray.results.read:read_trial")(folder)
        return info["status"] in load("fedgps_ray.results.schema:ENDED")
    except UserError:  # of a sweep, or not begun
        return False
