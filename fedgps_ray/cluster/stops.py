"""Requests to stop a command, by Ctrl-C or SIGTERM: what they do, and from when on."""

import signal

from fedgps_ray.cluster.parent import is_echo

STOPPING = (signal.SIGINT, signal.SIGTERM)


def end_at_once() -> None:
    """Let a request to stop end this process: it has done nothing yet that could be lost.

    An exception would be dropped or delayed by libraries that are being imported, and by Ray.
    """
    _answer(signal.SIG_DFL)


def hear() -> None:
    """Let a request to stop raise an exception from now on, so that work can be kept."""
    _answer(_interrupt)


def _answer(handler: object) -> None:
    for number in STOPPING:
        if signal.getsignal(number) != signal.SIG_IGN:  # ignored, as by nohup: it stays so
            signal.signal(number, handler)  # type: ignore[arg-type]


def _interrupt(*_: object) -> None:
    if not is_echo():
        raise KeyboardInterrupt
