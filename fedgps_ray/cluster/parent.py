"""The parent of a command: waits for it, passes signals on to it, and ends as it does.

Ray's core ends a driver on the spot, past any exception, if the process to which the driver
connects dies in that moment, or its control process while a question to it is on its way; if the
one to connect to hangs, so do all of the driver's Python threads. Only another process can start
the command again.
"""

import contextlib
import ctypes
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

PLACE = "FEDGPS_RAY_PARENT"  # the parent's process, and the open file with notes for it
STARTS = "FEDGPS_RAY_STARTS"  # how often this program was started by itself
PASSED_ON = {
    *(signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT),
    *(signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM),
}
HEARD = {*PASSED_ON, signal.SIGCHLD}
STOPPING = (signal.SIGINT, signal.SIGTERM)
ENDED_BY_STOP = tuple(-number for number in STOPPING)  # it had nothing to keep yet
ENDED_BY_RAY = (1, -signal.SIGABRT)
PR_SET_PDEATHSIG = 1  # of Linux: the signal that a process gets when its parent ends
ECHO_SECONDS = 1.0
LOOK_SECONDS = 1.0  # how often to look whether the child has come to an end of its attempt
_stopped_at = -ECHO_SECONDS  # when the last request to stop came, echoes aside


class Begun(NamedTuple):
    """What a command has begun: the folder of its results, where it runs, where else they go."""

    folder: str
    address: str | None = None
    storage: str | None = None  # without passwords


class Attempt(NamedTuple):
    """A connection to Ray that a command began; times are by the system's monotonic clock."""

    words: list[str]  # how the command was called
    starts: int  # how often it was started by itself
    is_own: bool  # Ray was started by the command
    until: float | None  # when the attempt has failed; None: it has succeeded
    since: float = 0.0  # when it succeeded

    def has_failed(self) -> bool:
        """Say whether it has taken too long."""
        return self.until is not None and time.monotonic() > self.until


class Notes(NamedTuple):
    """What a command notes for its parent."""

    attempt: Attempt | None = None  # it is connecting to Ray, or connected
    begun: Begun | None = None


class End(NamedTuple):
    """How the process of a command has ended."""

    code: int  # negative: by this signal
    is_stopped: bool  # the user has stopped the command
    attempt: Attempt | None
    begun: Begun | None

    def is_its_own(self) -> bool:
        """Say whether the command ended by itself, not by a request to stop or by Ray."""
        if self.is_stopped and self.code in ENDED_BY_STOP:
            return False
        attempt = self.attempt
        return attempt is None or not (self.code in ENDED_BY_RAY or attempt.has_failed())


_noted = Notes()  # by this process
_NOTING = threading.Lock()  # Ray may be started in another thread than the one that works


def go_on_in_child(go_on: Callable[[End], None]) -> None:
    """Return in a child process; this one waits for it and ends as it does.

    go_on: called here if the user has stopped the child before it heard requests to stop, or Ray
    has ended it, or let it wait while it was connecting.
    """
    if sys.platform != "linux":
        return
    if (old := _notes_file()) is not None:  # the command has replaced itself
        os.ftruncate(old, 0)
        return
    for number in (signal.SIGCHLD, signal.SIGALRM):
        signal.signal(number, signal.SIG_DFL)  # ignored, it would never be heard
    before = signal.pthread_sigmask(signal.SIG_BLOCK, HEARD)
    notes, parent = os.memfd_create("notes"), os.getpid()
    alarm = signal.getitimer(signal.ITIMER_REAL)  # of whoever started the command
    child = os.fork()
    if child == 0:
        _end_with(parent)
        signal.setitimer(signal.ITIMER_REAL, *alarm)
        os.set_inheritable(notes, True)  # the command may replace itself in this process
        os.environ[PLACE] = f"{parent} {notes}"
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return
    end = _wait(child, notes)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    if not end.is_its_own():
        go_on(end)
    _end_like(end.code)


@contextlib.contextmanager
def connecting(is_own: bool, seconds: float) -> Iterator[None]:
    """Note for the parent that this process is connecting to Ray, and then that it is connected.

    seconds: how long that may take; then the parent kills this process.
    """
    starts, until = int(os.environ.get(STARTS, "0")), time.monotonic() + seconds
    attempt = Attempt(sys.orig_argv, starts, is_own, until)
    with ending_by_itself():
        _note(attempt=attempt)
        yield
        attempt = attempt._replace(until=None, since=time.monotonic())
    _note(attempt=attempt)


def note_begun(begun: Begun) -> None:
    """Note for the parent what this process has begun, so that it can say how to continue."""
    _note(begun=begun)


@contextlib.contextmanager
def ending_by_itself() -> Iterator[None]:
    """Note at the end that Ray does not end this process any more: whatever happens is its own."""
    try:
        yield
    finally:
        _note(attempt=None)


def _note(**news: Attempt | Begun | None) -> None:
    global _noted
    with _NOTING:
        _noted = _noted._replace(**news)  # type: ignore[arg-type]
        if (file := _notes_file()) is not None:
            os.ftruncate(file, 0)
            os.pwrite(file, json.dumps(_noted).encode(), 0)


def replace_command(words: list[str], environment: dict[str, str]) -> None:
    """Run another command in this process, which is still killed when its parent ends.

    The system remembers that for the thread that asked for it, and only this one goes on.
    """
    if _notes_file() is not None:
        _end_with(os.getppid())
    os.execve(sys.executable, [sys.executable, *words], environment)


def is_echo() -> bool:
    """Say whether a request to stop is one that has just come.

    What is sent to a group of processes comes twice, the second time through the parent.
    """
    global _stopped_at
    now = time.monotonic()
    if _notes_file() is not None and now - _stopped_at < ECHO_SECONDS:
        return True
    _stopped_at = now
    return False


def has_parent() -> bool:
    """Say whether this process works for a parent that says how it has ended."""
    return _notes_file() is not None


def _notes_file() -> int | None:
    """Return the file for notes, if this process is the child of a parent that reads them."""
    parent, _, notes = os.environ.get(PLACE, "").partition(" ")
    return int(notes) if parent == str(os.getppid()) else None


def _end_with(parent: int) -> None:
    """Let this process be killed when its parent ends, also by SIGKILL."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _wait(child: int, notes: int) -> End:
    """Wait until a process ends.

    What this one is told is passed on. A process whose attempt to connect has failed is killed.
    A timer wakes this one: sigtimedwait returns rubbish if the process is stopped meanwhile.
    """
    signal.setitimer(signal.ITIMER_REAL, LOOK_SECONDS, LOOK_SECONDS)
    is_stopped = False
    while True:
        info = signal.sigwaitinfo(HEARD)
        is_stopped = is_stopped or _is_stop(info.si_signo)
        # by a process, not by the timer; what a terminal sends reaches the child too
        if info.si_signo in PASSED_ON and info.si_code <= 0:
            os.kill(child, info.si_signo)
        ended, status = os.waitpid(child, os.WNOHANG)
        noted = _read(notes)  # after its end the child's last note stands
        if ended:
            _stop_timer()
            return End(os.waitstatus_to_exitcode(status), is_stopped, *noted)
        if noted.attempt is not None and noted.attempt.has_failed():
            os.kill(child, signal.SIGKILL)


def _is_stop(number: int) -> bool:
    """Say whether a signal asks the command to stop; nohup and the like let it ignore some."""
    return number in STOPPING and signal.getsignal(number) != signal.SIG_IGN


def _stop_timer() -> None:
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, signal.SIG_IGN)  # also drops one that has not been heard yet
    signal.signal(signal.SIGALRM, signal.SIG_DFL)


def _read(file: int) -> Notes:
    """Return what the child has noted; half a note will be whole the next time."""
    with contextlib.suppress(ValueError):
        attempt, begun = json.loads(os.pread(file, os.fstat(file).st_size, 0))
        return Notes(attempt and Attempt(*attempt), begun and Begun(*begun))
    return Notes()


def _end_like(code: int) -> None:
    """End as the child did, also by a signal."""
    if code < 0:
        with contextlib.suppress(OSError):
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code if code >= 0 else 128 - code)
