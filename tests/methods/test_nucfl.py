import pytest
import torch
import torch.nn.functional as F
from torch import nn

from fedgps_ray.data.batches import Batch
from fedgps_ray.identity import neutral_values
from fedgps_ray.methods import nucfl
from fedgps_ray.methods.fedavg import FedAvg, Message
from fedgps_ray.methods.nucfl import NUCFL, Memory, likeness
from fedgps_ray.models.base import Model
from fedgps_ray.tensors import Params
from fedgps_ray.training.local import Client, Local, Sgd
from fedgps_ray.training.losses import confidence_gap
from fedgps_ray.training.network import Network

HOW = {"lr": 0.001, "weight_decay": 1e-4}
FEATURES = NUCFL(compare="features")


class Script:
    """Hands out the given batches, again in every epoch."""

    def __init__(self, batches):
        self.batches = batches

    def shuffled(self, epochs):
        for epoch in range(epochs):
            for batch in self.batches:
                yield batch._replace(epoch=epoch)


def local_of(model, weights, batches, epochs=1):
    network = Network(model, torch.device("cpu"), torch.float64)
    network.load(Params(torch.as_tensor(weights, dtype=torch.float64), torch.zeros(0)))
    sgd = Sgd(lr=0.1, momentum=0.0, weight_decay=0.0)
    return Local(network, Client(0, (1,)), 0, 2, epochs, sgd, sgd.lr, Script(batches))


@pytest.fixture
def two_layers():
    """A client with one linear layer before the head, and batches of 5, 2 and 1 examples."""
    generator = torch.Generator().manual_seed(0)
    drawn = [torch.randn(n, 3, dtype=torch.float64, generator=generator) for n in (5, 2, 1)]
    batches = [Batch(x, torch.arange(len(x)) % 2) for x in drawn]
    weights = torch.randn(17, dtype=torch.float64, generator=generator)
    return local_of(Model(nn.Linear(3, 3, bias=False), 3, 2), weights, batches)


@pytest.fixture
def similarities(monkeypatch):
    """Note the similarity of every step."""
    found = []
    real = nucfl.likeness

    def noted(pair, last):
        found.append(float(real(pair, last)))
        return real(pair, last)

    monkeypatch.setattr(nucfl, "likeness", noted)
    return found


def fixed(monkeypatch, value):
    monkeypatch.setattr(nucfl, "linear_cka", lambda x, y: torch.tensor(value))


def test_calibration_gap_is_weighted_by_similarity(monkeypatch):
    # top probabilities 0.9 (right) and 0.6 (wrong), twice: gap 0.25; 0.75 * 0.25 = 0.1875
    fixed(monkeypatch, 0.75)
    x = torch.tensor([[0.9, 0.1], [0.6, 0.4]] * 2, dtype=torch.float64).log()
    batch = Batch(x, torch.tensor([0, 1, 0, 1]))
    local = local_of(Model(nn.Identity(), 2, 2), [1, 0, 0, 1, 0, 0], [batch])
    start = local.network.params()
    loss = FEATURES.gradient(local, Message(start), None)(local, batch)
    assert float(loss) == pytest.approx(float(F.cross_entropy(x, batch.y)) + 0.1875)


def test_no_gradient_flows_through_similarity(two_layers, monkeypatch):
    fixed(monkeypatch, 0.3)
    local, start = two_layers, two_layers.network.params()
    batch = local.data.batches[0]
    FEATURES.gradient(local, Message(start), None)(local, batch)
    found = local.network.grads.clone()
    local.network.grads.zero_()
    logits = local.network(batch.x)
    (F.cross_entropy(logits, batch.y) + 0.3 * confidence_gap(logits, batch.y)).backward()
    torch.testing.assert_close(found, local.network.grads)


def test_similarity_itself_has_no_gradient(two_layers):
    local = two_layers
    pair = nucfl.features_of(local, local.network.params())(local, local.data.batches[0])
    assert not any(features.requires_grad for features in pair)
    assert local.network.model.training


def test_received_model_stays_while_the_local_one_moves(two_layers):
    local, batch = two_layers, two_layers.data.batches[0]
    sent = local.network.params()
    expected = local.network.features(batch.x).detach()
    local.network.weights.zero_()  # whatever the network was used for before
    pair = nucfl.features_of(local, sent)
    before = pair(local, batch)
    assert torch.equal(before[1], expected)
    local.network.weights.mul_(2)
    now, received = pair(local, batch)
    assert torch.equal(before[0], before[1])
    assert torch.equal(received, before[1])
    torch.testing.assert_close(now, 2 * received)


def test_small_batches_reuse_the_last_similarity(two_layers, similarities):
    two_layers.epochs = 2
    FEATURES.work(two_layers, Message(two_layers.network.params()), None)
    first, second = similarities[:3], similarities[3:]
    assert first == pytest.approx([1.0] * 3)
    assert second[0] < 1 - 1e-6
    assert second == [second[0]] * 3


def test_nothing_to_compare_keeps_the_last_similarity():
    two = torch.tensor([[1.0, 2.0], [3.0, 5.0]])
    assert likeness((two, two.flip(1)), 0.4) == 0.4
    assert likeness(None, 0.4) == 0.4


def test_similarity_is_at_most_one(monkeypatch):
    fixed(monkeypatch, 1.25)  # as by rounding
    three = torch.ones(3, 2)
    assert float(likeness((three, three), 0.4)) == 1.0


def test_constant_features_do_not_spoil_the_loss(two_layers):
    local = two_layers
    local.network.weights[:9] = 0.0  # all features are zero
    work = FEATURES.work(local, Message(local.network.params()), None)
    assert work.upload.delta.isfinite().all()


def test_similarity_once_an_epoch(two_layers, similarities):
    two_layers.epochs = 3
    NUCFL(compare="features", every="epoch").work(
        two_layers, Message(two_layers.network.params()), None
    )
    assert len(similarities) == 3


def test_first_similarity_is_one_in_spite_of_batchnorm(quick, similarities):
    row = quick(FEATURES, rounds=1, optimizer={"lr": 0.05}).pop().row
    assert len(similarities) == row["steps"]
    assert similarities[0] == pytest.approx(1.0, abs=1e-5)
    assert min(similarities) < 0.999
    assert max(similarities) <= 1.0


def test_the_mean_similarity_is_reported(two_layers, similarities):
    two_layers.epochs = 2
    work = NUCFL(compare="features").work(two_layers, Message(two_layers.network.params()), None)
    assert len(similarities) == 6
    assert work.metrics == {"similarity": pytest.approx(sum(similarities) / 6)}


def test_each_step_of_an_epoch_counts_its_similarity(two_layers, similarities):
    two_layers.epochs = 2
    method = NUCFL(compare="features", every="epoch")
    work = method.work(two_layers, Message(two_layers.network.params()), None)
    assert len(similarities) == 2
    assert work.metrics == {"similarity": pytest.approx(sum(similarities) / 2)}


# --- head updates ---------------------------------------------------------------------------------


def head_client(weights):
    return local_of(Model(nn.Identity(), 1, 3), weights, [])


def test_head_updates_are_compared_since_the_last_participation():
    # here (1, 0, -1) so far, globally (1, 0, 0): 0.75
    local = head_client([5.0, 5.0, 5.0, 0.0, 0.0, 0.0])
    received = local.network.params()
    memory = Memory(received.weights - torch.tensor([1.0, 0, 0, 0, 0, 0], dtype=torch.float64))
    pair = NUCFL(compare="head_updates").pair(local, received, memory)
    assert likeness(pair(local, None), 0.4) == 0.4  # not moved yet
    local.network.weights[:3] += torch.tensor([1.0, 0.0, -1.0])
    assert float(likeness(pair(local, None), 0.4)) == pytest.approx(0.75)


def test_head_updates_need_a_second_participation():
    local = head_client([5.0, 5.0, 5.0, 0.0, 0.0, 0.0])
    pair = NUCFL(compare="head_updates").pair(local, local.network.params(), None)
    local.network.weights[:3] += torch.tensor([1.0, 0.0, -1.0])
    assert pair(local, None) is None


def test_received_weights_are_kept_only_to_compare_updates(two_layers):
    sent = Message(two_layers.network.params())
    kept = NUCFL(compare="head_updates").work(two_layers, sent, None).memory
    assert kept.received is sent.params.weights
    assert FEATURES.work(two_layers, sent, None).memory is None


def test_head_updates_go_through_the_runtime(quick, similarities):
    quick(NUCFL(compare="head_updates"), rounds=2, sampling_rate=1.0)
    assert 0 <= min(similarities) < 0.999


# --- against FedAvg -------------------------------------------------------------------------------


def test_similarity_of_zero_is_fedavg(quick, monkeypatch):
    plain = quick(FedAvg(), optimizer=HOW)
    found = quick(FEATURES, rounds=1)
    assert found[0].row["weights_sha256"] != plain[0].row["weights_sha256"]
    fixed(monkeypatch, 0.0)
    found = quick(FEATURES)
    assert [f.row["weights_sha256"] for f in found] == [f.row["weights_sha256"] for f in plain]
    buffers = [f[-1].snapshot.state.params.buffers for f in (found, plain)]
    assert torch.equal(*buffers)


def test_batches_of_one_example_with_batchnorm(quick):
    data = {"name": "synthetic", "image_size": 4, "train_size": 30, "test_size": 10}
    finished = quick(FEATURES, dataset=data, clients=2, batch_size=1, rounds=1)
    assert finished[0].clients[0]["steps"] == finished[0].clients[0]["samples"]


def test_settings_are_those_of_the_paper():
    assert NUCFL.optimizer == Sgd(lr=0.001, momentum=0.9, weight_decay=1e-4)
    assert NUCFL().every == "batch"


def test_head_updates_are_compared_unless_features_are_asked_for():
    assert NUCFL().compare == "head_updates"
    assert neutral_values(NUCFL)["compare"] == "features"  # the id of earlier trials stays


@pytest.mark.parametrize("wrong", [{"compare": "logits"}, {"every": 2}, {"beta": 1.0}])
def test_wrong_settings_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        NUCFL(**wrong)
