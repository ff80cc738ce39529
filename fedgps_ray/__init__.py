"""Federated-learning experiments under data heterogeneity.

The functions of docs/api.md are imported when they are first used, so importing the package takes
no time: neither PyTorch nor Ray is loaded. Some of them have the name of a part of the package:
`fedgps_ray.spec(...)` makes a spec, and `fedgps_ray.spec.TrialSpec` is its class.
"""

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # for editors; at run time it is imported when it is used
    from fedgps_ray.api.listing import datasets, methods, models
    from fedgps_ray.api.results import Result, Results, UserError, load, report
    from fedgps_ray.api.sweeps import sweep
    from fedgps_ray.api.trials import run, spec

__all__ = [
    "Result",
    "Results",
    "UserError",
    "__version__",
    "datasets",
    "load",
    "methods",
    "models",
    "report",
    "run",
    "spec",
    "sweep",
]
__version__ = "0.1.0"

PARTS = ("methods", "models", "spec", "sweep")  # modules that can also be called
API = {  # what there is, and the module of fedgps_ray.api that has it
    "Result": "results",
    "Results": "results",
    "UserError": "results",
    "datasets": "listing",
    "load": "results",
    "methods": "listing",
    "models": "listing",
    "report": "results",
    "run": "trials",
    "spec": "trials",
    "sweep": "sweeps",
}


class _Module(ModuleType):
    """A module that pickles as an import, as all modules do for Ray."""

    def __reduce__(self) -> Any:
        return importlib.import_module, (self.__name__,)


class _Part(_Module):
    """A module that stands for the function of the API with its name when it is called."""

    def __call__(self, *args: object, **settings: object) -> Any:
        return _function(self.__name__.rpartition(".")[2])(*args, **settings)


class _Package(_Module):
    """The package: the API beside its modules."""

    def __setattr__(self, name: str, value: object) -> None:
        """Let the modules of PARTS be called; Python sets them here once they are imported."""
        if name in PARTS and type(value) is ModuleType:
            value.__class__ = _Part
        super().__setattr__(name, value)

    def __getattr__(self, name: str) -> object:
        if name in PARTS:
            return importlib.import_module(f"fedgps_ray.{name}")
        if name in API:
            return _function(name)
        raise AttributeError(f"module 'fedgps_ray' has no attribute '{name}'")

    def __dir__(self) -> list[str]:
        return sorted({*API, *(name for name in super().__dir__() if name.startswith("__"))})


def _function(name: str) -> Any:
    return getattr(importlib.import_module(f"fedgps_ray.api.{API[name]}"), name)


sys.modules[__name__].__class__ = _Package
