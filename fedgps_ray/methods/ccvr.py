"""CCVR (Luo et al., 2021): the head of the tested model is refitted on virtual features.

The number of virtual features, the refit's settings and the clients asked are not given in the
paper; the defaults are those of a public implementation with the same learning rates.
"""

from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor, nn

from fedgps_ray.data.batches import Batches, Images
from fedgps_ray.methods.base import STRICT, About, Ask, Cohort, Turn
from fedgps_ray.methods.fedavg import FedAvgWith
from fedgps_ray.models.base import Model
from fedgps_ray.tensors import Params, Piece, all_finite
from fedgps_ray.training.gradients import backprop, cross_entropy
from fedgps_ray.training.local import Client, Local, NotNegative, Positive, Sgd, train
from fedgps_ray.training.network import Network

Count = Annotated[int, Field(ge=1)]


class State(NamedTuple):
    """The server's state: the global model, and where its head lies."""

    params: Params
    weight: Piece
    bias: Piece


class Query(NamedTuple):
    """Sent to every client: the model whose features are wanted, who is asked, which covariance."""

    params: Params
    clients: tuple[int, ...] | None  # None: from all
    covariance: str


class Moments(NamedTuple):
    """A client's answer for each class: examples, mean feature, unbiased (co)variance."""

    counts: Tensor
    means: Tensor
    covariances: Tensor


@dataclass(frozen=True, config=STRICT)
class CCVR(FedAvgWith[State, None]):
    """FedAvg, tested with a head refitted to Gaussian features; training never sees that head."""

    name: ClassVar[str] = "ccvr"
    title: ClassVar[str] = "CCVR"
    about: ClassVar[About] = FedAvgWith.about._replace(
        client="SGD on cross-entropy; class-wise moments of the features when asked",
        server="mean of the models; the tested copy's head refitted on virtual features",
        up="M; and from every client C(d + d^2)",
        down="M; and to every client M",
        source="Luo et al., NeurIPS 2021",
    )
    optimizer: ClassVar[Sgd] = Sgd(lr=0.001)

    virtual_features: Count = 2000  # per class
    covariance: Literal["full", "diagonal"] = "full"
    statistics_from: Literal["all", "sampled"] = "all"
    calibration_epochs: int = Field(default=10, ge=0)
    calibration_lr: Positive = 0.001
    calibration_momentum: float = Field(default=0.9, ge=0, lt=1)
    calibration_weight_decay: NotNegative = 1e-5
    calibration_batch_size: Count = 64

    def init(self, params: Params, cohort: Cohort) -> State:
        """Start from the initial model."""
        pieces = {piece.name: piece for piece in cohort.layout.weights}
        return State(params, pieces["head.weight"], pieces["head.bias"])

    def deploy(self, state: State, turn: Turn, ask: Ask) -> Params:
        """Return the model with another head, fitted to features drawn class by class."""
        sampled = tuple(client.id for client in turn.clients)
        asked = None if self.statistics_from == "all" else sampled
        answers = ask(class_moments, Query(state.params, asked, self.covariance))
        told = [answer for answer in answers if answer is not None]
        if not told or not all_finite(told):  # nothing to fit to
            return self.global_params(state)
        z, labels = self.draw(told, turn.rng)
        return self.refitted(state, z, labels, turn)

    def draw(self, told: Sequence[Moments], rng: np.random.Generator) -> tuple[Tensor, Tensor]:
        """Draw virtual features of every class that any client has."""
        counts = torch.stack([moments.counts for moments in told]).cpu()  # read once, used often
        told = [moments._replace(counts=n) for moments, n in zip(told, counts, strict=True)]
        present = counts.sum(dim=0).nonzero().flatten()
        drawn = [
            gaussian(*pooled(told, label), self.virtual_features, rng) for label in present.tolist()
        ]
        return torch.cat(drawn), present.repeat_interleave(self.virtual_features)

    def refitted(self, state: State, z: Tensor, labels: Tensor, turn: Turn) -> Params:
        """Train a copy of the head alone."""
        weights, buffers = state.params
        head = slice(state.weight.start, state.bias.end)
        num_outputs, feature_dim = state.weight.shape
        with torch.device("meta"):
            model = Model(nn.Flatten(), feature_dim, num_outputs)
        sgd = Sgd(self.calibration_lr, self.calibration_momentum, self.calibration_weight_decay)
        local = Local(
            network=Network(model, weights.device, weights.dtype),
            client=Client(-1, ()),
            round=turn.round,
            num_classes=num_outputs,
            epochs=self.calibration_epochs,
            optimizer=sgd,
            lr=sgd.lr,
            data=as_batches(
                z.to(weights), labels.to(weights.device), self.calibration_batch_size, turn.rng
            ),
        )
        start = Params(weights[head], buffers[:0])
        fitted = train(local, start, backprop(cross_entropy)).params.weights
        return Params(torch.cat([weights[: head.start], fitted, weights[head.stop :]]), buffers)


@torch.no_grad()
def class_moments(local: Local, memory: None, sent: Query) -> Moments | None:
    """Return the moments of a client's features under the model sent; None if it is not asked."""
    asked = sent.clients is None or local.client.id in sent.clients
    if not asked or not local.client.num_examples:
        return None
    local.network.load(sent.params)
    local.network.model.eval()
    pairs = [(local.network.features(batch.x), batch.y) for batch in local.examples()]
    z, labels = (torch.cat(parts) for parts in zip(*pairs, strict=True))
    return moments_of(z, labels, local.num_classes, sent.covariance == "full")


def moments_of(z: Tensor, labels: Tensor, num_classes: int, full: bool) -> Moments:
    """Return count, mean and covariance of each class; zero where there are too few examples."""
    feature_dim = z.shape[1]
    means = z.new_zeros(num_classes, feature_dim)
    covariances = z.new_zeros(num_classes, *([feature_dim] * (2 if full else 1)))
    counts = labels.bincount(minlength=num_classes)
    by_class = z[labels.argsort(stable=True)].split(counts.tolist())
    for label, own in enumerate(by_class):
        if not len(own):
            continue
        means[label] = own.mean(dim=0)
        away = own - means[label]
        scatter = away.T @ away if full else away.square().sum(dim=0)
        covariances[label] = scatter / max(len(own) - 1, 1)
    return Moments(counts, means, covariances)


def pooled(told: Sequence[Moments], label: int) -> tuple[Tensor, Tensor]:
    """Return mean and covariance of one class over all clients, in float64.

    Sig = sum_k [ (n_k - 1) Sig_k + n_k (mu_k - mu)(mu_k - mu)' ] / (N - 1)
    """
    having = [moments for moments in told if moments.counts[label]]
    counts = [float(moments.counts[label]) for moments in having]
    means = torch.stack([moments.means[label].double() for moments in having])
    weights = means.new_tensor(counts)[:, None]
    mean = (weights * means).sum(dim=0) / sum(counts)
    away = means - mean
    full = having[0].covariances.dim() == 3
    scatter = away.T @ (weights * away) if full else (weights * away.square()).sum(dim=0)
    for moments, n in zip(having, counts, strict=True):
        scatter = scatter + moments.covariances[label].double() * (n - 1)
    return mean, scatter / max(sum(counts) - 1, 1)


def gaussian(mean: Tensor, covariance: Tensor, size: int, rng: np.random.Generator) -> Tensor:
    """Draw from a normal distribution, even if the covariance does not have full rank."""
    drawn = torch.from_numpy(rng.standard_normal((size, len(mean)))).to(mean)
    if covariance.dim() == 1:
        return mean + drawn * covariance.sqrt()
    values, vectors = torch.linalg.eigh(covariance)
    root: Tensor = (vectors * values.clamp(min=0).sqrt()) @ vectors.T
    return mean + drawn @ root


def as_batches(z: Tensor, labels: Tensor, batch_size: int, rng: np.random.Generator) -> Batches:
    """Hand out feature vectors in shuffled batches, as images of one pixel."""
    one, zero = z.new_ones(1), z.new_zeros(1)
    pixels = Images(z[:, None, None, :], labels, one, zero)
    index = torch.arange(len(labels), device=labels.device)
    return Batches(pixels, index, batch_size, rng, rng)
