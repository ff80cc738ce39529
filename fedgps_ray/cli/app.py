"""The application, its two consoles, and what several commands use."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, TypeVar

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from fedgps_ray.errors import UserError

Written = TypeVar("Written")

app = typer.Typer(
    name="fedgps-ray",
    help="Federated-learning experiments under data heterogeneity: FedGPS, FedGPS-CF and what they"
    " are compared with.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
out = Console()
err = Console(stderr=True)

Json = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]


def writing(path: Path, write: Callable[[], Written]) -> Written:
    """Write a file; a place that cannot be written to is the user's to mend."""
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
