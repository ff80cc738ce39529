"""Methods from outside the package, watched."""

from types import SimpleNamespace

import pytest

from fedgps_ray.errors import UserError
from fedgps_ray.rounds.guard import _Guarded


def ending_in(module):
    """Make a method that ends the process, by a function of some module."""
    names = {"__name__": module}
    exec("def init(): raise SystemExit(0)", names)
    return _Guarded(SimpleNamespace(init=names["init"]), "mine.py:M")


def test_a_method_that_ends_the_process_has_failed():
    with pytest.raises(UserError, match=r"mine\.py:M failed in init"):
        ending_in("mine").init()


def test_that_ray_ends_the_process_is_not_the_methods_fault():
    with pytest.raises(SystemExit):
        ending_in("ray._private.worker").init()
