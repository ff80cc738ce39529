"""What a server only averages is added up where the clients work, and travels as one sum."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

from torch import Tensor

from fedgps_ray.methods.base import Method, Reply
from fedgps_ray.sums import ExactSum, normalised
from fedgps_ray.tensors import mean
from fedgps_ray.training.local import Client

Shares: TypeAlias = Mapping[str, Sequence[float]]  # by the field of an upload, one for each client
SharesOf: TypeAlias = Callable[[Any, Sequence[Client]], Shares]  # of a method and its clients
MergeT = TypeVar("MergeT", bound=Callable[..., Any])
MARK = "averaged_shares"


class Replies(list[Reply[Any]]):
    """Replies in the order sent; the fields of uploads that were added up are None in them."""

    def __init__(
        self, replies: Iterable[Reply[Any]], sums: Mapping[str, ExactSum], shares: Shares
    ) -> None:
        super().__init__(replies)
        self.sums, self.shares = dict(sums), dict(shares)


def averages(shares_of: SharesOf) -> Callable[[MergeT], MergeT]:
    """Mark a merge that takes only the mean of some fields of the uploads, by these shares.

    Only the function that is marked promises this: a subclass with a merge of its own gets whole
    uploads again, unless that is marked too.
    """

    def marked(merge: MergeT) -> MergeT:
        setattr(merge, MARK, shares_of)
        return merge

    return marked


def averaged(method: Method, clients: Sequence[Client]) -> dict[str, list[float]]:
    """Return the fields that a method only averages, and the shares, which add up to one."""
    shares_of: SharesOf | None = getattr(method.merge, MARK, None)
    shares = {} if shares_of is None else shares_of(method, clients)
    return {field: normalised(each) for field, each in shares.items()}


def mean_of(replies: Sequence[Reply[object]], field: str, shares: Sequence[float]) -> Tensor:
    """Return the weighted mean of a field of the uploads, from its sum if there is one."""
    if not isinstance(replies, Replies) or field not in replies.sums:
        return mean([getattr(reply.upload, field) for reply in replies], shares)
    if not _same(normalised(shares), replies.shares[field]):
        raise ValueError(f"{field} was added up by other shares than those of the mean")
    return replies.sums[field].total()


def _same(shares: Sequence[float], others: Sequence[float]) -> bool:
    return all(math.isclose(p, q, rel_tol=1e-9) for p, q in zip(shares, others, strict=True))


def by_shares(method: Any, clients: Sequence[Client]) -> Shares:
    """Return the shares of a method that averages updates and buffers by its own shares."""
    shares = method.shares(clients)
    return {"delta": shares, "buffers": shares}
