"""The command line: options to specs, events to the screen, mistakes to messages."""

import os
import signal
import sys

from rich.markup import escape

# Help lists the commands in the order in which these are imported.
# isort: off
from fedgps_ray.cli.commands import trials
from fedgps_ray.cli.commands import sweep
from fedgps_ray.cli.commands import report
from fedgps_ray.cli.commands import paper
from fedgps_ray.cli.commands import listing
from fedgps_ray.cli.commands import bench

# isort: on
from fedgps_ray.cli.app import app, err
from fedgps_ray.errors import ClientFailed, UserError

__all__ = ["app", "bench", "listing", "main", "paper", "report", "sweep", "trials"]


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def _hand_over_if_wanted() -> None:
    """Run the command on the cluster if it is to be reached by Ray Client."""
    if not any("ray://" in word for word in sys.argv[1:]):
        return
    os.environ.setdefault("RAY_AUTH_MODE", "token")  # before Ray is imported
    from fedgps_ray.cluster.handover import hand_over, split

    address, arguments = split(sys.argv[1:])
    if address is not None:
        sys.exit(hand_over(address, arguments, print))


def main() -> None:
    """Run the command line; a user's mistake ends with a message and exit code 2."""
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        _hand_over_if_wanted()
        app()
    except UserError as problem:
        err.print(f"[bold red]error:[/] {escape(str(problem))}", soft_wrap=True, highlight=False)
        sys.exit(2)
    except ClientFailed as failure:
        err.print(f"[bold red]failed:[/] {escape(str(failure))}", soft_wrap=True, highlight=False)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
    finally:
        if session := sys.modules.get("fedgps_ray.cluster.session"):
            session.abandon_early()
