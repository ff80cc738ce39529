"""Figures of a round that compare methods: how clients' updates differ, how each client fares."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fedgps_ray.methods.averages import Replies, mean_of
from fedgps_ray.methods.base import Reply
from fedgps_ray.sums import normalised
from fedgps_ray.tensors import norm
from fedgps_ray.training.evaluate import Score
from fedgps_ray.training.local import Client

SCORES = (
    "accuracy",
    "loss",
    "class_accuracy",
    "worst_client_accuracy",
    "p10_client_accuracy",
    "median_client_accuracy",
)
UNTESTED = dict.fromkeys(SCORES)


def update_diversity(replies: Sequence[Reply]) -> float | None:
    """Return the mean of the updates' squared norms over the squared norm of their mean.

    Both means are by the shares of the server's own average, if it forms one.
    It is 1 if all clients move alike and grows as their updates cancel each other out.
    """
    norms = [reply.update_norm for reply in replies if reply.update_norm is not None]
    if len(norms) < len(replies):
        return None
    shares = averaged_shares(replies)
    together = norm(mean_of(replies, "delta", shares)) ** 2
    apart = sum(p * each**2 for p, each in zip(shares, norms, strict=True))
    return apart / together if together else None


def averaged_shares(replies: Sequence[Reply]) -> Sequence[float]:
    """Return the shares by which the server averages updates; equal ones if it does not."""
    equal = normalised([1.0] * len(replies))
    return replies.shares.get("delta", equal) if isinstance(replies, Replies) else equal


def label_counts(clients: Sequence[Client]) -> NDArray[np.float64]:
    """Return how many examples of each class each client holds."""
    return np.array([client.label_counts for client in clients], np.float64)


def scores(tested: Score | None, counts: NDArray[np.float64]) -> dict[str, object]:
    """Return the columns of a test; empty if there was none. counts: of clients by classes."""
    if tested is None:
        return dict(UNTESTED)
    accuracies = client_accuracies(tested.class_accuracy, counts)
    spread = np.quantile(accuracies, (0.0, 0.1, 0.5)).tolist() if len(accuracies) else [None] * 3
    values = (tested.accuracy, tested.loss, list(tested.class_accuracy), *spread)
    return dict(zip(SCORES, values, strict=True))


def client_accuracies(
    class_accuracy: Sequence[float | None], counts: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return each client's accuracy on the test set re-weighted by the client's class shares.

    Classes without test examples are left out, and so are clients that have no other classes.
    """
    known = [label for label, accuracy in enumerate(class_accuracy) if accuracy is not None]
    if not known:
        return np.empty(0)
    held = counts[:, known]
    sizes = held.sum(axis=1)
    right = held @ np.array([class_accuracy[label] for label in known], np.float64)
    accuracies: NDArray[np.float64] = right[sizes > 0] / sizes[sizes > 0]
    return accuracies
