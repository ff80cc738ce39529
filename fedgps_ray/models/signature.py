"""What a model's class or function is called with: the shape of the data, its classes, options."""

import inspect
import math
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from fedgps_ray.errors import UserError, unknown

Shape = tuple[int, ...]


class Sizes(NamedTuple):
    """The shape of one input (channels, height, width for images), and the number of outputs."""

    shape: Shape
    outputs: int


def _side(sizes: Sizes) -> int | tuple[int, int]:
    height, width = sizes.shape[-2:]
    return height if height == width else (height, width)


def _shape(sizes: Sizes) -> Shape:
    return sizes.shape


def _outputs(sizes: Sizes) -> int:
    return sizes.outputs


def _channels(sizes: Sizes) -> int:
    return sizes.shape[0]


def _features(sizes: Sizes) -> int:
    return math.prod(sizes.shape)


Rule = Callable[[Sizes], Any]
Options = Mapping[str, Any]
Keywords = dict[str, Any]
Factory = Callable[..., Any]
OF_IMAGES: tuple[Rule, ...] = (_channels, _side)
OUTPUTS = ("num_outputs", "num_classes", "n_classes", "num_labels")
ALWAYS: dict[str, Rule] = {  # names that mean one thing only: filled even if they have a default
    **dict.fromkeys(("image_shape", "input_shape"), _shape),
    **dict.fromkeys(("in_channels", "in_chans", "input_channels"), _channels),
    **dict.fromkeys(("image_size", "img_size"), _side),
    **dict.fromkeys(OUTPUTS, _outputs),
}
IF_REQUIRED: dict[str, Rule] = {  # names that can mean something else where they have a default
    **dict.fromkeys(("shape", "in_shape"), _shape),
    **dict.fromkeys(("channels", "num_channels"), _channels),
    **dict.fromkeys(("in_features", "num_features", "input_dim", "in_dim"), _features),
    **dict.fromkeys(("classes", "outputs", "out_features", "output_dim", "out_dim"), _outputs),
}
RULES = {**ALWAYS, **IF_REQUIRED}


class Call(NamedTuple):
    """The arguments of a call."""

    args: tuple[Any, ...]
    kwargs: Keywords


def arguments(make: Factory, sizes: Sizes, options: Options, name: str) -> Call:
    """Return what to call a class or function with; options win over what is filled in."""
    signature = _signature(make)
    if signature is None:
        return Call(tuple(sizes), dict(options))
    check_options(make, options, name)
    values = _values(signature, sizes, options)
    extra = _extra(signature, sizes, options)
    required = [p.name for p in _named(signature) if p.default is p.empty and p.name not in options]
    values |= _by_position(required, values, sizes)
    missing = [parameter for parameter in required if parameter not in values]
    if missing:
        raise UserError(_told_missing(name, missing))
    return _bound(signature, values, extra)


def _by_position(required: list[str], values: Options, sizes: Sizes) -> Keywords:
    """Take two parameters of other names for (image_shape, num_outputs)."""
    told = any(name in values and rule is _outputs for name, rule in RULES.items())
    if len(required) != 2 or (told and required[1] not in values):
        return {}
    pairs = zip(required, sizes, strict=True)
    return {name: value for name, value in pairs if name not in RULES}


def _values(signature: inspect.Signature, sizes: Sizes, options: Options) -> Keywords:
    values: Keywords = {}
    for parameter in _named(signature):
        rules = {**ALWAYS, **(IF_REQUIRED if parameter.default is parameter.empty else {})}
        rule = rules.get(parameter.name)
        if parameter.name in options:
            values[parameter.name] = options[parameter.name]
        elif rule is not None and (len(sizes.shape) == 3 or rule not in OF_IMAGES):
            values[parameter.name] = rule(sizes)
    return values


def check_options(make: Factory, options: Options, name: str) -> None:
    """Refuse an option that a class or function does not take; needs no data set."""
    signature = _signature(make)
    if signature is None or _takes_any_keyword(signature):
        return
    known = [parameter.name for parameter in _named(signature)]
    for key in options:
        if key not in known:
            raise unknown(f"option of {name}", key, [n for n in known if n not in ALWAYS])


def _signature(make: Factory) -> inspect.Signature | None:
    try:
        return inspect.signature(make)
    except (TypeError, ValueError):  # written in C: it says nothing about its parameters
        return None


def _extra(signature: inspect.Signature, sizes: Sizes, options: Options) -> Keywords:
    """Return the keywords beyond the named parameters; torchvision takes num_classes that way."""
    known = [parameter.name for parameter in _named(signature)]
    extra = {key: value for key, value in options.items() if key not in known}
    told = {*known, *options} & {*OUTPUTS, "classes", "outputs"}
    fills = _takes_any_keyword(signature) and not told
    return {"num_classes": sizes.outputs, **extra} if fills else extra


def _named(signature: inspect.Signature) -> list[inspect.Parameter]:
    anonymous = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [p for p in signature.parameters.values() if p.kind not in anonymous]


def _takes_any_keyword(signature: inspect.Signature) -> bool:
    kinds = [parameter.kind for parameter in signature.parameters.values()]
    return inspect.Parameter.VAR_KEYWORD in kinds


def _bound(signature: inspect.Signature, values: Options, extra: Options) -> Call:
    ordered = OrderedDict((n, values[n]) for n in signature.parameters if n in values)
    bound = inspect.BoundArguments(signature, ordered)
    return Call(bound.args, {**bound.kwargs, **extra})


def _told_missing(name: str, missing: list[str]) -> str:
    example = ", ".join(f"{parameter} = ..." for parameter in missing)
    return (
        f'{name} needs {" and ".join(missing)}: give it as {{ name = "{name}", {example} }},'
        " or let it take (image_shape, num_outputs)"
    )
