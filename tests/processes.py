"""Processes that tests start, whatever started the tests."""

import signal
import subprocess

from fedgps_ray.cluster.policy import POLICY


def start(command, **options):
    """Start a process that Ctrl-C reaches, also where a shell runs the tests in the background.

    Such a shell ignores SIGINT, and so does every process below it; only a signal that somebody
    handles goes back to its default when a program is started.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return subprocess.Popen(command, **options)
    finally:
        signal.signal(signal.SIGINT, before)


def patient(seconds):
    """Return a limit as it has to be on a machine that is busy with other things."""
    return seconds * POLICY.pace().slowness
