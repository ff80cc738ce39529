"""Accuracy and loss of a model on a test set, as a whole and class by class."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F

from fedgps_ray.data.batches import Batch, Batches
from fedgps_ray.tensors import Params
from fedgps_ray.training.network import Network


class Outputs(NamedTuple):
    """How many classes there are, and how many of the first outputs can win (None: all)."""

    num_classes: int
    num_logits: int | None = None


class Score(NamedTuple):
    """The accuracy and mean loss of a model on a test set; None for classes it does not hold."""

    accuracy: float
    loss: float
    class_accuracy: tuple[float | None, ...] = ()


class Tally(NamedTuple):
    """The summed loss of one batch; for each class the correct answers and the examples."""

    loss: float
    right: list[int]
    size: list[int]


@torch.no_grad()
def tallies(
    network: Network, params: Params, batches: Iterable[Batch], outputs: Outputs
) -> list[Tally]:
    """Test params batch by batch; the figures are read from the device once, at the end."""
    network.load(params)
    network.model.eval()
    classes = torch.arange(outputs.num_classes, device=network.weights.device)
    losses, counts = [], []
    for batch in batches:
        logits = network(batch.x)[:, : outputs.num_logits]
        losses.append(F.cross_entropy(logits, batch.y, reduction="sum"))
        is_class = batch.y[:, None] == classes
        is_right = (logits.argmax(dim=1) == batch.y)[:, None] & is_class
        counts.append(torch.stack([is_right.sum(dim=0), is_class.sum(dim=0)]))
    if not losses:
        return []
    read = zip(torch.stack(losses).tolist(), torch.stack(counts).tolist(), strict=True)
    return [Tally(loss, *both) for loss, both in read]


def score(tallied: Sequence[Tally]) -> Score:
    """Sum the batches in their order, so the result does not depend on who tested which."""
    right = [sum(each) for each in zip(*(tally.right for tally in tallied), strict=True)]
    size = [sum(each) for each in zip(*(tally.size for tally in tallied), strict=True)]
    by_class = tuple(r / n if n else None for r, n in zip(right, size, strict=True))
    loss = sum(tally.loss for tally in tallied) / sum(size)
    return Score(sum(right) / sum(size), loss, by_class)


def evaluate(network: Network, params: Params, test: Batches, outputs: Outputs) -> Score:
    """Test params on a whole set."""
    return score(tallies(network, params, test.plain(), outputs))
