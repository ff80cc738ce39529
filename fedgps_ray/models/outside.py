"""Networks from outside the package: any nn.Module, used through the interface of Model."""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parameter import is_lazy
from torch.utils._python_dispatch import _disable_current_modes

from fedgps_ray.errors import UserError
from fedgps_ray.models.base import Model
from fedgps_ray.models.randomness import seeded
from fedgps_ray.models.signature import Sizes, arguments
from fedgps_ray.models.split import Split, logits_of, run, split
from fedgps_ray.references.failures import failed

EXAMPLES = 2  # number of inputs that a network is tried with


@dataclass(frozen=True)
class Outside:
    """A class or function that makes a network, its name, its options, and the head's layer."""

    make: Callable[..., Any]
    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    head: str | None = None

    def __hash__(self) -> int:
        return hash((self.name, self.head, repr(sorted(self.options.items()))))

    def __str__(self) -> str:
        return self.name


class Made(NamedTuple):
    """A network with values, how it splits, and the names of the buffers that are averaged."""

    net: nn.Module
    split: Split
    statistics: frozenset[str]


class Recipe(NamedTuple):
    """All that the values of a network follow from, but for a seed."""

    outside: Outside
    sizes: Sizes
    dtype: torch.dtype  # of the input; integers are tokens

    def make(self, rng: np.random.Generator | None) -> Made:
        """Return a network with first values that follow from the stream alone.

        It is made on the CPU, so that the values are equal on every device.
        """
        seed = 0 if rng is None else int(rng.integers(2**63))
        # with real values, also for a caller who works with fake tensors: constructors read some
        with _disable_current_modes(), seeded(seed), torch.device("cpu"):
            net = self._made()
            return Made(net, self._tried(net), _statistics(net))

    def _made(self) -> nn.Module:
        model = self.outside
        if isinstance(model.make, nn.Module):
            raise UserError(f"{model.name} is a network; name the class or function that makes it")
        call = arguments(model.make, self.sizes, model.options, model.name)
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "Lazy modules are a new feature")
                net = model.make(*call.args, **call.kwargs)
        except Exception as problem:  # the user's code can raise anything
            raise failed(f"{model.name} cannot be made", problem) from None
        if not isinstance(net, nn.Module):
            raise UserError(f"{model.name} makes a {type(net).__name__}, not a torch.nn.Module")
        return net

    def _tried(self, net: nn.Module) -> Split:
        """Run a network once: this makes lazy layers, checks the outputs and finds the head."""
        was_training, name = net.training, self.outside.name
        net.eval()
        try:
            x = self._input()
            _make_lazy_layers(net, x)
            _check_parameters(net, name)
            seen = run(net, x, name)
            _check_width(seen.logits, self.sizes, name)
            return split(net, seen, self.outside.head, name)
        except UserError:
            raise
        except Exception as problem:  # the user's code can raise anything
            shape = "x".join(str(extent) for extent in self.sizes.shape)
            raise failed(f"{name} cannot take inputs of shape {shape}", problem) from None
        finally:
            net.train(was_training)

    def _input(self) -> Tensor:
        shape = (EXAMPLES, *self.sizes.shape)
        if self.dtype.is_floating_point:
            return torch.randn(shape, dtype=torch.float32)
        return torch.zeros(shape, dtype=self.dtype)


@torch.no_grad()
def _make_lazy_layers(net: nn.Module, x: Tensor) -> None:
    if any(is_lazy(tensor) for tensor in (*net.parameters(), *net.buffers())):
        net(x)


def _check_parameters(net: nn.Module, name: str) -> None:
    named = list(net.named_parameters())
    unused = [key for key, p in named if is_lazy(p)]
    if unused:
        raise UserError(f"{name} never uses {', '.join(unused)}, whose size is therefore not known")
    odd = [key for key, p in named if not p.is_floating_point()]
    if odd:
        raise UserError(f"{name} has parameters that are not real numbers: {', '.join(odd)}")
    if not any(p.requires_grad for _, p in named):
        raise UserError(f"{name} has no parameters to train")


def _check_width(logits: Tensor, sizes: Sizes, name: str) -> None:
    if tuple(logits.shape) != (EXAMPLES, sizes.outputs):
        shape = "x".join(str(extent) for extent in logits.shape)
        raise UserError(
            f"{name} gives outputs of shape {shape} for {EXAMPLES} inputs; needed is"
            f" {EXAMPLES}x{sizes.outputs}, one row of {sizes.outputs} for each input."
            " Let it take num_outputs"
        )


class Adapted(Model):
    """Any network as a Model; features are the inputs of the layer that gives the logits."""

    def __init__(self, recipe: Recipe, rng: np.random.Generator | None) -> None:
        nn.Module.__init__(self)
        self.recipe, self.name = recipe, recipe.outside.name
        self.net, self.split, self.statistics = recipe.make(rng)
        self.feature_dim = self.split.feature_dim
        # not by assignment: the layer is part of the network, and must not be counted twice
        vars(self)["head"] = self._head()
        _allow_single_examples(self.net)

    def _head(self) -> object:
        if self.split.layer is not None:
            return self.net.get_submodule(self.split.layer)
        return cast(Any, self.net).head if self.split.own else _Missing(self.split.reason)

    def features(self, x: Tensor) -> Tensor:
        """Return one feature vector per input; the head is not run."""
        if isinstance(self.head, _Missing):
            raise UserError(self.split.reason)
        if self.split.own:
            features: Tensor = cast(Any, self.net).features(x.contiguous())
            return features
        return _input_of(self.head, self.net, x.contiguous())

    def forward(self, x: Tensor) -> Tensor:
        """Return one row of logits per input."""
        # images come with their channels last in memory, which x.view(len(x), -1) cannot take
        return logits_of(self.net(x.contiguous()), self.name)

    @torch.no_grad()
    def initialise(self, rng: np.random.Generator) -> None:
        """Set all that is trained or averaged to first values from a stream."""
        fresh = self.recipe.make(rng).net
        first = {**dict(fresh.named_parameters()), **dict(fresh.named_buffers())}
        for name, values in (*trained(self), *followed(self)):
            values.copy_(first[name])


class _Missing:
    """Stands for a head that is not known."""

    def __init__(self, reason: str) -> None:
        self.reason = reason

    def __call__(self, z: Tensor) -> Tensor:
        raise UserError(self.reason)


class _Reached(BaseException):
    """Ends a pass at the head; no error, so that no network can catch it."""


def _input_of(layer: nn.Module, net: nn.Module, x: Tensor) -> Tensor:
    """Return what a layer would see, and stop the pass there."""
    seen: list[Tensor] = []

    def stop(module: nn.Module, args: tuple[Tensor, ...]) -> None:
        seen.append(args[0])
        raise _Reached

    handle = layer.register_forward_pre_hook(stop)
    try:
        net(x)
    except _Reached:
        pass
    finally:
        handle.remove()
    return seen[0]


def _allow_single_examples(net: nn.Module) -> None:
    """Let BatchNorm take one value per channel by its running statistics, as built-in models do."""
    for module in net.modules():
        if isinstance(module, _BatchNorm) and module.track_running_stats:
            module.register_forward_pre_hook(_freeze_single)
            module.register_forward_hook(_thaw, always_call=True)


def _freeze_single(module: nn.Module, args: tuple[Tensor, ...]) -> None:
    x = args[0]
    vars(module)["was_training"] = module.training
    if module.training and x.numel() == x.shape[1]:
        module.training = False


def _thaw(module: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> None:
    module.training = vars(module).pop("was_training", module.training)


def root(model: nn.Module) -> nn.Module:
    """Return the network whose own names its parameters go by."""
    return model.net if isinstance(model, Adapted) else model


def trained(model: nn.Module) -> list[tuple[str, nn.Parameter]]:
    """Return the parameters that are trained, each once."""
    return [(name, p) for name, p in root(model).named_parameters() if p.requires_grad]


def followed(model: nn.Module) -> list[tuple[str, Tensor]]:
    """Return the buffers that follow training and are averaged: the statistics of a model."""
    named = [(name, b) for name, b in root(model).named_buffers() if b.is_floating_point()]
    if isinstance(model, Adapted):
        return [(name, b) for name, b in named if name in model.statistics]
    return named


def _statistics(net: nn.Module) -> frozenset[str]:
    """Return the names of the buffers that are averaged.

    Whole numbers, masks of infinities and what a module does not save, such as a table of
    positions, are no statistics: they stay as they are.
    """
    return frozenset(
        name
        for name, buffer in net.named_buffers()
        if buffer.is_floating_point() and _is_saved(net, name) and buffer.isfinite().all()
    )


def _is_saved(net: nn.Module, name: str) -> bool:
    owner, _, own = name.rpartition(".")
    return own not in net.get_submodule(owner)._non_persistent_buffers_set
