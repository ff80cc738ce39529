import numpy as np
import pytest
import torch
from torch import nn

from fedgps_ray.models import build, initialise
from fedgps_ray.models.base import Model
from fedgps_ray.tensors import Params, all_finite, norm, views
from fedgps_ray.training.network import Network, layout_of

CPU = torch.device("cpu")


def parameter(network, name):
    return dict(network.model.named_parameters())[name]


def backward(network, batch):
    loss = nn.functional.cross_entropy(network(batch.x), batch.y)
    torch.autograd.backward(loss)
    return loss


# --- layout ---------------------------------------------------------------------------------------


def test_layout_names_weights_and_buffers_in_the_order_of_the_model(toys):
    layout = toys.convolution().layout
    assert [(p.name, p.shape, p.start) for p in layout.weights] == [
        ("body.0.weight", (2, 1, 3, 3), 0),
        ("body.1.weight", (2,), 18),
        ("body.1.bias", (2,), 20),
        ("head.weight", (3, 2), 22),
        ("head.bias", (3,), 28),
    ]
    assert [(p.name, p.shape, p.start) for p in layout.buffers] == [
        ("body.1.running_mean", (2,), 0),
        ("body.1.running_var", (2,), 2),
    ]


def test_vectors_are_as_long_as_the_layout_says(toys):
    network = toys.convolution()
    assert network.weights.shape == network.grads.shape == (31,)
    assert network.buffers.shape == (4,)


def test_a_model_without_buffers_has_an_empty_buffers_vector():
    network = Network(build("mlp", (1, 2, 2), 2), CPU, torch.float32)
    assert network.buffers.shape == (0,)
    assert network.layout.buffers == ()


def test_integer_counters_are_not_part_of_params():
    body = nn.Sequential(nn.BatchNorm2d(2), nn.Flatten())
    network = Network(Model(body, 2, 3), CPU, torch.float32)
    assert "body.0.num_batches_tracked" in dict(network.model.named_buffers())
    names = [p.name for p in network.layout.buffers]
    assert names == ["body.0.running_mean", "body.0.running_var"]
    assert network.params().buffers.shape == (4,)


# --- weights --------------------------------------------------------------------------------------


def test_a_change_of_the_vector_is_seen_by_the_model(toys):
    network = toys.scalar(1.0)
    x = torch.tensor([[3.0]], dtype=torch.float64)
    assert network(x).item() == 3.0
    network.weights.add_(1.0)
    assert network(x).item() == 6.0


def test_a_change_of_the_model_is_seen_in_the_vector(toys):
    network = toys.convolution()
    with torch.no_grad():
        parameter(network, "head.bias").copy_(torch.tensor([7.0, 8.0, 9.0]))
    assert network.weights[28:].tolist() == [7.0, 8.0, 9.0]


def test_every_parameter_is_its_piece_of_the_vector(toys):
    network = toys.convolution()
    named = views(network.weights, network.layout.weights)
    parameters = dict(network.model.named_parameters())
    assert list(parameters) == list(named)
    for name, piece in named.items():
        assert parameters[name].data_ptr() == piece.data_ptr()
        assert torch.equal(parameters[name], piece)


def test_load_copies_values_and_does_not_alias(toys):
    network = toys.convolution()
    params = Params(torch.full((31,), 2.0), torch.full((4,), 3.0))
    network.load(params)
    assert parameter(network, "head.weight").tolist() == [[2.0, 2.0]] * 3
    assert network.model.body[1].running_var.tolist() == [3.0, 3.0]
    network.weights.zero_()
    network.buffers.zero_()
    assert params.weights.tolist() == [2.0] * 31
    assert params.buffers.tolist() == [3.0] * 4


def test_loading_keeps_the_model_bound_to_the_vectors(toys):
    network = toys.scalar(1.0)
    network.load(Params(torch.tensor([5.0]), torch.zeros(0)))
    network.weights.mul_(2.0)
    assert network(torch.ones(1, 1, dtype=torch.float64)).item() == 10.0


def test_params_are_copies(toys):
    network = toys.convolution()
    before = network.params()
    kept = Params(before.weights.clone(), before.buffers.clone())
    network.weights.add_(1.0)
    network.buffers.add_(1.0)
    assert torch.equal(before.weights, kept.weights)
    assert torch.equal(before.buffers, kept.buffers)
    before.weights.zero_()
    assert torch.equal(network.weights, kept.weights + 1.0)


# --- gradients ------------------------------------------------------------------------------------


def test_the_gradient_is_in_the_vector(toys):
    network = toys.scalar(1.0)
    torch.autograd.backward(network(torch.tensor([[3.0]], dtype=torch.float64)).square().sum())
    assert network.grads.tolist() == [18.0]  # d/dw (3w)^2 = 18w


def test_gradients_stay_in_the_same_memory_over_several_passes(toys):
    network = toys.convolution()
    for batch in toys.images():
        network.grads.zero_()
        backward(network, batch)
        pieces = views(network.grads, network.layout.weights)
        for name, p in network.model.named_parameters():
            assert p.grad is not None
            assert p.grad.data_ptr() == pieces[name].data_ptr()
            assert torch.equal(p.grad, pieces[name])
        assert norm(network.grads) > 0


def test_gradients_add_up_until_they_are_zeroed(toys):
    network, (batch, *_) = toys.convolution(), toys.images()
    network.model.eval()  # the same statistics in both passes
    backward(network, batch)
    once = network.grads.clone()
    backward(network, batch)
    torch.testing.assert_close(network.grads, 2 * once)


def test_gradients_equal_those_of_the_model_left_alone(toys):
    network, (batch, *_) = toys.convolution(torch.float64), toys.images(dtype=torch.float64)
    plain = toys.convolution(torch.float64).model
    for p in plain.parameters():
        p.grad = None
    backward(network, batch)
    torch.autograd.backward(nn.functional.cross_entropy(plain(batch.x), batch.y))
    expected = torch.cat([p.grad.flatten() for p in plain.parameters()])
    assert torch.equal(network.grads, expected)


def test_torch_optimizers_step_the_vector(toys):
    network = toys.scalar(1.0)
    optimizer = torch.optim.SGD(network.model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(2):
        network.grads.fill_(2.0)
        optimizer.step()
    assert network.weights.item() == pytest.approx(0.42)  # .8, then .8 - .1 * (.9 * 2 + 2)


# --- buffers --------------------------------------------------------------------------------------


def test_a_training_pass_updates_the_buffers_vector(toys):
    network = toys.convolution()
    with torch.no_grad():  # the convolution hands the middle pixel on: 1x and 2x
        network.weights[:18] = 0.0
        network.weights[4], network.weights[13] = 1.0, 2.0
    network.load(Params(network.weights, torch.tensor([0.0, 0.0, 1.0, 1.0])))
    network.model.train()
    network(torch.tensor([1.0, 5.0]).view(2, 1, 1, 1))
    # means 3 and 6, unbiased variances 8 and 32: a tenth of the way from (0, 1)
    assert network.buffers.tolist() == pytest.approx([0.3, 0.6, 1.7, 4.1])
    assert network.model.body[1].running_mean.tolist() == pytest.approx([0.3, 0.6])


def test_evaluation_reads_the_buffers_and_leaves_them(toys):
    network, (batch, *_) = toys.convolution(), toys.images()
    network.model.eval()
    before = network.buffers.clone()
    logits = network(batch.x)
    assert torch.equal(network.buffers, before)
    network.buffers[:2] += 1.0
    assert not torch.equal(network(batch.x), logits)


def test_buffers_are_in_no_norm(toys):
    network, (batch, *_) = toys.convolution(), toys.images()
    length = norm(network.weights)
    network.buffers.fill_(1e6)
    assert norm(network.weights) == length
    network.buffers.copy_(torch.tensor([0.0, 0.0, 1.0, 1.0]))
    backward(network, batch)
    trained = [p.name for p in network.layout.weights]
    assert not set(trained) & {p.name for p in network.layout.buffers}
    assert len(network.grads) == sum(p.numel() for p in network.model.parameters())


# --- kinds of models ------------------------------------------------------------------------------


def test_everything_is_in_float64_where_asked(toys):
    network, (batch, *_) = toys.convolution(torch.float64), toys.images(dtype=torch.float64)
    assert backward(network, batch).dtype == torch.float64
    kinds = {t.dtype for t in (*network.params(), network.grads, *network.model.parameters())}
    assert kinds == {torch.float64}


@pytest.mark.parametrize("name", ["mlp", "cnn", "convnet", "resnet18", "vit"])
def test_a_model_on_the_meta_device_becomes_real(name):
    with torch.device("meta"):
        model = build(name, (1, 8, 8), 4)
    network = Network(model, CPU, torch.float32)
    initialise(network.model, np.random.default_rng(0))
    assert all(p.device == CPU for p in network.model.parameters())
    assert all(b.device == CPU for b in network.model.buffers())
    logits = network(torch.zeros(2, 1, 8, 8))
    assert logits.shape == (2, 4)
    assert all_finite((logits, network.params()))


def test_the_layout_of_a_model_on_the_meta_device_is_that_of_the_real_one():
    with torch.device("meta"):
        meta = build("convnet", (3, 8, 8), 4)
    assert layout_of(meta) == layout_of(build("convnet", (3, 8, 8), 4))


def test_features_then_head_are_the_logits(toys):
    network, (batch, *_) = toys.convolution(), toys.images()
    network.model.eval()
    z = network.features(batch.x)
    assert z.shape == (4, 2)
    assert torch.equal(network.head(z), network(batch.x))
    assert torch.equal(network.model(batch.x), network(batch.x))
