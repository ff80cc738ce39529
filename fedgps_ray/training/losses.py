"""Losses that several methods share."""

import torch
import torch.nn.functional as F
from torch import Tensor


def supervised_contrast(z: Tensor, labels: Tensor, temperature: float = 0.07) -> Tensor:
    """Return the supervised contrastive loss; a row without a positive gives 0 but is counted.

    l_i = -1/|P(i)| sum_{j in P(i)} [ s_ij - log sum_{a != i} exp(s_ia) ],  s = cosine / temperature
    """
    z = F.normalize(z, dim=1)
    similarity = z @ z.T / temperature
    itself = torch.eye(len(z), dtype=torch.bool, device=z.device)
    log_all = similarity.masked_fill(itself, -torch.inf).logsumexp(dim=1, keepdim=True)
    positive = (labels[:, None] == labels[None, :]) & ~itself
    # a row on its own has no contrast: its log-sum is -inf, and nothing may be multiplied with it
    terms = torch.where(positive, similarity - log_all, torch.zeros_like(similarity))
    return -(terms.sum(dim=1) / positive.sum(dim=1).clamp(min=1)).mean()
