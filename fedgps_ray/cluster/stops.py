"""Requests to stop a command, by Ctrl-C or SIGTERM: what they do, and from when on."""

import contextlib
import os
import signal

from fedgps_ray.cluster.parent import is_echo

STOPPING = (signal.SIGINT, signal.SIGTERM)
_NOTES: list[int] = []  # a pipe from which the signals can be read that have come


def end_at_once() -> None:
    """Let a request to stop end this process: it has done nothing yet that could be lost.

    An exception would be dropped or delayed by libraries that are being imported, and by Ray.
    """
    _answer(signal.SIG_DFL)


def hear() -> None:
    """Let a request to stop raise an exception from now on, so that work can be kept."""
    _answer(_interrupt)
    if not _NOTES:
        reading, writing = os.pipe()
        os.set_blocking(reading, False)
        os.set_blocking(writing, False)
        signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        _NOTES.append(reading)


def has_come() -> bool:
    """Say whether a request to stop has come, also while Ray keeps the main thread from it."""
    come = b""
    if _NOTES:
        with contextlib.suppress(BlockingIOError):  # none has come
            come = os.read(_NOTES[0], 4096)
    return any(number in come for number in STOPPING)


def _answer(handler: object) -> None:
    for number in STOPPING:
        if signal.getsignal(number) != signal.SIG_IGN:  # ignored, as by nohup: it stays so
            signal.signal(number, handler)  # type: ignore[arg-type]


def _interrupt(*_: object) -> None:
    if not is_echo():
        raise KeyboardInterrupt
