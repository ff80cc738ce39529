"""Accuracy and loss of a model on a test set."""

from typing import NamedTuple

import torch
import torch.nn.functional as F

from fedgps_ray.data.batches import Batches
from fedgps_ray.tensors import Params
from fedgps_ray.training.network import Network


class Score(NamedTuple):
    """How a model does on a test set."""

    accuracy: float
    loss: float


@torch.no_grad()
def evaluate(network: Network, params: Params, test: Batches, num_logits: int | None) -> Score:
    """Test params; with num_logits only the first so many outputs may win."""
    network.load(params)
    network.model.eval()
    right, loss, size = 0, 0.0, 0
    for batch in test.plain():
        logits = network(batch.x)[:, :num_logits]
        right += int((logits.argmax(dim=1) == batch.y).sum())
        loss += float(F.cross_entropy(logits, batch.y, reduction="sum"))
        size += len(batch.y)
    return Score(right / size, loss / size)
