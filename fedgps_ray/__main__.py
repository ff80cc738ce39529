"""The program: `fedgps-ray`, or `python -m fedgps_ray`."""

import contextlib
import os
import sys

from fedgps_ray.cluster import parent
from fedgps_ray.cluster.stops import end_at_once
from fedgps_ray.loading import load

WITH_RAY = ("run", "sweep", "resume", "paper")  # commands whose work may run on Ray


def main() -> None:
    """Run the command line; where Ray may end the process, in a child that can be replaced."""
    open_closed_streams()
    end_at_once()
    if sys.argv[1:2] and sys.argv[1] in WITH_RAY:
        parent.go_on_in_child(lambda end: load("fedgps_ray.cli.again:go_on")(end))
    try:
        with parent.ending_by_itself():
            load("fedgps_ray.cli:main")()
    except SystemExit as end:
        if "ray" in sys.modules and isinstance(end.code, int):
            end_now(end.code)
        raise


def end_now(code: int) -> None:
    """End this process without waiting for threads of Ray, which may also crash it at its end."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):  # nobody reads it any more
            stream.flush()
    os._exit(code)


def open_closed_streams() -> None:
    """Open a standard stream that was closed: Ray wants it, or a file of ours gets its number."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 (open to the end)


if __name__ == "__main__":
    main()
