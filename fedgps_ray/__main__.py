"""The program: `fedgps-ray`, or `python -m fedgps_ray`."""

import sys

from fedgps_ray.cluster import parent
from fedgps_ray.loading import load

WITH_RAY = ("run", "sweep", "resume", "paper")  # commands whose work may run on Ray


def main() -> None:
    """Run the command line; where Ray may end the process, in a child that can be replaced."""
    if sys.argv[1:2] and sys.argv[1] in WITH_RAY:
        parent.go_on_in_child(lambda attempt: load("fedgps_ray.cli.again:reconnect")(attempt))
    load("fedgps_ray.cli:main")()


if __name__ == "__main__":
    main()
