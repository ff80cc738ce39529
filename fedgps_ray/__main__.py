"""The program: `fedgps-ray`, or `python -m fedgps_ray`."""

import os
import sys

from fedgps_ray.cluster import parent
from fedgps_ray.loading import load

WITH_RAY = ("run", "sweep", "resume", "paper")  # commands whose work may run on Ray


def main() -> None:
    """Run the command line; where Ray may end the process, in a child that can be replaced."""
    open_closed_streams()
    if sys.argv[1:2] and sys.argv[1] in WITH_RAY:
        parent.go_on_in_child(lambda attempt: load("fedgps_ray.cli.again:reconnect")(attempt))
    load("fedgps_ray.cli:main")()


def open_closed_streams() -> None:
    """Open a standard stream that was closed: Ray wants it, or a file of ours gets its number."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 (open to the end)


if __name__ == "__main__":
    main()
