import copy
import random
import re
import textwrap
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from fedgps_ray.errors import UserError
from fedgps_ray.models import Outside, build, initialise
from fedgps_ray.models.signature import Sizes, arguments
from fedgps_ray.references import load, read
from fedgps_ray.tensors import views
from fedgps_ray.training.network import Network, layout_of

HERE = Path(__file__).parent
KINDS = load(*read("nets.py:kinds", "model", HERE))()
CPU = torch.device("cpu")
OUTPUTS = 4
both_precisions = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
every_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)


def stream(seed=1):
    return np.random.default_rng(seed)


def made(kind, seed=1, **options):
    head = options.pop("head", None)
    outside = Outside(kind.make, "nets.py:Net", options, head)
    return build(outside, kind.shape, OUTPUTS, stream(seed), kind.dtype)


def bound(kind, dtype=torch.float32, **options):
    return Network(made(kind, **options), CPU, dtype)


def labels(number):
    return torch.arange(number) % OUTPUTS


# --- the same numbers as the module left alone ----------------------------------------------------


def steps(run, weights, grads, x, number=3):
    """Take steps of plain descent; run gives the loss, weights and grads are lists of tensors."""
    for _ in range(number):
        for grad in grads():
            grad.zero_()
        torch.autograd.backward(F.cross_entropy(run(x), labels(len(x))))
        with torch.no_grad():
            for values, grad in zip(weights, grads(), strict=True):
                values.add_(grad, alpha=-0.1)


def close(dtype):
    """Return how near is the same: kernels round otherwise where memory is aligned otherwise."""
    return (
        {"rtol": 1e-4, "atol": 1e-6} if dtype == torch.float32 else {"rtol": 1e-11, "atol": 1e-14}
    )


@both_precisions
@every_kind
def test_a_bound_network_computes_and_learns_as_the_module_left_alone(kind, dtype):
    network, plain = bound(kind, dtype), made(kind).net.to(dtype)
    x = kind.inputs(5, dtype)
    trained = [p for p in plain.parameters() if p.requires_grad]
    for p in trained:
        p.grad = torch.zeros_like(p)
    steps(lambda x: plain(x.contiguous()), trained, lambda: [p.grad for p in trained], x)
    steps(network, [network.weights], lambda: [network.grads], x)
    grads = torch.cat([p.grad.flatten() for p in trained])
    torch.testing.assert_close(network.grads, grads, **close(dtype))
    expected = plain.state_dict()
    for name, values in network.state_dict(network.params()).items():
        if not name.endswith("num_batches_tracked"):
            torch.testing.assert_close(values, expected[name], **close(dtype), msg=name)
    with torch.no_grad():  # here attention takes another way through its layers
        network.model.eval()
        logits = plain.eval()(x.contiguous())
        torch.testing.assert_close(network(x), logits, **close(dtype))


@every_kind
def test_two_processes_learn_the_same_bits(kind):
    x = kind.inputs(5)
    one, other = bound(kind), bound(kind)
    steps(other, [other.weights], lambda: [other.grads], kind.inputs(3))  # it served another client
    other.load(one.params())
    for network in (one, other):
        steps(network, [network.weights], lambda network=network: [network.grads], x)
    assert torch.equal(one.params().weights, other.params().weights)
    assert torch.equal(one.params().buffers, other.params().buffers)


@every_kind
def test_features_then_head_are_the_logits_and_have_the_same_gradient(kind):
    network, x, y = bound(kind), kind.inputs(3), labels(3)
    network.model.eval()
    torch.autograd.backward(F.cross_entropy(network(x), y))
    whole = network.grads.clone()
    network.grads.zero_()
    z = network.features(x)
    assert z.shape == (3, network.model.feature_dim)
    assert torch.equal(network.head(z), network(x))
    torch.autograd.backward(F.cross_entropy(network.head(z), y))
    assert whole.any()
    torch.testing.assert_close(network.grads, whole)


@every_kind
def test_the_head_is_found_and_told_by_its_role(kind):
    layout = layout_of(made(kind))
    assert layout.head == kind.head
    if kind.head is None:
        with pytest.raises(UserError, match="output comes from a linear layer"):
            _ = layout.head_weight
    else:
        assert layout.head_weight.name == f"{kind.head}.weight"
        assert layout.head_weight.shape[0] == OUTPUTS


def test_a_head_without_bias_says_so():
    assert layout_of(made(KINDS["attention"])).head_bias is None
    assert layout_of(made(KINDS["lstm"])).head_bias.shape == (OUTPUTS,)


def test_names_are_those_of_the_class_and_fit_its_own_state_dict():
    kind = KINDS["tied"]
    network = bound(kind)
    assert network.layout.weights[0].name == "into.weight"
    found = network.state_dict(network.params())
    assert found["first.weight"].data_ptr() != found["second.weight"].data_ptr()  # can be saved
    own = kind.make(64, OUTPUTS)
    assert own.load_state_dict(found).missing_keys == []
    assert torch.equal(own.second.weight, network.model.net.first.weight)


def test_the_body_is_run_once_and_the_head_not_at_all_for_features():
    network = bound(KINDS["group_norm"])
    runs = []
    for layer in ("conv", "fc"):
        module = network.model.net.get_submodule(layer)
        module.register_forward_hook(lambda *_, layer=layer: runs.append(layer))
    z = network.features(KINDS["group_norm"].inputs(2))
    assert runs == ["conv"]
    network.head(z)
    assert runs == ["conv", "fc"]


@every_kind
def test_a_copy_of_the_model_has_features_of_its_own(kind):
    network, x = bound(kind), kind.inputs(3)
    kept = copy.deepcopy(network.model).eval()
    network.model.eval()
    before = network.features(x)
    network.weights.add_(1.0)
    assert torch.equal(kept.features(x), before)
    assert torch.equal(kept.head(kept.features(x)), kept(x))
    assert not torch.equal(network.features(x), before) or kind.make.__name__ == "Frozen"


# --- first values ---------------------------------------------------------------------------------


@every_kind
def test_first_values_follow_from_the_stream_alone(kind):
    one = bound(kind).params()
    torch.manual_seed(5)
    np.random.seed(5)
    random.seed(5)
    torch.rand(3)
    assert torch.equal(bound(kind).params().weights, one.weights)
    assert not torch.equal(bound(kind, seed=2).params().weights, one.weights)


@every_kind
def test_making_a_network_leaves_the_global_generators_alone(kind):
    before, legacy, plain = (
        torch.get_rng_state(),
        np.random.get_state()[1].copy(),
        random.getstate(),
    )
    network = bound(kind)
    initialise(network.model, stream(3))
    assert torch.equal(torch.get_rng_state(), before)
    assert np.array_equal(np.random.get_state()[1], legacy)
    assert random.getstate() == plain


@every_kind
def test_initialise_gives_the_first_values_whatever_was_there(kind):
    network = bound(kind)
    first = network.params()
    network.weights.fill_(torch.nan)
    network.buffers.fill_(torch.inf)
    initialise(network.model, stream())
    assert torch.equal(network.params().weights, first.weights)
    assert torch.equal(network.params().buffers, first.buffers)
    initialise(network.model, stream(2))
    assert torch.equal(network.params().weights, bound(kind, seed=2).params().weights)


@every_kind
def test_float64_starts_at_the_float32_values(kind):
    single, double = bound(kind).params(), bound(kind, torch.float64).params()
    assert torch.equal(single.weights.double(), double.weights)
    assert torch.equal(single.buffers.double(), double.buffers)


def test_draws_from_any_global_generator_follow_from_the_stream():
    def make(num_features, num_outputs):
        net = nn.Sequential(nn.Flatten(), nn.Linear(num_features, num_outputs))
        nn.init.constant_(net[1].weight, random.random())
        nn.init.constant_(net[1].bias, np.random.rand())
        return net

    one = outside(make).net[1]
    random.random()
    np.random.rand()
    same = outside(make).net[1]
    assert torch.equal(one.weight, same.weight)
    assert torch.equal(one.bias, same.bias)


def test_the_initialisation_of_the_class_itself_is_kept():
    values = views(bound(KINDS["timm"]).weights, layout_of(made(KINDS["timm"])).weights)
    assert not values["head.bias"].any()
    assert 0 < values["pos_embed"].abs().max() < 0.1


# --- devices without values -----------------------------------------------------------------------


@every_kind
def test_a_device_that_holds_no_values_does_not_matter_while_a_network_is_made(kind):
    with torch.device("meta"):
        model = made(kind)
    assert torch.equal(Network(model, CPU, torch.float32).weights, bound(kind).weights)


@every_kind
def test_networks_work_on_the_meta_device(kind):
    network = Network(made(kind), torch.device("meta"), torch.float32)
    x = kind.inputs(3).to("meta")
    z = network.features(x)
    assert z.is_meta
    assert network.head(z).shape == network(x).shape == (3, OUTPUTS)
    assert network.params().weights.is_meta


@pytest.mark.parametrize("name", [name for name in KINDS if name != "tied"])
def test_networks_work_with_fake_tensors(name):
    kind = KINDS[name]  # all but the one whose list would still refer to the real parameter
    with FakeTensorMode():
        network = bound(kind)
        x = torch.empty(3, *kind.shape).to(kind.dtype)
        torch.autograd.backward(F.cross_entropy(network.head(network.features(x)), labels(3)))
        assert network(x).shape == (3, OUTPUTS)
        assert network.params().weights.shape == network.grads.shape
    assert network.layout == bound(kind).layout


# --- what is not trained --------------------------------------------------------------------------


def test_frozen_parameters_are_no_weights_and_equal_in_every_process():
    network = bound(KINDS["frozen"], torch.float64)
    assert [p.name for p in network.layout.weights] == ["fc.weight", "fc.bias"]
    frozen = network.model.net.projection.weight
    assert (frozen.dtype, frozen.requires_grad) == (torch.float64, False)
    assert torch.equal(frozen, bound(KINDS["frozen"], torch.float64).model.net.projection.weight)
    initialise(network.model, stream(2))  # what is sent to clients never holds them
    assert torch.equal(frozen, network.model.net.projection.weight)


def test_buffers_of_any_type_are_kept_and_only_statistics_are_averaged():
    network = bound(KINDS["encoder"], torch.float64)
    assert network.layout.buffers == ()
    net = network.model.net
    assert net.position_ids.tolist() == [0, 1, 2, 3, 4, 5]
    assert net.position_ids.dtype == torch.int64
    assert net.mask[0, 1] == -torch.inf
    assert net.table.dtype == torch.float64
    saved = network.state_dict(network.params())
    assert {"position_ids", "mask"} <= set(saved)
    assert "table" not in saved


def test_counters_begin_again_for_every_client():
    network, x = bound(KINDS["batch_norm_1d"]), KINDS["batch_norm_1d"].inputs(4)
    assert [p.name for p in network.layout.buffers] == [
        "layers.1.running_mean",
        "layers.1.running_var",
    ]
    start = network.params()
    for _ in range(2):
        network.load(start)
        network(x)
        assert network.model.net.layers[1].num_batches_tracked.item() == 1


def test_a_statistic_that_is_replaced_is_still_seen():
    network, x = bound(KINDS["parametrized"]), KINDS["parametrized"].inputs(4)
    start = network.params()
    network(x)
    after = network.params().buffers
    assert after.any()
    assert not start.buffers.any()
    network.load(start)
    assert not network.model.net.average.any()
    network(x)
    assert torch.equal(network.params().buffers, after)


def test_recurrent_layers_leave_their_weights_in_the_vector(monkeypatch):
    def move(lstm):
        """Move the weights to other memory, as cuDNN's layout needs on a GPU."""
        for p in lstm.parameters():
            p.data = p.data.clone()

    monkeypatch.setattr(nn.LSTM, "flatten_parameters", move)
    network = bound(KINDS["lstm"])
    lstm = network.model.net.lstm
    lstm.flatten_parameters()
    network.weights.zero_()
    assert not any(p.any() for p in lstm.parameters())
    assert not any(p.any() for p in lstm._flat_weights)


def test_batchnorm_takes_a_single_example_by_its_running_statistics():
    network, x = bound(KINDS["batch_norm_1d"]), KINDS["batch_norm_1d"].inputs(1)
    network.model.train()
    before = network.params().buffers
    trained = network(x)
    assert torch.equal(network.params().buffers, before)
    assert network.model.net.layers[1].training
    assert torch.equal(trained, network.model.eval()(x))
    assert not network.model.net.layers[1].training


# --- dropout --------------------------------------------------------------------------------------

DROPPING = {
    "lstm": {"dropout": 0.5},
    "encoder": {"dropout": 0.5},
    "timm": {"drop_rate": 0.5, "drop_path_rate": 0.5},
}


@pytest.mark.parametrize("name", DROPPING)
def test_dropout_follows_from_the_stream_alone(name):
    kind = KINDS[name]
    network, x = bound(kind, **DROPPING[name]), kind.inputs(6)

    def twice(seed):
        with network.drawing(lambda: stream(seed)):
            return torch.cat([network(x), network(x)])

    one, state = twice(1), torch.get_rng_state()
    torch.rand(7)
    same, other = twice(1), twice(2)
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    assert not torch.equal(one[:6], one[6:])
    torch.set_rng_state(state)
    twice(3)
    assert torch.equal(torch.get_rng_state(), state)


def test_built_in_models_draw_nothing_so_nothing_is_seeded():
    network = Network(build("mlp", (1, 8, 8), OUTPUTS), CPU, torch.float32)
    state = torch.get_rng_state()
    with network.drawing(lambda: pytest.fail("a stream was made")):
        assert torch.equal(torch.get_rng_state(), state)


# --- networks of others ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "head", "feature_dim"),
    [("mobilenet_v3_small", "classifier.3", 1024), ("resnet18", "fc", 512)],
)
def test_torchvision_networks_are_found_by_reference_and_learn(name, head, feature_dim):
    reference = f"torchvision.models:{name}"
    outside = Outside(load(*read(reference, "model")), reference)
    network = Network(build(outside, (3, 32, 32), OUTPUTS, stream()), CPU, torch.float32)
    assert network.layout.head == head
    assert network.layout.head_weight.shape == (OUTPUTS, feature_dim)
    x = torch.randn(3, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    network.model.eval()
    assert torch.equal(network.head(network.features(x)), network(x))
    network.model.train()
    with network.drawing(stream):
        torch.autograd.backward(F.cross_entropy(network(x), labels(3)))
        network(x[:1])
    assert network.grads.isfinite().all()
    assert network.grads.any()
    assert network.params().buffers.isfinite().all()


def test_a_layer_called_features_is_not_taken_for_the_features():
    from_torchvision = load(*read("torchvision.models:squeezenet1_1", "model"))
    model = build(Outside(from_torchvision, "squeezenet"), (3, 32, 32), OUTPUTS, stream())
    assert model.split.layer is None  # a convolution gives its output
    assert model(torch.zeros(2, 3, 32, 32)).shape == (2, OUTPUTS)


class SwinStyle(nn.Module):
    """Has a layer called features and a head, with more layers between the two."""

    def __init__(self, in_channels, num_classes):
        super().__init__()
        self.features, self.head = nn.Conv2d(in_channels, 6, 3), nn.Linear(6, num_classes)

    def forward(self, x):
        return SimpleNamespace(logits=self.head(self.features(x).mean(dim=(2, 3))), loss=None)


def test_layers_between_features_and_head_are_not_left_out():
    network = Network(outside(SwinStyle), CPU, torch.float32)
    x = torch.randn(2, 1, 4, 4)
    assert network.features(x).shape == (2, 6)
    assert torch.equal(network.head(network.features(x)), network.model.net(x).logits)
    assert torch.equal(network(x), network.model.net(x).logits)


# --- networks without a head that can be told -----------------------------------------------------


class Softmax(nn.Module):
    def __init__(self, num_features, num_outputs):
        super().__init__()
        self.body = nn.Linear(num_features, 5)
        self.fc = nn.Linear(5, num_outputs)

    def forward(self, x):
        return F.log_softmax(self.fc(self.body(x.flatten(1))), dim=1)


class Twice(Softmax):
    def forward(self, x):
        x = self.body(x.flatten(1))
        self.fc(x + 1)
        return self.fc(x)


class TwoHeads(nn.Module):
    """Two linear layers of the right width, of which the first gives the output."""

    def __init__(self, num_features, num_outputs):
        super().__init__()
        self.wanted = nn.Sequential(nn.Linear(num_features, 5), nn.Linear(5, num_outputs))
        self.other = nn.Linear(num_features, num_outputs)

    def forward(self, x):
        self.other(x.flatten(1))
        return self.wanted(x.flatten(1))


def outside(make, head=None, shape=(1, 4, 4), **options):
    return build(Outside(make, "my_net.py:Net", options, head), shape, OUTPUTS, stream())


def test_a_method_without_features_needs_no_head():
    network = Network(outside(Softmax), CPU, torch.float32)
    assert network(torch.zeros(2, 1, 4, 4)).exp().sum().item() == pytest.approx(2)
    assert network.layout.head is None


@pytest.mark.parametrize("use", [lambda n, x: n.features(x), lambda n, x: n.head(x)])
def test_a_method_that_needs_features_is_told_which_layers_there_are(use):
    network = Network(outside(Softmax), CPU, torch.float32)
    expected = r"needs the features of my_net.py:Net.*head = .*body \(Linear\), fc \(Linear\)"
    with pytest.raises(UserError, match=expected):
        use(network, torch.zeros(2, 1, 4, 4))


def test_the_last_layer_that_gives_the_output_is_the_head():
    assert outside(TwoHeads).split.layer == "wanted.1"


def test_of_two_layers_with_equal_outputs_the_last_one_is_the_head():
    def make(num_features, num_outputs):
        last = nn.Linear(num_outputs, num_outputs)
        nn.init.eye_(last.weight)
        nn.init.zeros_(last.bias)
        return nn.Sequential(nn.Flatten(), nn.Linear(num_features, num_outputs), last)

    assert outside(make).split.layer == "2"


def test_the_head_can_be_named_and_can_have_several_layers():
    network = Network(outside(TwoHeads, head="wanted"), CPU, torch.float32)
    x = torch.randn(2, 1, 4, 4)
    assert network.model.feature_dim == 16
    assert torch.equal(network.features(x), x.flatten(1))
    assert torch.equal(network.head(network.features(x)), network(x))


@pytest.mark.parametrize(
    ("make", "head", "expected"),
    [
        (Softmax, "fcc", "unknown layer of my_net.py:Net 'fcc'. Did you mean 'fc'?"),
        (Softmax, "fc", "'fc' cannot be the head of my_net.py:Net: its output is not the output"),
        (Twice, "fc", "it is used 2 times in a pass"),
        (TwoHeads, "other", "its output is not the output of the network"),
        (KINDS["tied"].make, "first", "its output is not the output"),
        (KINDS["lazy"].make, "layers", "its input is not one vector of features"),
    ],
)
def test_a_named_layer_that_cannot_be_the_head(make, head, expected):
    with pytest.raises(UserError) as told:
        outside(make, head)
    assert expected in str(told.value)


class Inconsistent(Softmax):
    def features(self, x):
        return self.body(x.flatten(1))

    def head(self, z):
        return self.fc(z)


# --- what can be wrong ----------------------------------------------------------------------------


class Fixed(nn.Module):
    def __init__(self, width=10, shape=(-1,)):
        super().__init__()
        self.fc, self.shape = nn.Linear(16, width), shape

    def forward(self, x):
        return self.fc(x.flatten(1)).unflatten(1, self.shape)


class Pair(Softmax):
    def forward(self, x):
        return super().forward(x), x


class Unused(nn.Module):
    def __init__(self, num_outputs):
        super().__init__()
        self.fc, self.spare = nn.LazyLinear(num_outputs), nn.LazyLinear(3)

    def forward(self, x):
        return self.fc(x.flatten(1))


class Complex(Softmax):
    def __init__(self, num_features, num_outputs):
        super().__init__(num_features, num_outputs)
        self.phase = nn.Parameter(torch.ones(2, dtype=torch.complex64))


class Nothing(Softmax):
    def __init__(self, num_features, num_outputs):
        super().__init__(num_features, num_outputs)
        self.requires_grad_(False)


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (nn.Linear(16, 4), "my_net.py:Net is a network; name the class or function that makes it"),
        (Fixed, "gives outputs of shape 2x10 for 2 inputs; needed is 2x4, one row of 4"),
        (lambda: Fixed(4, (2, 2)), "gives outputs of shape 2x2x2"),
        (Pair, "my_net.py:Net returns a tuple"),
        (Unused, "never uses spare.weight, spare.bias"),
        (Complex, "parameters that are not real numbers: phase"),
        (Nothing, "no parameters to train"),
        (Inconsistent, "head(features(x)) is not its output"),
        (lambda image_shape, num_outputs: None, "makes a NoneType, not a torch.nn.Module"),
        (lambda depth, image_shape, num_outputs: None, "my_net.py:Net needs depth: give it as"),
        (
            lambda num_outputs: nn.Linear(7, num_outputs),
            "cannot take inputs of shape 1x4x4: Runtime",
        ),
        (lambda num_outputs: nn.Linear("7", num_outputs), "cannot be made: TypeError"),
    ],
)
def test_what_a_network_cannot_be(make, expected):
    with pytest.raises(UserError) as told:
        outside(make)
    assert expected in str(told.value)


def test_an_error_in_the_user_s_file_is_shown_with_its_lines(tmp_path):
    text = """
        from torch import nn

        class Net(nn.Linear):
            def forward(self, x):
                return x.no
    """
    (tmp_path / "net.py").write_text(textwrap.dedent(text))
    with pytest.raises(UserError) as told:
        outside(load(*read("net.py:Net", "model", tmp_path)))
    first, *lines = str(told.value).splitlines()
    assert first == "my_net.py:Net cannot take inputs of shape 1x4x4:"
    assert [line.rpartition("/")[2] for line in lines if line.startswith("  File")] == [
        'net.py", line 6, in forward'
    ]
    assert "    return x.no" in lines
    assert lines[-1] == "AttributeError: 'Tensor' object has no attribute 'no'"


def test_built_in_convolutions_are_for_images():
    with pytest.raises(UserError, match="'cnn' needs images"):
        build("cnn", (6,), OUTPUTS)


# --- what it is called with -----------------------------------------------------------------------


def called(make, shape=(3, 8, 6), **options):
    return arguments(make, Sizes(shape, 10), options, "my_net.py:Net")


@pytest.mark.parametrize(
    ("make", "options", "args", "kwargs"),
    [
        (lambda image_shape, num_outputs: 0, {}, ((3, 8, 6), 10), {}),
        (lambda shape, n: 0, {}, ((3, 8, 6), 10), {}),
        (lambda a, b, /: 0, {}, ((3, 8, 6), 10), {}),
        (lambda num_classes=1000: 0, {}, (10,), {}),
        (lambda in_chans=3, num_classes=1000: 0, {}, (3, 10), {}),
        (lambda *, img_size=224, num_classes: 0, {}, (), {"img_size": (8, 6), "num_classes": 10}),
        (lambda in_features, out_features: 0, {}, (144, 10), {}),
        (lambda num_outputs, channels=64: 0, {}, (10,), {}),
        (lambda channels, num_outputs: 0, {}, (3, 10), {}),
        (lambda num_outputs, width=1: 0, {"width": 64}, (10, 64), {}),
        (lambda depth, image_shape, num_outputs: 0, {"depth": 2}, (2, (3, 8, 6), 10), {}),
        (lambda *, weights=None, **more: 0, {}, (), {"num_classes": 10}),
        (lambda **more: 0, {"num_classes": 5, "a": 1}, (), {"num_classes": 5, "a": 1}),
        (lambda num_outputs, **more: 0, {"a": 1}, (10,), {"a": 1}),
        (lambda num_classes: 0, {"num_classes": 7}, (7,), {}),
        (lambda: 0, {}, (), {}),
        (dict, {"a": 1}, ((3, 8, 6), 10), {"a": 1}),
    ],
)
def test_what_a_class_or_function_is_called_with(make, options, args, kwargs):
    assert called(make, **options) == (args, kwargs)


def test_an_option_that_it_does_not_know_is_told_with_the_nearest():
    with pytest.raises(UserError) as told:
        called(lambda image_shape, num_outputs, width=1: 0, widht=3)
    expected = "unknown option of my_net.py:Net 'widht'. Did you mean 'width'? Known: width"
    assert str(told.value) == expected


def test_tokens_have_no_channels():
    with pytest.raises(UserError, match="needs in_channels"):
        called(lambda in_channels, num_outputs: 0, shape=(6,))


def test_a_required_parameter_is_not_taken_for_the_outputs_if_another_one_is():
    with pytest.raises(UserError, match="needs depth: give it as"):
        called(lambda image_shape, depth, num_classes=10: 0)


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.sampled_from([nn.ReLU, nn.Tanh, nn.LayerNorm, nn.BatchNorm1d]), max_size=4),
    st.integers(0, 2**32),
)
def test_any_stack_of_layers_is_bound_without_changing_a_value(layers, seed):
    def make(in_features, num_outputs):
        width = 6
        stack = [nn.Flatten(), nn.Linear(in_features, width)]
        for layer in layers:
            stack += [
                layer(width) if "Norm" in layer.__name__ else layer(),
                nn.Linear(width, width),
            ]
        return nn.Sequential(*stack, nn.Linear(width, num_outputs))

    model = build(Outside(make, "stack"), (1, 4, 4), OUTPUTS, stream(seed))
    alone = copy.deepcopy(model.net)
    network = Network(model, CPU, torch.float32)
    x = torch.randn(3, 1, 4, 4, generator=torch.Generator().manual_seed(seed))
    assert network.layout.head == str(len(alone) - 1)
    assert torch.equal(network(x), alone(x))
    torch.autograd.backward(network(x).square().sum())
    torch.autograd.backward(alone(x).square().sum())
    assert torch.equal(network.grads, torch.cat([p.grad.flatten() for p in alone.parameters()]))


def test_the_network_of_the_documentation_works_as_shown(tmp_path):
    page = (HERE.parents[1] / "docs" / "adding-a-model.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    (tmp_path / "my_net.py").write_text(code)
    (shown, *_) = re.findall(r"--model (\S+)", page)
    (width,) = re.findall(r'model = \{ name = "my_net.py:Net", width = (\d+) \}', page)
    model = Outside(load(*read(shown, "model", tmp_path)), shown, {"width": int(width)})
    network = Network(build(model, (1, 8, 8), 20, stream()), CPU, torch.float32)
    assert network.layout.head == "fc"
    assert network.features(torch.zeros(2, 1, 8, 8)).shape == (2, 64)
    assert network(torch.zeros(2, 1, 8, 8)).shape == (2, 20)
