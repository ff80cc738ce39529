"""Accuracy and loss of a model on a test set."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F

from fedgps_ray.data.batches import Batch, Batches
from fedgps_ray.tensors import Params
from fedgps_ray.training.network import Network


class Score(NamedTuple):
    """How a model does on a test set."""

    accuracy: float
    loss: float


class Tally(NamedTuple):
    """Right answers and summed loss of one batch."""

    right: int
    loss: float
    size: int


@torch.no_grad()
def tallies(
    network: Network, params: Params, batches: Iterable[Batch], num_logits: int | None
) -> list[Tally]:
    """Test params batch by batch; with num_logits only the first so many outputs may win."""
    network.load(params)
    network.model.eval()
    found = []
    for batch in batches:
        logits = network(batch.x)[:, :num_logits]
        right = int((logits.argmax(dim=1) == batch.y).sum())
        loss = float(F.cross_entropy(logits, batch.y, reduction="sum"))
        found.append(Tally(right, loss, len(batch.y)))
    return found


def score(found: Sequence[Tally]) -> Score:
    """Sum up the batches in their order, so that it does not matter who tested which."""
    size = sum(tally.size for tally in found)
    right, loss = sum(tally.right for tally in found), sum(tally.loss for tally in found)
    return Score(right / size, loss / size)


def evaluate(network: Network, params: Params, test: Batches, num_logits: int | None) -> Score:
    """Test params on a whole set."""
    return score(tallies(network, params, test.plain(), num_logits))
