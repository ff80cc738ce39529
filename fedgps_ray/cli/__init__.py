"""The command line: options to specs, events to the screen, mistakes to messages."""

import re
import sys
from collections.abc import Sequence
from typing import Annotated

import typer
from rich.markup import escape

from fedgps_ray import __version__
from fedgps_ray.cli import declared
from fedgps_ray.cli.again import LOST
from fedgps_ray.cli.app import app, err, out, say
from fedgps_ray.errors import ClientFailed, Lost, UserError
from fedgps_ray.units import is_text, printable

__all__ = ["app", "declared", "main"]

NOTHING = re.compile("--[a-z-]+=")
RENAMED = {"--anew": "--restart"}  # old names of options, which keep working


def main() -> None:
    """Run the command line; a user's mistake ends with a message and exit code 2."""
    try:
        arguments = _current_names(_checked(sys.argv[1:]))
        app(args=arguments, prog_name="fedgps-ray")
    except UserError as problem:
        _end("error", problem, 2)
    except BrokenPipeError:
        raise
    except OSError as problem:
        if problem.filename is None:  # not about a file that a user named
            raise
        _end("error", f"cannot read or write {problem.filename}: {problem.strerror}", 2)
    except Lost as loss:
        _end("lost", f"{loss}\nwhat is done is kept: the same command continues", LOST)
    except ClientFailed as failure:
        _end("failed", failure, 1)
    except KeyboardInterrupt:
        sys.exit(130)


def _show_version(wanted: bool) -> None:
    if wanted:
        out.print(f"fedgps-ray {__version__}", highlight=False)
        raise typer.Exit


@app.callback()
def program(
    version: Annotated[
        bool,
        typer.Option("--version", help="Show the version.", callback=_show_version, is_eager=True),
    ] = False,
) -> None:
    """Take the options that come before a command."""


def _checked(arguments: Sequence[str]) -> Sequence[str]:
    """Refuse words that are empty, as from a variable that is not set, or no text."""
    for before, word in zip(["fedgps-ray", *arguments], arguments, strict=False):
        if not word or NOTHING.fullmatch(word):
            raise UserError(f"there is an empty argument after {word or before}")
        if not is_text(word):
            raise UserError(f"the argument {printable(word)!r} is not valid UTF-8")
    return arguments


def _current_names(arguments: Sequence[str]) -> list[str]:
    """Return the arguments with options by the names they have now, and note what changed."""
    for old in set(arguments) & set(RENAMED):
        say(f"note: {old} is now called {RENAMED[old]}")
    return [RENAMED.get(word, word) for word in arguments]


def _end(kind: str, problem: object, code: int) -> None:
    text = f"[bold red]{kind}:[/] {escape(str(problem))}"
    err.print(text, soft_wrap=True, highlight=False)
    sys.exit(code)
