"""The one place that knows all models."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch

from fedgps_ray.errors import UserError, shown, unknown
from fedgps_ray.identity import Settings
from fedgps_ray.models.base import Model
from fedgps_ray.models.init import initialise
from fedgps_ray.models.outside import Adapted, Outside, Recipe
from fedgps_ray.models.resnet import resnet18, resnet50
from fedgps_ray.models.signature import Shape, Sizes, check_options
from fedgps_ray.models.small import cnn, convnet, mlp
from fedgps_ray.models.vit import vit
from fedgps_ray.references import Code, give_object, given

__all__ = [
    "MODELS",
    "Architecture",
    "Model",
    "Outside",
    "build",
    "check_takes_tokens",
    "initialise",
    "parse_model",
]


class Architecture(NamedTuple):
    """How to make a model, the smallest image side it takes, and a line about it."""

    make: Callable[[Any, int], Model]
    min_side: int
    explanation: str


MODELS: dict[str, Architecture] = {
    "mlp": Architecture(mlp, 1, "two hidden layers of 128 and 32 units; the fastest"),
    "cnn": Architecture(cnn, 4, "two 5x5 convolutions and a layer of 512 units; no BatchNorm"),
    "convnet": Architecture(convnet, 4, "three 3x3 convolutions with BatchNorm; 128 features"),
    "resnet18": Architecture(resnet18, 8, "ResNet-18 for small images; 512 features"),
    "resnet50": Architecture(resnet50, 8, "ResNet-50 for small images; 2,048 features"),
    "vit": Architecture(vit, 4, "vision transformer of 6 blocks, patches of 4x4; 192 features"),
}


def parse_model(value: object) -> str | Outside:
    """Return a built-in model's name, or a model from outside: a class, a function or a table."""
    if isinstance(value, Outside) or (isinstance(value, str) and value in MODELS):
        return value
    if callable(value):
        value = {"name": "", "code": give_object(value, "model")}
    if not isinstance(value, Mapping) or "name" not in value:
        raise unknown("model", str(value), MODELS)
    table = dict(value)
    name, code, head = str(table.pop("name")), table.pop("code", None), table.pop("head", None)
    given_options = table.pop("options", {})
    if not isinstance(given_options, Mapping):
        raise UserError(f"model.options: must be a table, got {shown(given_options)}")
    options = {**given_options, **table}
    if code is None:
        return _plain_model(name, head, options)
    code = code if isinstance(code, Code) else Code.from_table(name, code)
    return _outside(code, options, head)


def _plain_model(name: str, head: object, options: Settings) -> str:
    if name not in MODELS:
        raise unknown("model", name, MODELS)
    if head is not None or options:
        raise UserError(f"model '{name}' has no options, got {', '.join(options) or 'head'}")
    return name


def _outside(code: Code, options: Settings, head: object) -> Outside:
    if head is not None and not isinstance(head, str):
        raise UserError(f"model.head: must be the name of a layer, got {head!r}")
    make = given(code)
    check_options(make, options, code.name)
    return Outside(make, code.name, options, head)


def check_takes_tokens(model: str | Outside) -> None:
    """Refuse models that calculate with their input: tokens need an embedding first."""
    if not isinstance(model, Outside):
        raise UserError(
            f"model '{model}' takes numbers, and the data set holds tokens: use a model of your own"
            ' with an embedding, or layout "features" if these are numbers to calculate with'
        )


def build(
    model: str | Outside,
    image_shape: Shape,
    num_outputs: int,
    rng: np.random.Generator | None = None,
    dtype: torch.dtype = torch.float32,
) -> Model:
    """Return a model for inputs of a shape, (channels, height, width) for images.

    A built-in model has no values yet. A network from outside has its values from rng, on the CPU;
    what is not trained in it stays so. Its inputs are of dtype: whole numbers are tokens.
    """
    if isinstance(model, Outside):
        return Adapted(Recipe(model, Sizes(tuple(image_shape), num_outputs), dtype), rng)
    if model not in MODELS:
        raise unknown("model", model, MODELS)
    if model == "mlp":
        return mlp(image_shape, num_outputs)
    return MODELS[model].make(_checked(model, image_shape), num_outputs)


def _checked(name: str, shape: Shape) -> tuple[int, int, int]:
    if len(shape) != 3:
        told = "x".join(str(extent) for extent in shape)
        raise UserError(
            f"model '{name}' needs images, the data set has examples of shape {told};"
            " choose another model, such as 'mlp'"
        )
    channels, height, width = shape
    side = MODELS[name].min_side
    if min(height, width) < side:
        raise UserError(
            f"model '{name}' needs images of at least {side}x{side} pixels,"
            f" the data set has {height}x{width}; choose another model, such as 'mlp'"
        )
    return channels, height, width
