"""Methods from outside the package, watched: errors in them are reported in the user's terms."""

import functools
import traceback
from collections.abc import Callable, Sequence
from numbers import Real
from typing import Any, cast

from torch import OutOfMemoryError, Tensor

from fedgps_ray.errors import ClientFailed, Stopped, UserError
from fedgps_ray.methods.base import Method, Reply
from fedgps_ray.references import found_of
from fedgps_ray.references.failures import failed

Arguments = Sequence[Any]  # of a member of a method
LOOP = "fedgps_ray.rounds.loop"
PASSED_ON = (UserError, ClientFailed, Stopped, OutOfMemoryError)  # a full GPU is not its fault


def guarded(method: Method) -> Method:
    """Return a method whose errors become messages; built-in methods are returned unchanged."""
    origin = found_of(type(method))
    return method if origin is None else cast(Method, _Guarded(method, origin.code.name))


class _Guarded:
    """Stands in for a method from outside."""

    def __init__(self, method: Method, name: str) -> None:
        self._method, self._name = method, name

    def __getattr__(self, member: str) -> Any:
        value = getattr(self._method, member)
        return self._watched(member, value) if callable(value) else value

    def _watched(self, member: str, function: Callable[..., object]) -> Callable[..., object]:
        @functools.wraps(function)  # the mark of a merge that averages stays visible
        def call(*arguments: object) -> object:
            try:
                result = function(*arguments)
            except PASSED_ON:
                raise
            except (Exception, SystemExit) as problem:  # the user's code can raise anything
                if _came_from_a_question(problem) or _ends_the_process(problem):
                    raise
                raise self._failed(member, arguments, problem) from None
            self._check(member, arguments, result)
            return result

        return call

    def _failed(self, member: str, arguments: Arguments, problem: BaseException) -> UserError:
        what = f"{self._name} failed in {member}{_where(member, arguments)}"
        hint = _unlike(arguments[1]) if member == "merge" else ""
        return failed(f"{what}{hint}", problem)

    def _check(self, member: str, arguments: Arguments, result: Any) -> None:
        if member == "send" and len(result) != len(arguments[1].clients):
            raise UserError(
                f"{self._name}: send returned {len(result)} messages for"
                f" {len(arguments[1].clients)} clients"
            )
        if member == "merge":
            self._check_merged(arguments, result)
        if member == "measure":
            self._check_figures("measure", result, Real | None)
        if member == "work":
            self._check_work(result)

    def _check_work(self, result: Any) -> None:
        if not hasattr(result, "upload"):
            raise UserError(f"{self._name}: work must return a Work, got {type(result).__name__}")
        if not isinstance(result.loss, Real):
            raise UserError(
                f"{self._name}: the loss of work must be a number, got {type(result.loss).__name__}"
            )
        self._check_figures("metrics of work", result.metrics, Real)

    def _check_figures(self, what: str, figures: object, number: Any) -> None:
        """Refuse figures that have no room in the rows."""
        if not isinstance(figures, dict) or not all(isinstance(name, str) for name in figures):
            kind = type(figures).__name__
            raise UserError(f"{self._name}: {what} must be a dict of numbers by name, got {kind}")
        for name, value in figures.items():
            if not isinstance(value, number):
                kind = type(value).__name__
                raise UserError(f"{self._name}: {what}: {name} must be a number, got {kind}")

    def _check_merged(self, arguments: Arguments, merged: object) -> None:
        before, after = (self.global_params(state) for state in (arguments[0], merged))
        for old, new in zip(before, after, strict=True):
            if old.shape != new.shape:
                raise UserError(
                    f"{self._name}: after merge the model has shape {_size(new)} instead of"
                    f" {_size(old)}{_unlike(arguments[1])}"
                )


def _where(member: str, arguments: Arguments) -> str:
    if member != "work":
        return ""
    return f" (client {arguments[0].client.id}, round {arguments[0].round + 1})"


def _unlike(replies: Sequence[Reply]) -> str:
    """Say which client's upload has another shape than the first one's, if any."""
    first = _shape(replies[0].upload)
    for reply in replies:
        if _shape(reply.upload) != first:
            one, other = replies[0].client.id, reply.client.id
            return (
                f" (the upload of client {other} is {_shape(reply.upload)}, that of client {one}"
                f" is {first})"
            )
    return ""


def _shape(value: object) -> str:
    """Return the structure of a value as text."""
    if isinstance(value, Tensor):
        return _size(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        own = zip(value._fields, value, strict=True)
        return f"{type(value).__name__}({', '.join(f'{k}={_shape(v)}' for k, v in own)})"
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(_shape, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{k}: {_shape(v)}' for k, v in value.items())}}}"
    return type(value).__name__


def _size(tensor: Tensor) -> str:
    return "x".join(map(str, tensor.shape)) or "one number"


def _came_from_a_question(problem: BaseException) -> bool:
    """Say whether it was raised while clients were asked: then it is not the method's fault."""
    return LOOP in _modules(problem)


def _ends_the_process(problem: BaseException) -> bool:
    """Say whether Ray ends this process, which it does by SystemExit in whatever is running."""
    return isinstance(problem, SystemExit) and _modules(problem)[-1].partition(".")[0] == "ray"


def _modules(problem: BaseException) -> list[str]:
    """Return the modules through which an exception has come, the one that raised it last."""
    frames = traceback.walk_tb(problem.__traceback__)
    return [str(frame.f_globals.get("__name__")) for frame, _ in frames]
