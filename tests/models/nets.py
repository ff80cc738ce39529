"""Networks as people write them, with layers that the built-in models do not have."""

import functools
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import nn


class GroupNormNet(nn.Module):
    def __init__(self, image_shape, num_outputs, width=8):
        super().__init__()
        self.conv = nn.Conv2d(image_shape[0], width, 3, padding=1)
        self.norm = nn.GroupNorm(2, width)
        self.fc = nn.Linear(width, num_outputs)

    def forward(self, x):
        return self.fc(F.silu(self.norm(self.conv(x))).mean(dim=(2, 3)))


class Flattening(nn.Module):
    """Uses view, which fails on images whose channels lie last in memory."""

    def __init__(self, in_features, out_features):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(in_features, 6), nn.BatchNorm1d(6), nn.PReLU(), nn.Linear(6, out_features)
        )

    def forward(self, x):
        return self.layers(x.view(len(x), -1))


class Reader(nn.Module):
    """An LSTM over tokens."""

    def __init__(self, num_classes, vocabulary=11, layers=2, bidirectional=True, dropout=0.0):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, 5, padding_idx=0)
        self.lstm = nn.LSTM(5, 4, layers, batch_first=True, bidirectional=bidirectional)
        self.dropout = nn.Dropout(dropout)
        self.out = nn.Linear(8 if bidirectional else 4, num_classes)

    def forward(self, tokens):
        states, _ = self.lstm(self.embedding(tokens))
        return self.out(self.dropout(states.mean(dim=1)))


class Encoder(nn.Module):
    """A transformer encoder with position ids, a causal mask and a table that is not saved."""

    def __init__(self, num_classes, input_shape, vocabulary=11, dim=8, dropout=0.0):
        super().__init__()
        (length,) = input_shape
        self.tokens = nn.Embedding(vocabulary, dim)
        self.positions = nn.Embedding(length, dim)
        block = nn.TransformerEncoderLayer(dim, 2, 16, dropout=dropout, batch_first=True)
        self.blocks = nn.TransformerEncoder(block, 2, enable_nested_tensor=False)
        self.cls = nn.Parameter(torch.randn(dim) * 0.02)
        self.head = nn.Linear(dim, num_classes)
        self.register_buffer("position_ids", torch.arange(length))
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(length))
        self.register_buffer("table", torch.linspace(0, 1, length)[:, None], persistent=False)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.positions(self.position_ids) + self.table + self.cls
        return self.head(self.blocks(x, mask=self.mask, is_causal=True).mean(dim=1))


class Attention(nn.Module):
    def __init__(self, image_shape, num_outputs):
        super().__init__()
        self.embed = nn.Linear(image_shape[0] * image_shape[1], 8)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.norm = nn.LayerNorm(8)
        self.out = nn.Linear(8, num_outputs, bias=False)

    def forward(self, x):
        rows = self.embed(x.transpose(1, 3).flatten(2))
        seen, _ = self.attention(rows, rows, rows, need_weights=False)
        return self.out(self.norm(rows + seen)[:, 0])


class DropPath(nn.Module):
    def __init__(self, rate):
        super().__init__()
        self.rate = rate

    def forward(self, x):
        if not self.training or not self.rate:
            return x
        return x * torch.empty(len(x), 1, 1).bernoulli_(1 - self.rate).to(x) / (1 - self.rate)


class TimmStyle(nn.Module):
    """As timm writes them: global names, drop path rates read back from a tensor, own weights."""

    def __init__(self, img_size=224, patch_size=4, in_chans=3, num_classes=1000, **kwargs):
        super().__init__()
        rates = [r.item() for r in torch.linspace(0, kwargs.get("drop_path_rate", 0.0), 2)]
        self.patch_embed = nn.Conv2d(in_chans, 8, patch_size, patch_size)
        self.pos_embed = nn.Parameter(torch.zeros(1, (img_size // patch_size) ** 2, 8))
        nn.init.trunc_normal_(self.pos_embed, std=0.02)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 8), nn.GELU(), DropPath(r)) for r in rates
        )
        self.head_drop = nn.Dropout(kwargs.get("drop_rate", 0.0))
        self.head = nn.Linear(8, num_classes)
        nn.init.zeros_(self.head.bias)

    def forward_features(self, x):
        x = self.patch_embed(x).flatten(2).transpose(1, 2) + self.pos_embed
        for block in self.blocks:
            x = x + block(x)
        return x.mean(dim=1)

    def forward(self, x):
        return self.head(self.head_drop(self.forward_features(x)))


class Tied(nn.Module):
    """Two layers share a matrix, which a plain list refers to as well."""

    def __init__(self, num_features, num_outputs):
        super().__init__()
        self.into = nn.Linear(num_features, 4)
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.second.weight = self.first.weight
        self.listed = [self.first.weight]
        self.out = nn.Linear(4, num_outputs)

    def forward(self, x):
        x = self.second(torch.tanh(self.first(self.into(x.flatten(1)))))
        return self.out(x + x @ self.listed[0])


class Frozen(nn.Module):
    """A random projection that is not trained, and a head on it."""

    def __init__(self, num_features, num_outputs):
        super().__init__()
        self.projection = nn.Linear(num_features, 6)
        self.projection.requires_grad_(False)
        self.fc = nn.Linear(6, num_outputs)

    def forward(self, x):
        return self.fc(torch.relu(self.projection(x.flatten(1))))


class Lazy(nn.Module):
    def __init__(self, num_outputs):
        super().__init__()
        self.layers = nn.Sequential(
            nn.LazyConv2d(4, 3), nn.LazyBatchNorm2d(), nn.Flatten(), nn.LazyLinear(num_outputs)
        )

    def forward(self, x):
        return self.layers(x)


class Parametrized(nn.Module):
    """Weights that are computed, parameters in lists and dicts, a statistic that is replaced."""

    def __init__(self, num_features, num_outputs):
        super().__init__()
        self.normed = nn.utils.parametrizations.weight_norm(nn.Linear(num_features, 5))
        self.scales = nn.ParameterList([nn.Parameter(torch.ones(5)), nn.Parameter(torch.ones(5))])
        self.shifts = nn.ParameterDict({"a": nn.Parameter(torch.randn(5))})
        self.register_buffer("average", torch.zeros(5))
        self.fc = nn.Linear(5, num_outputs)

    def forward(self, x):
        x = self.normed(x.flatten(1)) * self.scales[0] * self.scales[1] + self.shifts["a"]
        if self.training:
            self.average = 0.9 * self.average + 0.1 * x.mean(dim=0)
        return self.fc(x - self.average.detach())


class Splits(nn.Module):
    """Has features and head itself; the features are normalised."""

    def __init__(self, num_features, num_outputs):
        super().__init__()
        self.body, self.top = nn.Linear(num_features, 4), nn.Linear(4, num_outputs)

    def features(self, x):
        return F.normalize(self.body(x.flatten(1)))

    def head(self, z):
        return 10 * self.top(z)

    def forward(self, x):
        return self.head(self.features(x))


class Kind(NamedTuple):
    """A network, the shape and type of its inputs, and the layer that is its head."""

    make: object
    shape: tuple = (1, 8, 8)
    dtype: torch.dtype = torch.float32
    head: str | None = "fc"

    def inputs(self, number, dtype=torch.float32):
        """Return inputs as clients see them: images have their channels last in memory."""
        generator = torch.Generator().manual_seed(number)
        if not self.dtype.is_floating_point:
            return torch.randint(1, 11, (number, *self.shape), generator=generator)
        x = torch.randn(number, *self.shape, generator=generator).to(dtype)
        return x.to(memory_format=torch.channels_last)


def kinds():
    """Return all networks by what is special about them."""
    tokens = {"shape": (6,), "dtype": torch.int64}
    plain = functools.partial(Reader, layers=1, bidirectional=False)
    return {
        "group_norm": Kind(GroupNormNet),
        "batch_norm_1d": Kind(Flattening, shape=(3, 4, 4), head="layers.3"),
        "lstm": Kind(Reader, head="out", **tokens),
        "lstm_one_way": Kind(plain, head="out", **tokens),
        "encoder": Kind(Encoder, head="head", **tokens),
        "attention": Kind(Attention, head="out"),
        "timm": Kind(TimmStyle, shape=(3, 8, 8), head="head"),
        "tied": Kind(Tied, head="out"),
        "frozen": Kind(Frozen),
        "lazy": Kind(Lazy, head="layers.3"),
        "parametrized": Kind(Parametrized),
        "splits": Kind(Splits, head=None),
    }
