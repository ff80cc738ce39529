"""Models that train in seconds on a CPU.

They pool before the ReLU: the largest value is the same either way, and so is every gradient, but
the ReLU then has a quarter of the work.
"""

import math

from torch import nn

from fedgps_ray.models.base import Model
from fedgps_ray.models.norm import BatchNorm


def mlp(input_shape: tuple[int, ...], num_outputs: int) -> Model:
    """Return a perceptron with layers of 128 and 32 units, the second one being the features."""
    body = nn.Sequential(
        nn.Flatten(),
        nn.Linear(math.prod(input_shape), 128),
        nn.ReLU(),
        nn.Linear(128, 32),
        nn.ReLU(),
    )
    return Model(body, 32, num_outputs)


def cnn(image_shape: tuple[int, int, int], num_outputs: int) -> Model:
    """Return two 5x5 convolutions with pooling and a layer of 512 units; no BatchNorm."""
    channels, height, width = image_shape
    body = nn.Sequential(
        nn.Conv2d(channels, 32, 5, padding=2),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Conv2d(32, 64, 5, padding=2),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(64 * (height // 4) * (width // 4), 512),
        nn.ReLU(),
    )
    return Model(body, 512, num_outputs)


def convnet(image_shape: tuple[int, int, int], num_outputs: int) -> Model:
    """Return three 3x3 convolutions with BatchNorm and a global average of 128 channels."""
    body = nn.Sequential(
        *_convolution(image_shape[0], 32),
        nn.MaxPool2d(2),
        nn.ReLU(),
        *_convolution(32, 64),
        nn.MaxPool2d(2),
        nn.ReLU(),
        *_convolution(64, 128),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
    )
    return Model(body, 128, num_outputs)


def _convolution(inputs: int, outputs: int) -> list[nn.Module]:
    return [nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), BatchNorm(outputs)]
