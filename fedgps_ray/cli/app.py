"""The application, its two consoles, and what several commands use."""

import inspect
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import typer
from rich.markup import escape
from rich.table import Column, Table

from fedgps_ray.api.guard import GuardedConsole
from fedgps_ray.cluster.parent import has_parent
from fedgps_ray.cluster.stops import hear
from fedgps_ray.errors import UserError
from fedgps_ray.loading import load

Written = TypeVar("Written")
Options = TypeVar("Options")

HELP = {"help_option_names": ["-h", "--help"]}
app = typer.Typer(
    name="fedgps-ray",
    help="Federated-learning experiments under data heterogeneity: FedGPS, FedGPS-CF and the"
    " methods they are compared with.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings=HELP,
)
paper = typer.Typer(
    name="paper",
    help="The tables of the FedGPS paper as experiments.",
    no_args_is_help=True,
    context_settings=HELP,
)
new = typer.Typer(
    name="new",
    help="Files to start from: a method of your own with its test.",
    no_args_is_help=True,
    context_settings=HELP,
)
out = GuardedConsole()
err = GuardedConsole(stderr=True)


def command(
    name: str, body: str, example: str, group: typer.Typer = app
) -> Callable[[type[Options]], type[Options]]:
    """Make a command of a dataclass: its fields are the options, its docstring is the help.

    The body is a function of one such object, "module:function" in fedgps_ray.cli.commands. It is
    imported when the command is called, so help and wrong options do not wait for PyTorch or Ray.
    """

    def register(options: type[Options]) -> type[Options]:
        def call(**given: Any) -> None:
            _hand_over_if_wanted(given.get("address"))
            chosen = options(**given)  # checks them, so before the body is imported
            act = load(f"fedgps_ray.cli.commands.{body}")
            if not has_parent():  # else later: the parent says how a start was stopped
                hear()
            act(chosen)

        call.__doc__ = options.__doc__
        vars(call)["__signature__"] = inspect.signature(options)
        group.command(name, epilog=f"Example: fedgps-ray {example}")(call)
        return options

    return register


def _hand_over_if_wanted(address: str | None) -> None:
    """Run the whole command on the cluster if it is reached through Ray Client."""
    if address is not None and address.startswith("ray://"):
        hand_over = load("fedgps_ray.cluster.handover:hand_over")
        hear()
        raise typer.Exit(hand_over(address, sys.argv[1:], print))


def say(text: str) -> None:
    """Print a line on stderr; it is not broken, so that commands and paths can be copied."""
    err.print(escape(text), soft_wrap=True, highlight=False)


def show_json(content: object) -> None:
    """Print JSON for scripts, which has no infinite numbers and none that is not one: null."""
    text = json.dumps(content)
    if "NaN" in text or "Infinity" in text:
        text = json.dumps(json.loads(text, parse_constant=lambda _: None))
    print(text)


def writing(path: Path, write: Callable[[], Written]) -> Written:
    """Write a file; a path that cannot be written to is reported as the user's mistake."""
    try:
        return write()
    except OSError as problem:
        raise UserError(f"cannot write to {path}: {problem.strerror}") from None


def pairs(lines: dict[str, str]) -> Table:
    """Return names and texts side by side."""
    table = Table("", Column(overflow="fold"), show_header=False, box=None, pad_edge=False)
    for key, text in lines.items():
        table.add_row(key, escape(text))
    return table
