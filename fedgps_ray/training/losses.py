"""Losses that several methods share, and terms that one method adds to its loss."""

from typing import Literal

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


def decorrelation(z: Tensor, form: Literal["code", "paper"] = "code") -> Tensor:
    """Return how strongly the feature dimensions of a batch are correlated; 0 for one example.

    With A = Z'Z of the standardised features, n rows and d columns:
    code: mean over the off-diagonal entries of A^2, divided by n;  paper: |A / (n - 1)|^2 / d^2
    """
    n, d = z.shape
    if n < 2 or d < 2:
        return z.new_zeros(())
    z = (z - z.mean(dim=0)) / (z.var(dim=0) + 1e-8).sqrt()
    a = z.T @ z
    if form == "paper":
        return (a / (n - 1)).square().mean()
    return (a - a.diagonal().diag()).square().sum() / (d * (d - 1) * n)


def confidence_gap(logits: Tensor, labels: Tensor) -> Tensor:
    """Return |mean top probability - accuracy| (DCA); only the confidence carries a gradient."""
    confidence, predicted = logits.softmax(dim=1).max(dim=1)
    accuracy = (predicted == labels).to(logits.dtype).mean()
    return (confidence.mean() - accuracy).abs()


def linear_cka(x: Tensor, y: Tensor) -> Tensor:
    """Return the linear centred kernel alignment of two feature matrices with the same rows.

    |Y'X|^2 / (|X'X| |Y'Y|) with centred columns, computed from the row products XX' and YY',
    which are smaller for a batch: |Y'X|^2 = <XX', YY'> and |X'X| = |XX'|
    """
    x, y = x - x.mean(dim=0), y - y.mean(dim=0)
    rows_x, rows_y = x @ x.T, y @ y.T
    sizes: Tensor = rows_x.norm() * rows_y.norm()
    return (rows_x * rows_y).sum() / (sizes + 1e-12)
