"""A small vision transformer (Dosovitskiy et al. 2021) with mean pooling and no dropout."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedgps_ray.models.base import Model

DIM, DEPTH, HEADS, HIDDEN = 192, 6, 3, 384


def vit(image_shape: tuple[int, int, int], num_outputs: int) -> Model:
    """Return a transformer of 6 blocks over patches of 4x4 pixels (2x2 below 16 pixels)."""
    channels, height, width = image_shape
    patch = 4 if min(height, width) >= 16 else 2
    num_patches = -(-height // patch) * -(-width // patch)
    body = nn.Sequential(
        Patches(channels, patch),
        Positions(num_patches),
        *(Block() for _ in range(DEPTH)),
        nn.LayerNorm(DIM),
        Mean(),
    )
    return Model(body, DIM, num_outputs)


class Patches(nn.Module):
    """Cuts images into patches, padded with zeros at the far edges, and embeds each one."""

    def __init__(self, channels: int, patch: int) -> None:
        super().__init__()
        self.patch = patch
        self.embed = nn.Conv2d(channels, DIM, patch, stride=patch)

    def forward(self, x: Tensor) -> Tensor:
        """Return images x patches x dimensions."""
        height, width = x.shape[-2:]
        padded = F.pad(x, (0, -width % self.patch, 0, -height % self.patch))
        embedded: Tensor = self.embed(padded)
        return embedded.flatten(2).transpose(1, 2)


class Positions(nn.Module):
    """Adds a learned vector to each patch."""

    def __init__(self, num_patches: int) -> None:
        super().__init__()
        self.values = nn.Parameter(torch.empty(num_patches, DIM))

    def forward(self, x: Tensor) -> Tensor:
        """Return the patches with their positions."""
        return x + self.values


class Attention(nn.Module):
    """Every patch looks at every patch."""

    def __init__(self) -> None:
        super().__init__()
        self.queries_keys_values = nn.Linear(DIM, 3 * DIM)
        self.out = nn.Linear(DIM, DIM)

    def forward(self, x: Tensor) -> Tensor:
        """Return the attended patches."""
        split = self.queries_keys_values(x).unflatten(-1, (3, HEADS, DIM // HEADS))
        queries, keys, values = split.permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(queries, keys, values)
        out: Tensor = self.out(attended.transpose(1, 2).flatten(2))
        return out


class Block(nn.Module):
    """Attention and a perceptron, each normalised first and with a shortcut around it."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.Sequential(nn.LayerNorm(DIM), Attention())
        self.perceptron = nn.Sequential(
            nn.LayerNorm(DIM), nn.Linear(DIM, HIDDEN), nn.GELU(), nn.Linear(HIDDEN, DIM)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return the patches after both parts."""
        looked: Tensor = x + self.attention(x)
        thought: Tensor = looked + self.perceptron(looked)
        return thought


class Mean(nn.Module):
    """Averages the patches."""

    def forward(self, x: Tensor) -> Tensor:
        """Return one vector per image."""
        return x.mean(dim=1)
