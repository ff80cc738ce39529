"""Replies as they leave a client's process: without what is added up there."""

from collections.abc import Mapping, Sequence

from fedgps_ray.methods.averages import Replies
from fedgps_ray.methods.base import Reply
from fedgps_ray.rounds.worker import Job
from fedgps_ray.sums import ExactSum
from fedgps_ray.tensors import num_bytes

Sums = dict[str, ExactSum]


def take_out(reply: Reply, shares: Mapping[str, float], sums: Sums) -> Reply:
    """Add the averaged fields of an upload to the sums; the rest stays in the reply."""
    for field, share in shares.items():
        sums.setdefault(field, ExactSum()).add(getattr(reply.upload, field), share)
    rest = reply.upload._replace(**dict.fromkeys(shares)) if shares else reply.upload
    return reply._replace(upload=rest, bytes_up=num_bytes(reply.upload))


def join(sums: Sums, others: Mapping[str, ExactSum]) -> None:
    """Add sums of another process."""
    for field, other in others.items():
        sums.setdefault(field, ExactSum()).join(other)


def collected(jobs: Sequence[Job], replies: Sequence[Reply], sums: Sums) -> Replies:
    """Return the replies of a round with its sums."""
    fields = jobs[0].shares if jobs else {}
    return Replies(replies, sums, {field: [job.shares[field] for job in jobs] for field in fields})
