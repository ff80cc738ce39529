"""The one place that knows all models."""

from collections.abc import Callable
from typing import Any, NamedTuple

from fedgps_ray.errors import UserError, unknown
from fedgps_ray.models.base import Model
from fedgps_ray.models.init import initialise
from fedgps_ray.models.resnet import resnet18, resnet50
from fedgps_ray.models.small import cnn, convnet, mlp
from fedgps_ray.models.vit import vit

__all__ = ["MODELS", "Architecture", "Model", "build", "check_takes_tokens", "initialise"]


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


def check_takes_tokens(name: str) -> None:
    """Refuse models that calculate with their input: tokens need an embedding first."""
    if name in MODELS:
        raise UserError(
            f"model '{name}' takes numbers, and the data set holds tokens: use a model of your own"
            ' with an embedding, or layout "features" if these are numbers to calculate with'
        )


def build(name: str, input_shape: tuple[int, ...], num_outputs: int) -> Model:
    """Return a model for images of (channels, height, width), or for rows of another shape.

    Its values are still to be drawn.
    """
    if name not in MODELS:
        raise unknown("model", name, MODELS)
    architecture = MODELS[name]
    if name == "mlp":
        return mlp(input_shape, num_outputs)
    if len(input_shape) != 3:
        raise UserError(
            f"model '{name}' needs images, the data set has examples of shape {input_shape};"
            " choose another model, such as 'mlp'"
        )
    _, height, width = image_shape = input_shape
    if min(height, width) < architecture.min_side:
        side = architecture.min_side
        raise UserError(
            f"model '{name}' needs images of at least {side}x{side} pixels,"
            f" the data set has {height}x{width}; choose another model, such as 'mlp'"
        )
    return architecture.make(image_shape, num_outputs)
