"""Accuracy and loss of a model on a test set."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F

from fedgps_ray.data.batches import Batch, Batches
from fedgps_ray.tensors import Params
from fedgps_ray.training.network import Network


class Score(NamedTuple):
    """The accuracy and mean loss of a model on a test set."""

    accuracy: float
    loss: float


class Tally(NamedTuple):
    """The correct answers and the summed loss of one batch."""

    right: int
    loss: float
    size: int


@torch.no_grad()
def tallies(
    network: Network, params: Params, batches: Iterable[Batch], num_logits: int | None
) -> list[Tally]:
    """Test params batch by batch; with num_logits only that many of the first outputs can win."""
    network.load(params)
    network.model.eval()
    sums, sizes = [], []
    for batch in batches:
        logits = network(batch.x)[:, :num_logits]
        right = (logits.argmax(dim=1) == batch.y).sum()
        loss = F.cross_entropy(logits, batch.y, reduction="sum")
        sums.append(torch.stack([right.double(), loss.double()]))
        sizes.append(len(batch.y))
    if not sums:
        return []
    read = torch.stack(sums).tolist()  # once for all batches: reading makes the host wait
    return [Tally(int(right), loss, n) for (right, loss), n in zip(read, sizes, strict=True)]


def score(tallied: Sequence[Tally]) -> Score:
    """Sum the batches in their order, so the result does not depend on who tested which."""
    size = sum(tally.size for tally in tallied)
    right = sum(tally.right for tally in tallied)
    return Score(right / size, sum(tally.loss for tally in tallied) / size)


def evaluate(network: Network, params: Params, test: Batches, num_logits: int | None) -> Score:
    """Test params on a whole set."""
    return score(tallies(network, params, test.plain(), num_logits))
