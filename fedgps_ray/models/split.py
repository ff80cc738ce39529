"""Where the features of any network end and its head begins, found by running it once."""

from collections import defaultdict
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from fedgps_ray.errors import UserError, unknown


class Split(NamedTuple):
    """The layer that gives the logits, whether the network splits itself, or why it cannot be."""

    layer: str | None
    own: bool = False
    feature_dim: int = 0
    reason: str = ""


class Run(NamedTuple):
    """One run of a network: its input, its logits, and what went in and came out of layers."""

    x: Tensor
    logits: Tensor
    calls: dict[str, list[tuple[Any, Any]]]


def logits_of(output: object, name: str) -> Tensor:
    """Return the logits, also where they are a field of what the network returns."""
    logits = output if isinstance(output, Tensor) else getattr(output, "logits", None)
    if not isinstance(logits, Tensor):
        kind = type(output).__name__
        raise UserError(f"{name} returns a {kind}, and not a tensor of one row for each input")
    return logits


@torch.no_grad()
def run(net: nn.Module, x: Tensor, name: str) -> Run:
    """Run a network and note what its layers see."""
    calls: dict[str, list[tuple[Any, Any]]] = defaultdict(list)

    def noted(layer: str) -> Callable[..., None]:
        return lambda module, args, output: calls[layer].append((args, output))

    layers = [(layer, module) for layer, module in net.named_modules() if layer]
    handles = [module.register_forward_hook(noted(layer)) for layer, module in layers]
    try:
        return Run(x, logits_of(net(x), name), calls)
    finally:
        for handle in handles:
            handle.remove()


def split(net: nn.Module, seen: Run, wanted: str | None, name: str) -> Split:
    """Return how a network falls into features and head."""
    if wanted is not None:
        return _named(net, seen, wanted, name)
    own = _own(net, seen, name)
    if own is not None:
        return own
    outputs = seen.logits.shape[1]
    linear = [
        layer
        for layer, module in net.named_modules()
        if isinstance(module, nn.Linear) and module.out_features == outputs
    ]
    for layer in reversed(linear):
        if not _problem(seen, layer):
            return Split(layer, feature_dim=_input(seen, layer).shape[1])
    return Split(None, reason=_unknown_head(net, name))


def _named(net: nn.Module, seen: Run, wanted: str, name: str) -> Split:
    layers = [layer for layer, _ in net.named_modules() if layer]
    if wanted not in layers:
        raise unknown(f"layer of {name}", wanted, layers)
    problem = _problem(seen, wanted)
    if problem:
        raise UserError(f"layer '{wanted}' cannot be the head of {name}: {problem}")
    return Split(wanted, feature_dim=_input(seen, wanted).shape[1])


def _input(seen: Run, layer: str) -> Tensor:
    args: tuple[Tensor, ...] = seen.calls[layer][0][0]
    return args[0]


def _problem(seen: Run, layer: str) -> str:
    """Return what keeps a layer from being the head, or nothing."""
    calls = seen.calls.get(layer, [])
    if len(calls) != 1:
        return f"it is used {len(calls)} times in a pass"
    (args, output), *_ = calls
    if not _same(output, seen.logits):
        return "its output is not the output of the network"
    if not (len(args) == 1 and isinstance(args[0], Tensor) and args[0].dim() == 2):
        return "its input is not one vector of features for each example"
    return ""


def _same(output: object, logits: Tensor) -> bool:
    return isinstance(output, Tensor) and torch.equal(output, logits)


@torch.no_grad()
def _own(net: object, seen: Run, name: str) -> Split | None:
    """Return the split of a network that has features(x) and head(z) itself."""
    features, head = getattr(net, "features", None), getattr(net, "head", None)
    if not (callable(features) and callable(head)):
        return None
    z = features(seen.x)
    if isinstance(z, Tensor) and z.dim() == 2 and _same(head(z), seen.logits):
        layer = "head" if isinstance(head, nn.Module) else None
        return Split(layer, own=True, feature_dim=z.shape[1])
    if isinstance(features, nn.Module):  # a layer of that name, such as torchvision's
        return None
    raise UserError(f"{name} has features(x) and head, but head(features(x)) is not its output")


def _unknown_head(net: nn.Module, name: str) -> str:
    kinds = [f"{layer} ({type(m).__name__})" for layer, m in net.named_modules() if layer]
    listed = kinds if len(kinds) <= 24 else [*kinds[:4], "...", *kinds[-20:]]
    return (
        f"this method needs the features of {name}, but no linear layer gives its output;"
        f' name the layer that does: {{ name = "{name}", head = "..." }}, or give the class'
        f" features(x) and head. Its layers: {', '.join(listed)}"
    )
