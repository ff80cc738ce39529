"""Values to skeletons and tensors and back: what crosses to another process or to disk."""

import importlib
import sys
from collections.abc import Callable, Collection
from typing import Any

from torch import Tensor

from fedgps_ray.references import packages

Skeleton = Any  # a value in JSON's terms, with each tensor replaced by where it lies


def pack(value: object, place: Callable[[Tensor], object]) -> Skeleton:
    """Return the skeleton of a value made of named tuples, tuples, lists, dicts and tensors."""
    if isinstance(value, Tensor):
        return {"tensor": place(value)}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        _check_type(type(value))
        kind = f"{type(value).__module__}:{type(value).__qualname__}"
        return {"type": kind, "fields": [pack(item, place) for item in value]}
    if isinstance(value, tuple | list):
        kind = "tuple" if isinstance(value, tuple) else "list"
        return {kind: [pack(item, place) for item in value]}
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            raise TypeError("a method's value cannot hold a dict whose keys are not text")
        return {"dict": {key: pack(item, place) for key, item in value.items()}}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"a method's value cannot hold a {type(value).__name__}")


def _check_type(kind: type) -> None:
    """Refuse a named tuple that could not be found again."""
    module, name = kind.__module__, kind.__qualname__
    known = module.partition(".")[0] in ("fedgps_ray", *packages())
    if not known or getattr(sys.modules.get(module), name, None) is not kind:
        raise TypeError(
            f"a method's value holds a {name} of {module}: named tuples must be defined at the top"
            " level of the method's own file, or of one that it imports from beside it"
        )


def unpack(
    skeleton: Skeleton, tensor: Callable[[Any], Tensor], own: Collection[str] | None = None
) -> Any:
    """Return the value of a skeleton.

    own: packages beside this one whose types it may name; by default all outside code imported.
    """
    own = packages() if own is None else own
    if not isinstance(skeleton, dict):
        return skeleton
    (kind, content), *rest = skeleton.items()
    if kind == "tensor":
        return tensor(content)
    if kind == "type":
        return _tuple_type(content, own)(*(unpack(item, tensor, own) for item in rest[0][1]))
    if kind == "dict":
        return {key: unpack(item, tensor, own) for key, item in content.items()}
    items = [unpack(item, tensor, own) for item in content]
    return tuple(items) if kind == "tuple" else items


def _tuple_type(name: str, own: Collection[str]) -> Any:
    """Look up a named tuple of this package or of own ones; a skeleton can name nothing else.

    Of other packages only modules that the method has imported are looked at: none is imported.
    """
    module, _, kind = name.partition(":")
    if module.startswith("fedgps_ray."):
        named = getattr(importlib.import_module(module), kind)
    elif module.partition(".")[0] in own and module in sys.modules:
        named = getattr(sys.modules[module], kind)
    else:
        raise ValueError(f"a type outside the package is named: {name}")
    if not (isinstance(named, type) and issubclass(named, tuple) and hasattr(named, "_fields")):
        raise ValueError(f"not a named tuple: {name}")
    return named
