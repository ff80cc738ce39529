"""Which parts of uploads are added up where the clients work."""

import pytest
import torch
from pydantic.dataclasses import dataclass

from fedgps_ray.methods import METHODS, FedAvg
from fedgps_ray.methods.averages import Replies, averaged, averages, by_shares, mean_of
from fedgps_ray.methods.base import Reply
from fedgps_ray.methods.fedlesam import FedLESAM
from fedgps_ray.methods.fedmr import FedMR
from fedgps_ray.methods.scaffold import Scaffold
from fedgps_ray.rounds.collect import join, take_out
from fedgps_ray.rounds.guard import _Guarded
from fedgps_ray.sums import ExactSum
from fedgps_ray.tensors import Update, mean, num_bytes
from fedgps_ray.training.local import Client

CLIENTS = (Client(0, (1,)), Client(1, (3,)))
BY_SAMPLES, EQUAL = [0.25, 0.75], [0.5, 0.5]


@dataclass(frozen=True)
class Median(FedAvg):
    """Needs every single update, as merges from outside may."""

    def merge(self, state, replies):
        deltas = torch.stack([reply.upload.delta for reply in replies])
        return state._replace(params=state.params._replace(weights=deltas.median(dim=0).values))


@dataclass(frozen=True)
class Marked(Median):
    @averages(by_shares)
    def merge(self, state, replies):
        return FedAvg.merge(self, state, replies)


@pytest.mark.parametrize(
    ("method", "shares"),
    [
        (FedAvg(), {"delta": BY_SAMPLES, "buffers": BY_SAMPLES}),
        (
            Scaffold(weighting="samples"),
            {"delta": BY_SAMPLES, "buffers": BY_SAMPLES, "control": EQUAL},
        ),
        (FedLESAM(), {"delta": EQUAL, "buffers": EQUAL, "control": EQUAL}),
        (FedLESAM(variant="base"), {"delta": EQUAL, "buffers": EQUAL}),
        (FedLESAM(variant="D"), {"delta": EQUAL, "buffers": EQUAL}),
        (FedLESAM(variant="D", weighting="samples"), {"buffers": BY_SAMPLES}),
        (FedMR(), {}),
        (Median(), {}),  # the mark belongs to the merge, so a new merge gets whole uploads
        (Marked(), {"delta": BY_SAMPLES, "buffers": BY_SAMPLES}),
    ],
)
def test_what_each_method_only_averages(method, shares):
    assert averaged(method, CLIENTS) == shares


def test_all_methods_but_one_let_their_updates_be_added_up():
    assert [name for name, kind in METHODS.items() if not averaged(kind(), CLIENTS)] == ["fedmr"]


def test_the_mark_is_seen_through_the_guard_of_outside_methods():
    for method in (Marked(), Median()):
        assert averaged(_Guarded(method, "mine"), CLIENTS) == averaged(method, CLIENTS)


def test_a_merge_from_outside_sees_every_update(quick):
    single, whole = quick(Median(), rounds=1), quick(FedAvg(), rounds=1)
    assert single[0].row["weights_sha256"] != whole[0].row["weights_sha256"]
    assert single[0].row["bytes_up"] == whole[0].row["bytes_up"]
    assert quick(Marked(), rounds=1)[0].row["weights_sha256"] == whole[0].row["weights_sha256"]


def test_what_is_added_up_leaves_the_reply_but_not_the_bytes_a_client_sends():
    vectors = [torch.tensor([1.0, 2.0]), torch.tensor([5.0, 6.0])]
    sums: dict[str, ExactSum] = {}
    replies = [
        take_out(Reply(client, Update(vector, vector[:1])), {"delta": share}, sums)
        for client, vector, share in zip(CLIENTS, vectors, BY_SAMPLES, strict=True)
    ]
    assert [reply.upload.delta for reply in replies] == [None, None]
    assert [float(reply.upload.buffers) for reply in replies] == [1.0, 5.0]
    assert [reply.bytes_up for reply in replies] == [
        num_bytes(Update(vectors[0], vectors[0][:1]))
    ] * 2
    told = Replies(replies, sums, {"delta": BY_SAMPLES})
    assert mean_of(told, "delta", [1, 3]).tolist() == [4.0, 5.0]
    assert mean_of(told, "buffers", [1, 1]).tolist() == [3.0]
    with pytest.raises(ValueError, match="other shares"):
        mean_of(told, "delta", [1, 1])


def test_sums_of_several_processes_make_one():
    vectors = [torch.randn(50, generator=torch.Generator().manual_seed(k)) for k in range(2)]
    sums: dict[str, ExactSum] = {}
    for vector, share in zip(vectors, BY_SAMPLES, strict=True):
        own: dict[str, ExactSum] = {}
        take_out(Reply(CLIENTS[0], Update(vector, vector)), {"delta": share}, own)
        join(sums, own)
    assert torch.equal(sums["delta"].total(), mean(vectors, BY_SAMPLES))
