"""Values to skeletons and tensors and back: what crosses to another process or to disk."""

import importlib
from collections.abc import Callable
from typing import Any

from torch import Tensor

Skeleton = Any  # a value in JSON's terms, with each tensor replaced by where it lies


def pack(value: object, place: Callable[[Tensor], object]) -> Skeleton:
    """Return the skeleton of a value made of named tuples, tuples, lists, dicts and tensors."""
    if isinstance(value, Tensor):
        return {"tensor": place(value)}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
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


def unpack(skeleton: Skeleton, tensor: Callable[[Any], Tensor]) -> Any:
    """Return the value of a skeleton."""
    if not isinstance(skeleton, dict):
        return skeleton
    (kind, content), *rest = skeleton.items()
    if kind == "tensor":
        return tensor(content)
    if kind == "type":
        return _tuple_type(content)(*(unpack(item, tensor) for item in rest[0][1]))
    if kind == "dict":
        return {key: unpack(item, tensor) for key, item in content.items()}
    items = [unpack(item, tensor) for item in content]
    return tuple(items) if kind == "tuple" else items


def _tuple_type(name: str) -> Any:
    """Look up a named tuple of this package; a skeleton can name nothing else."""
    module, _, kind = name.partition(":")
    if not module.startswith("fedgps_ray."):
        raise ValueError(f"a type outside the package is named: {name}")
    named = getattr(importlib.import_module(module), kind)
    if not (isinstance(named, type) and issubclass(named, tuple) and hasattr(named, "_fields")):
        raise ValueError(f"not a named tuple: {name}")
    return named
