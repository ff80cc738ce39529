"""What the program does when Ray is lost under it: start over with what is missing, or say how."""

import os
import shlex
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from fedgps_ray.cli.app import err, say
from fedgps_ray.cluster.parent import STARTS, Begun, End, note_begun, replace_command
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
    """Return what to type to continue."""
    return _typed(_begun(folder, execution))


def _begun(folder: Path, execution: "ExecutionSpec") -> Begun:
    storage = execution.storage
    if storage is not None:
        storage = load("fedgps_ray.results.uri:redacted")(storage)
    return Begun(str(folder), execution.address, storage)


def _typed(begun: Begun | None) -> str:
    """Return what to type to continue: where to run and store is not taken from a folder."""
    if begun is None or not _is_under_way(Path(begun.folder)):
        return "the same command"
    words = ["fedgps-ray", "resume", begun.folder]
    if begun.address is not None:
        words += ["--address", begun.address]
    if begun.storage is not None:
        words += ["--storage", begun.storage]
    return shlex.join(words)


def _is_under_way(folder: Path) -> bool:
    """Say whether a folder has something to resume; a trial with a result was to be run again."""
    names = ("trial.json", "experiment.json")
    return any((folder / name).exists() for name in names) and not _has_ended(folder)


def survive(folder: Path, execution: "ExecutionSpec") -> None:
    """Go on after the loss of Ray: with a new one, or on a joined cluster by the user's hand.

    Once Ray is there, there will be work to keep when the user stops the command.
    """
    note_begun(_begun(folder, execution))
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
    _start_again(what, again, Start(_words(sys.orig_argv, folder), starts, seconds))


def go_on(end: End) -> None:
    """Go on after the command's process was stopped, or ended by Ray."""
    err.show_cursor(True)
    what, again = "Ray has died or hung while the command was connecting to it", _typed(end.begun)
    attempt, seconds = end.attempt, 0.0
    if attempt is not None and attempt.until is None:
        what, seconds = "Ray has died and has ended the command", time.monotonic() - attempt.since
    if end.is_stopped or attempt is None:  # whoever stopped the command may have stopped Ray too
        leave(f"interrupted; to continue: {again}", 130)
    elif not attempt.is_own:
        leave(f"{what}; once the cluster is back, continue with: {again}")
    else:
        folder = None if end.begun is None else Path(end.begun.folder)
        _start_again(what, again, Start(_words(attempt.words, folder), attempt.starts, seconds))


def _words(words: list[str], folder: Path | None) -> list[str]:
    """Return a command's words without those that would throw away what it has done since."""
    if folder is None or _has_ended(folder):  # it has thrown nothing away yet
        return words
    return [word for word in words if word not in DISCARDING]


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
