import pytest
import torch
import torch.nn.functional as F

from fedgps_ray.data.batches import Batch
from fedgps_ray.tensors import Params
from fedgps_ray.training.gradients import backprop, cross_entropy, plus, shifted
from fedgps_ray.training.local import train

SHIFT = torch.linspace(-1.0, 1.0, 31)


def one(x):
    return Batch(torch.tensor([[x]], dtype=torch.float64), torch.tensor([0]))


def square(local, batch):
    """Return (w x)^2, whose gradient is 2 w x^2."""
    return local.network(batch.x).square().sum()


def vector(*values):
    return torch.tensor(values, dtype=torch.float64)


# --- backprop -------------------------------------------------------------------------------------


def test_backprop_fills_the_gradient_and_returns_the_loss(toys):
    local = toys.local(toys.scalar(3.0))
    value = backprop(square)(local, one(2.0))
    assert value.item() == 36.0  # (3*2)^2
    assert local.network.grads.item() == 24.0  # 2*3*4
    assert not value.requires_grad
    assert local.backward_passes == 1


def test_cross_entropy_is_the_mean_over_all_outputs(toys):
    network, (batch, *_) = toys.convolution(), toys.images()
    logits = network(batch.x).log_softmax(dim=1)
    by_hand = -sum(logits[i, y] for i, y in enumerate(batch.y)) / len(batch.y)
    got = cross_entropy(toys.local(network), batch)
    assert got.item() == pytest.approx(by_hand.item(), abs=1e-6)


# --- plus -----------------------------------------------------------------------------------------


def test_plus_adds_a_vector_to_the_gradient_and_not_to_the_loss(toys):
    local = toys.local(toys.scalar(3.0))
    value = plus(backprop(square), lambda now: vector(0.5) * now.network.weights)(local, one(2.0))
    assert value.item() == 36.0
    assert local.network.grads.item() == 25.5  # 24 + .5*3
    assert local.backward_passes == 1


def test_what_plus_adds_is_clipped_with_the_rest(toys):
    # 24 + 1 = 25, cut to 5: 3 - .1*5; added after clipping it would be 3 - .1*6
    local = toys.local(toys.scalar(), [one(2.0)], lr=0.1, max_norm=5.0)
    start = Params(vector(3.0), vector())
    done = train(local, start, plus(backprop(square), lambda now: vector(1.0)))
    assert done.params.weights.item() == pytest.approx(2.5, abs=1e-6)


# --- shifted --------------------------------------------------------------------------------------


def test_shifted_takes_the_gradient_elsewhere(toys):
    local = toys.local(toys.scalar(3.0))
    value = shifted(backprop(square), vector(2.0))(local, one(2.0))
    assert value.item() == 100.0  # ((3+2)*2)^2
    assert local.network.grads.item() == 40.0  # 2*5*4
    assert local.network.weights.item() == 3.0


def test_the_step_starts_from_the_weights_not_from_the_shifted_ones(toys):
    # 3 - .01*40 = 2.6, then 2*(2.6+2)*4 = 36.8: 2.6 - .368; the decay sees 3 and 2.6 only
    local = toys.local(toys.scalar(), [one(2.0), one(2.0)], lr=0.01)
    start = Params(vector(3.0), vector())
    done = train(local, start, shifted(backprop(square), vector(2.0)))
    assert done.params.weights.item() == pytest.approx(2.232)
    # 40 + .5*3 = 41.5: 3 - .415; at the shifted point it would be 42.5
    local = toys.local(toys.scalar(), [one(2.0)], lr=0.01, weight_decay=0.5)
    done = train(local, start, shifted(backprop(square), vector(2.0)))
    assert done.params.weights.item() == pytest.approx(2.585)


def test_shifted_restores_the_weights_bit_for_bit(toys):
    network, (batch, *_) = toys.convolution(), toys.images()
    before = network.weights.clone()
    assert not torch.equal(before + SHIFT - SHIFT, before)  # subtracting again would not do
    shifted(backprop(cross_entropy), SHIFT)(toys.local(network), batch)
    assert torch.equal(network.weights, before)


def test_shifted_leaves_the_shift_alone(toys):
    kept = SHIFT.clone()
    gradient = shifted(backprop(cross_entropy), SHIFT)
    local = toys.local(toys.convolution(), lr=0.1)
    for batch in toys.images():
        gradient(local, batch)
    assert torch.equal(kept, SHIFT)


def test_shifted_gives_gradient_and_statistics_of_the_shifted_point(toys):
    network, (batch, *_) = toys.convolution(), toys.images()
    shifted(backprop(cross_entropy), SHIFT)(toys.local(network), batch)
    there = toys.convolution()
    there.weights.add_(SHIFT)
    torch.autograd.backward(F.cross_entropy(there(batch.x), batch.y))
    assert torch.equal(network.grads, there.grads)
    assert torch.equal(network.buffers, there.buffers)
    here = toys.convolution()
    here(batch.x)
    assert not torch.equal(network.buffers, here.buffers)


def test_a_shift_of_nothing_changes_nothing(toys):
    network, (batch, *_) = toys.convolution(), toys.images()
    plain = toys.convolution()
    shifted(backprop(cross_entropy), torch.zeros(31))(toys.local(network), batch)
    backprop(cross_entropy)(toys.local(plain), batch)
    assert torch.equal(network.grads, plain.grads)


def test_shifts_add_up(toys):
    local = toys.local(toys.scalar(3.0))
    shifted(shifted(backprop(square), vector(2.0)), vector(-1.0))(local, one(2.0))
    assert local.network.grads.item() == 32.0  # 2*(3+2-1)*4
    assert local.network.weights.item() == 3.0
