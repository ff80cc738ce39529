import math

import numpy as np
import pytest
import torch
from torch import nn

from fedgps_ray.errors import UserError
from fedgps_ray.models import MODELS, Model, build, initialise
from fedgps_ray.models.norm import BatchNorm
from fedgps_ray.models.vit import Positions

DIGIT, CIFAR = (1, 8, 8), (3, 32, 32)
QUICK = ["mlp", "cnn", "convnet", "resnet18", "vit"]
FEATURES = {"mlp": 32, "cnn": 512, "convnet": 128, "resnet18": 512, "resnet50": 2048, "vit": 192}


def on_meta(name, shape, num_outputs=10):
    with torch.device("meta"):
        return build(name, shape, num_outputs)


def drawn(name, shape, num_outputs=10, seed=1, dtype=torch.float32):
    model = on_meta(name, shape, num_outputs).to(dtype).to_empty(device="cpu")
    initialise(model, np.random.default_rng(seed))
    return model


def images(shape, number=2):
    generator = torch.Generator().manual_seed(0)
    return torch.randn(number, *shape, generator=generator)


def num_trained(model):
    return sum(p.numel() for p in model.parameters())


def num_statistics(model):
    return sum(b.numel() for b in model.buffers())


def test_the_table_is_in_order_and_explains_each_model():
    assert list(MODELS) == ["mlp", "cnn", "convnet", "resnet18", "resnet50", "vit"]
    assert all(m.explanation and "\n" not in m.explanation for m in MODELS.values())


@pytest.mark.parametrize(
    ("name", "shape", "num_outputs", "expected"),
    [
        ("resnet18", CIFAR, 10, 11_173_962),
        ("resnet18", CIFAR, 20, 11_179_092),
        ("resnet50", CIFAR, 100, 23_705_252),
        ("resnet50", CIFAR, 200, 23_910_152),
        # 192*128+128 + 128*32+32 + 32*10+10
        ("mlp", (3, 8, 8), 10, 29_162),
        # 3*25*32+32 + 32*25*64+64 + 64*8*8*512+512 + 512*10+10
        ("cnn", CIFAR, 10, 2_156_490),
        # 3x3 kernels: 9*(3*32 + 32*64 + 64*128); norms: 2*(32+64+128); head: 128*10+10
        ("convnet", CIFAR, 10, 94_762),
    ],
)
def test_number_of_trained_values(name, shape, num_outputs, expected):
    assert num_trained(on_meta(name, shape, num_outputs)) == expected


@pytest.mark.parametrize(
    ("name", "expected"), [("mlp", 0), ("cnn", 0), ("convnet", 448), ("resnet18", 9600), ("vit", 0)]
)
def test_number_of_batchnorm_statistics(name, expected):
    assert num_statistics(on_meta(name, CIFAR)) == expected


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("shape", [DIGIT, CIFAR], ids=["1x8x8", "3x32x32"])
def test_logits_are_the_head_of_the_features(name, shape):
    model = drawn(name, shape, num_outputs=7)
    x = images(shape, number=1)
    with torch.no_grad():
        features = model.eval().features(x)
        assert features.shape == (1, FEATURES[name]) == (1, model.feature_dim)
        by_hand = features @ model.head.weight.T + model.head.bias
        torch.testing.assert_close(model(x), by_hand)
        assert model(x).shape == (1, 7)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("shape", [DIGIT, CIFAR], ids=["1x8x8", "3x32x32"])
def test_one_image_trains_every_parameter(name, shape):
    model = drawn(name, shape).train()
    loss = nn.functional.cross_entropy(model(images(shape, number=1)), torch.tensor([3]))
    loss.backward()
    untouched = [key for key, p in model.named_parameters() if p.grad is None or not p.grad.any()]
    assert untouched == []
    assert all(p.grad.isfinite().all() for p in model.parameters())


@pytest.mark.parametrize("name", QUICK)
@pytest.mark.parametrize("shape", [(2, 9, 17), (4, 30, 18), (1, 64, 64), (3, 64, 8)])
def test_other_channels_and_sides(name, shape):
    with torch.device("meta"):
        model, x = build(name, shape, 5), torch.empty(2, *shape)
    assert model(x).shape == (2, 5)


def test_a_resnet_shrinks_images_to_an_eighth():
    model = on_meta("resnet18", CIFAR)
    x = torch.empty(2, *CIFAR, device="meta")
    sides = []
    for part in list(model.body)[:-1]:
        x = part(x)
        sides.append(tuple(x.shape[1:]))
    assert sides == [(64, 32, 32), (64, 32, 32), (128, 16, 16), (256, 8, 8), (512, 4, 4)]


@pytest.mark.parametrize(("shape", "num_patches"), [(CIFAR, 64), (DIGIT, 16), ((1, 30, 18), 40)])
def test_patches_are_4x4_or_2x2_and_cover_the_image(shape, num_patches):
    positions = [m for m in on_meta("vit", shape).modules() if isinstance(m, Positions)]
    assert positions[0].values.shape == (num_patches, 192)


def test_the_transformer_sees_the_last_row_and_the_order_of_patches():
    model = drawn("vit", (1, 17, 17)).eval()
    x = images((1, 17, 17), number=1)
    changed, swapped = x.clone(), x.clone()
    changed[..., -1, -1] += 1
    swapped[..., 0:4, 0:4], swapped[..., 4:8, 4:8] = x[..., 4:8, 4:8], x[..., 0:4, 0:4]
    with torch.no_grad():
        assert not torch.allclose(model(x), model(changed))
        assert not torch.allclose(model(x), model(swapped))


def test_an_unknown_model_is_answered_with_the_nearest():
    with pytest.raises(UserError, match=r"unknown model 'resnet-18'\. Did you mean 'resnet18'"):
        build("resnet-18", CIFAR, 10)


@pytest.mark.parametrize(("name", "side"), [("resnet18", 8), ("resnet50", 8), ("vit", 4)])
def test_too_small_an_image_names_both_sizes(name, side):
    expected = f"'{name}' needs images of at least {side}x{side} pixels, the data set has 64x2"
    with pytest.raises(UserError, match=expected):
        build(name, (3, 64, 2), 10)


@pytest.mark.parametrize("name", MODELS)
def test_the_smallest_image_is_enough(name):
    side = MODELS[name].min_side
    model = drawn(name, (1, side, side)).train()
    assert model(images((1, side, side), number=1)).isfinite().all()


@pytest.mark.parametrize("name", QUICK)
def test_making_a_model_leaves_the_global_generators_alone(name):
    before, legacy = torch.get_rng_state(), np.random.get_state()[1].copy()
    drawn(name, DIGIT)
    assert torch.equal(torch.get_rng_state(), before)
    assert np.array_equal(np.random.get_state()[1], legacy)


@pytest.mark.parametrize("name", QUICK)
def test_equal_streams_give_equal_values_and_others_do_not(name):
    one, same, other = (drawn(name, DIGIT, seed=seed).state_dict() for seed in (1, 1, 2))
    assert all(torch.equal(one[key], same[key]) for key in one)
    assert not torch.equal(one["head.weight"], other["head.weight"])


@pytest.mark.parametrize("name", ["mlp", "convnet", "vit"])
def test_float64_starts_at_the_float32_values(name):
    single, double = drawn(name, DIGIT).state_dict(), drawn(name, DIGIT, dtype=torch.float64)
    for key, values in double.state_dict().items():
        assert values.dtype == torch.float64
        assert torch.equal(values, single[key].double())


@pytest.mark.parametrize("name", QUICK)
def test_a_wider_head_changes_no_other_first_value(name):
    narrow, wide = drawn(name, DIGIT, 10).state_dict(), drawn(name, DIGIT, 20).state_dict()
    assert list(narrow)[-2:] == ["head.weight", "head.bias"]
    assert all(torch.equal(narrow[key], wide[key]) for key in list(narrow)[:-2])


@pytest.mark.parametrize("name", QUICK)
def test_affine_layers_are_uniform_within_the_root_of_the_fan_in(name):
    layers = [m for m in drawn(name, CIFAR).modules() if isinstance(m, nn.Conv2d | nn.Linear)]
    assert layers
    for layer in layers:
        bound = 1 / math.sqrt(layer.weight.shape[1:].numel())
        assert all(p.abs().max() <= bound for p in layer.parameters())
        # of 320 or more draws, the largest is above 0.9 but for a chance of 0.9^320
        assert layer.weight.abs().max() > 0.9 * bound
        # a uniform value has the deviation bound / sqrt(3)
        assert layer.weight.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.1)


def test_norms_start_neutral_and_positions_small():
    resnet, vit = drawn("resnet18", DIGIT), drawn("vit", CIFAR)
    norms = [m for m in resnet.modules() if isinstance(m, BatchNorm)]
    assert len(norms) == 20
    for norm in norms:
        assert (norm.weight == 1).all()
        assert (norm.running_var == 1).all()
        assert not norm.bias.any()
        assert not norm.running_mean.any()
    layer_norms = [m for m in vit.modules() if isinstance(m, nn.LayerNorm)]
    assert all((m.weight == 1).all() and not m.bias.any() for m in layer_norms)
    assert vit.body[1].values.std().item() == pytest.approx(0.02, rel=0.05)


def test_a_layer_without_known_first_values_is_refused():
    model = Model(nn.Sequential(nn.Flatten(), nn.PReLU()), 4, 2)
    with pytest.raises(TypeError, match="PReLU"):
        initialise(model, np.random.default_rng(0))


def test_batchnorm_learns_from_a_batch_as_pytorch_does():
    ours, theirs = BatchNorm(3), nn.BatchNorm2d(3)
    x = images((3, 4, 4), number=5)
    assert torch.equal(ours(x), theirs(x))
    assert torch.equal(ours.running_mean, theirs.running_mean)
    assert torch.equal(ours.running_var, theirs.running_var)
    assert torch.equal(ours.eval()(x), theirs.eval()(x))


def test_batchnorm_takes_a_single_value_by_its_running_statistics():
    norm = BatchNorm(1).train()
    norm.running_mean.fill_(1.0)
    norm.running_var.fill_(4.0)
    out = norm(torch.full((1, 1, 1, 1), 5.0))
    assert out.item() == pytest.approx(2.0, rel=1e-5)  # (5 - 1) / sqrt(4)
    assert (norm.running_mean.item(), norm.running_var.item()) == (1.0, 4.0)


def test_batchnorm_needs_no_counter_when_values_are_loaded():
    model, other = drawn("convnet", DIGIT, seed=1), drawn("convnet", DIGIT, seed=2)
    assert not any("num_batches" in key for key in model.state_dict())
    other.load_state_dict(dict(model.state_dict()))
    assert torch.equal(model.head.weight, other.head.weight)
