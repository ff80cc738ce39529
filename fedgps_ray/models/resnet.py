"""ResNets for small images (He et al. 2016): a 3x3 stem with stride 1 and no max pooling."""

from collections import OrderedDict
from collections.abc import Callable, Sequence

import torch.nn.functional as F
from torch import Tensor, nn

from fedgps_ray.models.base import Model
from fedgps_ray.models.norm import BatchNorm

STAGES = ((64, 1), (128, 2), (256, 2), (512, 2))  # width and stride

Layers = Callable[[int, int, int], nn.Sequential]  # inputs, width, stride


def resnet18(image_shape: tuple[int, int, int], num_outputs: int) -> Model:
    """Return a ResNet of 2-2-2-2 basic blocks with 512 features."""
    return _resnet(image_shape[0], num_outputs, _basic, expansion=1, depths=(2, 2, 2, 2))


def resnet50(image_shape: tuple[int, int, int], num_outputs: int) -> Model:
    """Return a ResNet of 3-4-6-3 bottleneck blocks with 2,048 features."""
    return _resnet(image_shape[0], num_outputs, _bottleneck, expansion=4, depths=(3, 4, 6, 3))


class Block(nn.Module):
    """Layers with a shortcut around them."""

    def __init__(self, layers: nn.Sequential, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.layers = layers
        same_shape = inputs == outputs and stride == 1
        self.shortcut = nn.Sequential() if same_shape else _convolution(inputs, outputs, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        """Return the sum of both ways."""
        return F.relu(self.layers(x) + self.shortcut(x))


def _resnet(
    channels: int, num_outputs: int, layers: Layers, expansion: int, depths: Sequence[int]
) -> Model:
    parts: OrderedDict[str, nn.Module] = OrderedDict()
    parts["stem"] = nn.Sequential(_convolution(channels, 64, 3, 1), nn.ReLU())
    inputs = 64
    for number, ((width, stride), depth) in enumerate(zip(STAGES, depths, strict=True), start=1):
        outputs = width * expansion
        parts[f"stage{number}"] = nn.Sequential(
            Block(layers(inputs, width, stride), inputs, outputs, stride),
            *(Block(layers(outputs, width, 1), outputs, outputs, 1) for _ in range(depth - 1)),
        )
        inputs = outputs
    parts["pool"] = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return Model(nn.Sequential(parts), inputs, num_outputs)


def _basic(inputs: int, width: int, stride: int) -> nn.Sequential:
    return nn.Sequential(
        _convolution(inputs, width, 3, stride), nn.ReLU(), _convolution(width, width, 3, 1)
    )


def _bottleneck(inputs: int, width: int, stride: int) -> nn.Sequential:
    return nn.Sequential(
        _convolution(inputs, width, 1, 1),
        nn.ReLU(),
        _convolution(width, width, 3, stride),
        nn.ReLU(),
        _convolution(width, 4 * width, 1, 1),
    )


def _convolution(inputs: int, outputs: int, size: int, stride: int) -> nn.Sequential:
    conv = nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False)
    return nn.Sequential(conv, BatchNorm(outputs))
