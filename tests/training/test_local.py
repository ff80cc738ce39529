import math

import pytest
import torch
from pydantic import ValidationError
from torch import nn

from fedgps_ray.data.batches import Batch
from fedgps_ray.tensors import Params
from fedgps_ray.training.gradients import backprop, cross_entropy
from fedgps_ray.training.local import Client, Sgd, clip, descend, train

NOTHING = torch.zeros(0, dtype=torch.float64)


def start(*values):
    return Params(torch.tensor(values, dtype=torch.float64), NOTHING)


def numbers(*values):
    return [Batch(torch.full((1, 1), value), torch.tensor([0])) for value in values]


def as_gradient(local, batch):
    """Take the batch's number itself for the gradient, and for the loss."""
    local.network.grads.fill_(batch.x.item())
    return batch.x.sum().to(local.network.weights.dtype)


def weights_after(toys, gradients, **settings):
    local = toys.local(toys.scalar(), numbers(*gradients), **settings)
    return train(local, start(1.0), as_gradient).params.weights.item()


# --- the step -------------------------------------------------------------------------------------


def test_plain_steps(toys):  # 1 - .1*2 - .1*3
    assert weights_after(toys, [2.0, 3.0], lr=0.1) == pytest.approx(0.5)


def test_first_step_with_momentum_is_plain(toys):  # v = g, not (1 - .9) g
    assert weights_after(toys, [2.0], lr=0.1, momentum=0.9) == pytest.approx(0.8)


def test_second_step_carries_momentum(toys):  # 1 - .1*2 = .8 ; v = .9*2 + 2 = 3.8 ; .8 - .38
    assert weights_after(toys, [2.0, 2.0], lr=0.1, momentum=0.9) == pytest.approx(0.42)


def test_nesterov_looks_one_step_ahead(toys):
    # v = 2: 1 - .1*(2 + .9*2) = .62 ; v = 3.8: .62 - .1*(2 + .9*3.8)
    got = weights_after(toys, [2.0, 2.0], lr=0.1, momentum=0.9, nesterov=True)
    assert got == pytest.approx(0.078)


def test_weight_decay_goes_through_momentum(toys):
    # g = 2 + .5*1 = 2.5: .75 ; g = 2 + .5*.75 = 2.375, v = .9*2.5 + 2.375 = 4.625: .75 - .4625
    got = weights_after(toys, [2.0, 2.0], lr=0.1, momentum=0.9, weight_decay=0.5)
    assert got == pytest.approx(0.2875)


def test_a_gradient_is_clipped_before_weight_decay_and_momentum(toys):
    # 30 is cut to 10, + .5*1 = 10.5: 1 - 1.05 = -.05 (cut after the decay it would be 0)
    settings = {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.5, "max_norm": 10.0}
    assert weights_after(toys, [30.0], **settings) == pytest.approx(-0.05, abs=1e-6)
    # v = .9*10.5 + 10 + .5*(-.05) = 19.425, far above 10: -.05 - 1.9425
    assert weights_after(toys, [30.0, 30.0], **settings) == pytest.approx(-1.9925, abs=1e-6)


def test_a_short_gradient_is_not_lengthened(toys):
    settings = {"lr": 0.1, "max_norm": 10.0}
    assert weights_after(toys, [2.0], **settings) == weights_after(toys, [2.0], lr=0.1)


def test_clip_measures_the_whole_vector():
    grads = torch.tensor([3.0, 0.0, 4.0], dtype=torch.float64)
    clip(grads, 1.0)
    # every number by 1 / (5 + 1e-6)
    assert grads.tolist() == pytest.approx([3 / 5.000001, 0.0, 4 / 5.000001], rel=1e-12)


def test_clip_equals_that_of_torch():
    values = torch.randn(50, generator=torch.Generator().manual_seed(1))
    mine, p = values.clone(), nn.Parameter(torch.zeros(50))
    p.grad = values.clone()
    clip(mine, 0.5)
    nn.utils.clip_grad_norm_([p], 0.5)
    torch.testing.assert_close(mine, p.grad, rtol=1e-6, atol=0)


def test_the_rate_is_that_of_the_round_not_that_of_the_settings(toys):
    local = toys.local(toys.scalar(), numbers(2.0), lr=0.1)
    local.lr = 0.05  # the trial's rate times its decay
    assert train(local, start(1.0), as_gradient).params.weights.item() == pytest.approx(0.9)


# --- the velocity ---------------------------------------------------------------------------------


def test_the_velocity_is_carried_over_into_the_next_training(toys):
    first = toys.local(toys.scalar(), numbers(2.0), lr=0.1, momentum=0.9)
    middle = train(first, start(1.0), as_gradient).params
    assert first.velocity.item() == 2.0
    second = toys.local(toys.scalar(), numbers(2.0), velocity=first.velocity, lr=0.1, momentum=0.9)
    assert train(second, middle, as_gradient).params.weights.item() == pytest.approx(0.42)
    assert second.velocity.item() == pytest.approx(3.8)


def test_without_a_velocity_the_next_training_starts_afresh(toys):
    second = toys.local(toys.scalar(), numbers(2.0), lr=0.1, momentum=0.9)
    assert train(second, start(0.8), as_gradient).params.weights.item() == pytest.approx(0.6)


def test_the_first_velocity_does_not_alias_the_gradient(toys):
    local = toys.local(toys.scalar(), numbers(2.0, 3.0), lr=0.1, momentum=0.5)
    train(local, start(1.0), as_gradient)
    assert local.velocity.item() == 4.0  # .5*2 + 3
    local.network.grads.zero_()
    assert local.velocity.item() == 4.0


def test_no_velocity_is_kept_without_momentum(toys):
    local = toys.local(toys.scalar(), numbers(2.0), lr=0.1)
    train(local, start(1.0), as_gradient)
    assert local.velocity is None


# --- against torch --------------------------------------------------------------------------------


def by_torch(toys, batches, epochs, max_norm=None, **settings):
    network = toys.convolution()
    optimizer = torch.optim.SGD(network.model.parameters(), **settings)
    for _ in range(epochs):
        for batch in batches:
            optimizer.zero_grad(set_to_none=False)
            torch.autograd.backward(nn.functional.cross_entropy(network(batch.x), batch.y))
            if max_norm is not None:
                nn.utils.clip_grad_norm_(network.model.parameters(), max_norm)
            optimizer.step()
    return network.params()


@pytest.mark.parametrize(
    "settings",
    [
        {"lr": 0.05},
        {"lr": 0.05, "weight_decay": 0.01},
        {"lr": 0.05, "momentum": 0.9},
        {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.01},
    ],
)
def test_nine_steps_equal_those_of_torch_bit_for_bit(toys, settings):
    batches = toys.images()
    local = toys.local(toys.convolution(), batches, epochs=3, **settings)
    done = train(local, toys.convolution().params(), backprop(cross_entropy))
    expected = by_torch(toys, batches, 3, **settings)
    assert torch.equal(done.params.weights, expected.weights)
    assert torch.equal(done.params.buffers, expected.buffers)
    assert not torch.equal(done.params.weights, toys.convolution().weights)


@pytest.mark.parametrize("extra", [{"nesterov": True}, {"max_norm": 0.3}])
def test_nine_steps_equal_those_of_torch_up_to_rounding(toys, extra):
    batches, settings = toys.images(), {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.01, **extra}
    local = toys.local(toys.convolution(), batches, epochs=3, **settings)
    done = train(local, toys.convolution().params(), backprop(cross_entropy))
    expected = by_torch(toys, batches, 3, **settings).weights
    torch.testing.assert_close(done.params.weights, expected, rtol=0, atol=1e-6)
    without = by_torch(toys, batches, 3, lr=0.05, momentum=0.9, weight_decay=0.01).weights
    assert (without - expected).abs().max() > 1e-3


# --- the loop -------------------------------------------------------------------------------------


def test_train_goes_through_all_batches_of_all_epochs_in_order(toys):
    seen = []

    def noted(local, batch):
        seen.append((batch.epoch, batch.x.item()))
        return as_gradient(local, batch)

    local = toys.local(toys.scalar(), numbers(1.0, 2.0), epochs=3)
    done = train(local, start(1.0), noted)
    assert seen == [(e, x) for e in range(3) for x in (1.0, 2.0)]
    assert done.steps == local.steps == 6


def test_train_counts_backward_passes_where_they_happen(toys):
    once = backprop(lambda local, batch: local.network(batch.x.double()).sum())

    def twice(local, batch):
        once(local, batch)
        return once(local, batch)

    local = toys.local(toys.scalar(), numbers(1.0, 2.0), epochs=2)
    train(local, start(1.0), twice)
    assert (local.steps, local.backward_passes) == (4, 8)


def test_train_returns_the_mean_loss_over_steps(toys):
    local = toys.local(toys.scalar(), numbers(1.0, 2.0, 6.0))
    done = train(local, start(1.0), as_gradient)
    assert done.loss == pytest.approx(3.0)  # (1 + 2 + 6) / 3


def test_train_without_batches_gives_the_start_back(toys):
    done = train(toys.local(toys.scalar()), start(0.25), as_gradient)
    assert done.params.weights.tolist() == [0.25]
    assert (done.steps, done.loss) == (0, 0.0)


def test_train_zeroes_the_gradient_before_each_batch(toys):
    def added(local, batch):
        local.network.grads.add_(batch.x.item())
        return batch.x.sum()

    local = toys.local(toys.scalar(), numbers(2.0, 2.0), lr=0.1)
    local.network.grads.fill_(100.0)
    assert train(local, start(1.0), added).params.weights.item() == pytest.approx(0.6)


def test_after_is_called_once_a_step_when_the_step_is_taken(toys):
    seen = []

    def after(local):
        seen.append(local.network.weights.item())
        local.network.weights.add_(1.0)

    local = toys.local(toys.scalar(), numbers(2.0, 2.0), lr=0.1)
    done = train(local, start(1.0), as_gradient, after)
    assert seen == pytest.approx([0.8, 1.6])  # 1 - .2 ; 1.8 - .2
    assert done.params.weights.item() == pytest.approx(2.6)


def test_train_begins_at_start_whatever_the_network_held(toys):
    network = toys.convolution()
    begin = network.params()
    network.weights.fill_(9.0)
    network.buffers.fill_(9.0)
    done = train(toys.local(network), begin, backprop(cross_entropy))
    assert torch.equal(done.params.weights, begin.weights)
    assert torch.equal(done.params.buffers, begin.buffers)


def test_train_leaves_its_start_unchanged_and_returns_copies(toys):
    network = toys.convolution()
    begin = network.params()
    kept = Params(begin.weights.clone(), begin.buffers.clone())
    local = toys.local(network, toys.images(), lr=0.1, momentum=0.9)
    done = train(local, begin, backprop(cross_entropy))
    assert torch.equal(begin.weights, kept.weights)
    assert torch.equal(begin.buffers, kept.buffers)
    ended = done.params.weights.clone(), done.params.buffers.clone()
    assert not torch.equal(ended[0], kept.weights)
    network.weights.zero_()
    network.buffers.zero_()
    assert torch.equal(done.params.weights, ended[0])
    assert torch.equal(done.params.buffers, ended[1])


def test_train_uses_training_mode_even_after_an_evaluation(toys):
    network = toys.convolution()
    begin = network.params()
    network.model.eval()
    done = train(toys.local(network, toys.images()), begin, backprop(cross_entropy))
    assert not torch.equal(done.params.buffers, begin.buffers)


def test_descend_is_one_step(toys):
    local = toys.local(toys.scalar(), lr=0.1)
    local.network.grads.fill_(2.0)
    descend(local)
    assert local.network.weights.item() == pytest.approx(0.8)


# --- what a client has ----------------------------------------------------------------------------


def test_a_client_has_as_many_examples_as_its_labels_add_up_to():
    assert Client(3, (5, 0, 7)).num_examples == 12


def test_examples_come_once_and_in_order(toys):
    local = toys.local(toys.scalar(), numbers(1.0, 2.0), epochs=5)
    assert [batch.x.item() for batch in local.examples()] == [1.0, 2.0]


def test_a_trial_without_surrogate_set_says_so(toys):
    with pytest.raises(RuntimeError, match="without a surrogate set"):
        toys.local(toys.scalar()).noise()


# --- settings -------------------------------------------------------------------------------------


def test_the_settings_of_the_paper_are_the_default():
    sgd = Sgd()
    assert (sgd.lr, sgd.momentum, sgd.weight_decay, sgd.nesterov) == (0.01, 0.9, 1e-5, False)
    assert (sgd.max_norm, sgd.lr_decay, sgd.client_momentum) == (None, 1.0, "persist")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("lr", 0.0),
        ("lr", -0.5),
        ("lr", math.inf),
        ("lr", math.nan),
        ("momentum", 1.0),
        ("momentum", -0.25),
        ("momentum", math.nan),
        ("weight_decay", -0.125),
        ("max_norm", 0.0),
        ("max_norm", -3.0),
        ("lr_decay", 0.0),
        ("lr_decay", 1.5),
        ("client_momentum", "forget"),
        ("nesterov", "perhaps"),
    ],
)
def test_a_wrong_setting_is_told_with_its_name_and_value(name, value):
    with pytest.raises(ValidationError) as told:
        Sgd(**{name: value})
    assert name in str(told.value)
    assert f"input_value={value!r}" in str(told.value)


def test_a_misspelt_setting_is_an_error():
    with pytest.raises(ValidationError, match="momentun"):
        Sgd(momentun=0.5)
