"""All methods by name: every class in this folder that has a `name`, in the order of the paper."""

import importlib
import pkgutil
from collections.abc import Iterator
from types import ModuleType

from fedgps_ray.methods.base import About, Method
from fedgps_ray.methods.fedavg import FedAvg
from fedgps_ray.titles import rank

__all__ = ["METHODS", "FedAvg", "Method", "about", "collect", "title"]


def collect() -> dict[str, type[Method]]:
    """Import the modules of this folder and return their methods by name."""
    named: dict[str, type[Method]] = {}
    for file in pkgutil.iter_modules(__path__, f"{__name__}."):
        for name, kind in _methods_of(importlib.import_module(file.name)):
            if name in named:
                raise ValueError(f"two methods are called {name}: {named[name]} and {kind}")
            named[name] = kind
    return {name: named[name] for name in sorted(named, key=rank)}


def _methods_of(module: ModuleType) -> Iterator[tuple[str, type[Method]]]:
    """Yield the classes that a module defines and that have a name of their own."""
    for value in vars(module).values():
        if isinstance(value, type) and value.__module__ == module.__name__:
            name = vars(value).get("name")
            if isinstance(name, str):
                yield name, value


def title(kind: type[Method]) -> str:
    """Return a method's published name; its short name or that of its class if it has none."""
    own = vars(kind)
    return str(own.get("title") or own.get("name") or kind.__name__)


def about(kind: type[Method]) -> About:
    """Return what a method says about itself, which may be nothing."""
    own = getattr(kind, "about", None)
    return own if isinstance(own, About) else About()


METHODS = collect()
