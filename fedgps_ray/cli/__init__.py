"""The command line: options to specs, events to the screen, mistakes to messages."""

import signal
import sys

from rich.markup import escape

# Help lists the commands in the order in which these are imported.
# isort: off
from fedgps_ray.cli import trials
from fedgps_ray.cli import sweeps
from fedgps_ray.cli import reporting
from fedgps_ray.cli import papers
from fedgps_ray.cli import listing
from fedgps_ray.cli import checking

# isort: on
from fedgps_ray.cli.app import app, err
from fedgps_ray.errors import ClientFailed, UserError

__all__ = ["app", "checking", "listing", "main", "papers", "reporting", "sweeps", "trials"]


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def main() -> None:
    """Run the command line; a user's mistake ends with a message and exit code 2."""
    signal.signal(signal.SIGTERM, _interrupt)
    try:
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
