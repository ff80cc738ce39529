"""Errors in the user's code, shown as the user would see them without this package."""

import traceback
from pathlib import Path

from fedgps_ray.errors import UserError

PREFIX = "fedgps_ray_code_"  # of the packages that the user's files are imported as
_PACKAGE = str(Path(__file__).parents[1])
_IMPORTING = str(Path(__file__).parent)


def user_traceback(error: BaseException) -> str:
    """Return the traceback of an error from the user's code on, without what led to it."""
    shown = traceback.TracebackException.from_exception(error)
    link: traceback.TracebackException | None = shown
    while link is not None:
        link.stack[:] = _from_the_user_on(link.stack)
        link = link.__cause__ or link.__context__
    return "".join(shown.format() if shown.stack else shown.format_exception_only()).rstrip()


def _from_the_user_on(frames: list[traceback.FrameSummary]) -> list[traceback.FrameSummary]:
    told = [frame for frame in frames if not _imports(frame.filename)]
    own = [number for number, frame in enumerate(told) if frame.filename.startswith(PREFIX)]
    other = [number for number, frame in enumerate(told) if not _is_ours(frame.filename)]
    return told[(own or other or [len(told)])[0] :]


def _imports(filename: str) -> bool:
    return filename.startswith((_IMPORTING, "<frozen importlib")) or "/importlib/" in filename


def _is_ours(filename: str) -> bool:
    return filename.startswith(_PACKAGE) or filename.endswith("/ast.py")


def failed(what: str, error: BaseException) -> UserError:
    """Return the error for code outside the package that raised.

    The way to it is shown through files of the user's; in an installed package only its end.
    """
    shown = user_traceback(error)
    if PREFIX in shown or isinstance(error, SyntaxError):
        return UserError(f"{what}:\n{shown}")
    last = "".join(traceback.format_exception_only(error)).rstrip()
    return UserError(f"{what}: {last}")
