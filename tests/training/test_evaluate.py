import math

import pytest
import torch
from torch import nn

from fedgps_ray.data.batches import PLAIN_BATCH, Batch, Batches, Images
from fedgps_ray.models.base import Model
from fedgps_ray.tensors import Params
from fedgps_ray.training.evaluate import Outputs, Score, Tally, score, tallies
from fedgps_ray.training.evaluate import evaluate as evaluate_on
from fedgps_ray.training.network import Network

# the body hands x on, the head makes (x, -x, 2x, 0) of it: two real and two surrogate classes
PARAMS = Params(torch.tensor([1.0, 1.0, -1.0, 2.0, 0.0]), torch.zeros(0))


class Listed:
    def __init__(self, *batches):
        self.batches = batches

    def plain(self):
        return iter(self.batches)


@pytest.fixture
def network():
    model = Model(nn.Linear(1, 1, bias=False), 1, 4)
    model.head = nn.Linear(1, 4, bias=False)
    return Network(model, torch.device("cpu"), torch.float32)


def batch(*pairs):
    x, y = zip(*pairs, strict=True)
    return Batch(torch.tensor(x)[:, None], torch.tensor(y))


# x = 1 gives (1, -1, 2, 0), x = -1 gives (-1, 1, -2, 0)
EXAMPLES = Listed(batch((1.0, 0), (-1.0, 1)), batch((-1.0, 0)))


def evaluate(network, params, test, num_logits, num_classes=4):
    return evaluate_on(network, params, test, Outputs(num_classes, num_logits))


def cross_entropy(logits, label):
    return math.log(sum(math.exp(value) for value in logits)) - logits[label]


def test_over_all_outputs_a_prediction_in_the_surrogate_block_is_wrong(network):
    # predicted 2, 1, 1 for the labels 0, 1, 0
    score = evaluate(network, PARAMS, EXAMPLES, None)
    assert score.accuracy == pytest.approx(1 / 3)
    up, down = (1, -1, 2, 0), (-1, 1, -2, 0)
    total = cross_entropy(up, 0) + cross_entropy(down, 1) + cross_entropy(down, 0)
    assert score.loss == pytest.approx(total / 3, rel=1e-6)


def test_over_the_real_outputs_the_surrogate_block_cannot_win(network):
    # predicted 0, 1, 1 for the labels 0, 1, 0; the loss sees two outputs as well
    score = evaluate(network, PARAMS, EXAMPLES, 2)
    assert score.accuracy == pytest.approx(2 / 3)
    up, down = (1, -1), (-1, 1)
    total = cross_entropy(up, 0) + cross_entropy(down, 1) + cross_entropy(down, 0)
    assert score.loss == pytest.approx(total / 3, rel=1e-6)


def test_as_many_outputs_as_there_are_is_all_of_them(network):
    assert evaluate(network, PARAMS, EXAMPLES, 4) == evaluate(network, PARAMS, EXAMPLES, None)


def test_each_example_counts_the_same_however_the_batches_fall(network):
    one_batch = Listed(batch((1.0, 0), (-1.0, 1), (-1.0, 0)))
    together = evaluate(network, PARAMS, one_batch, 2)
    apart = evaluate(network, PARAMS, EXAMPLES, 2)
    assert together.accuracy == apart.accuracy
    assert together.loss == pytest.approx(apart.loss, rel=1e-6)


def test_the_given_params_are_tested_and_left_alone(network):
    network.load(Params(torch.full((5,), 9.0), torch.zeros(0)))
    before = PARAMS.weights.clone()
    first = evaluate(network, PARAMS, EXAMPLES, None)
    turned = evaluate(network, Params(-PARAMS.weights, PARAMS.buffers), EXAMPLES, None)
    # body and head both negated: the same logits
    assert turned == first
    assert torch.equal(PARAMS.weights, before)


def test_evaluation_leaves_no_gradient(network):
    network.grads.fill_(7.0)
    evaluate(network, PARAMS, EXAMPLES, None)
    assert network.grads.tolist() == [7.0] * 5


def test_evaluation_uses_the_running_statistics_and_keeps_them(toys):
    network = toys.convolution()
    params = network.params()
    network.model.train()
    batches = toys.images()
    score = evaluate(network, params, Listed(*batches), None)
    assert torch.equal(network.buffers, params.buffers)
    assert not network.model.training
    right = sum(int((network(b.x).argmax(dim=1) == b.y).sum()) for b in batches)
    assert score.accuracy == right / 11  # batches of 4, 4 and 3
    other = Params(params.weights, params.buffers + 1)
    assert evaluate(network, other, Listed(*batches), None).loss != score.loss


def test_a_test_set_of_several_batches_is_gone_through_whole(network):
    # pixel values 0 and 1: x = 0 ties all outputs and the first one wins, x = 1 predicts 2
    size = PLAIN_BATCH + 1
    pixels = torch.zeros(size, 1, 1, 1, dtype=torch.uint8)
    pixels[-1] = 1
    images = Images(pixels, torch.zeros(size, dtype=torch.int64), torch.ones(1), torch.zeros(1))
    flat = Flattened(Batches(images, torch.arange(size)))
    assert evaluate(network, PARAMS, flat, None).accuracy == PLAIN_BATCH / size
    assert evaluate(network, PARAMS, flat, 2).accuracy == 1.0


class Flattened:
    def __init__(self, batches):
        self.batches = batches

    def plain(self):
        return (b._replace(x=b.x.flatten(1)) for b in self.batches.plain())


# --- class by class -------------------------------------------------------------------------------


def test_each_class_is_counted_by_itself(network):
    # over the real outputs: predicted 0, 1, 1 for the labels 0, 1, 0; class 2 has no example
    tested = evaluate(network, PARAMS, EXAMPLES, 2, num_classes=3)
    assert tested.class_accuracy == (0.5, 1.0, None)
    counted = tallies(network, PARAMS, EXAMPLES.plain(), Outputs(3, 2))
    assert [(tally.right, tally.size) for tally in counted] == [
        ([1, 1, 0], [1, 1, 0]),
        ([0, 0, 0], [1, 0, 0]),
    ]


def test_batches_are_added_up_by_class():
    tallied = [Tally(3.0, [1, 0, 0], [2, 1, 0]), Tally(1.0, [2, 1, 0], [2, 3, 0])]
    # 3 of 4 of the first class, 1 of 4 of the second: 4 of 8
    assert score(tallied) == Score(0.5, 0.5, (0.75, 0.25, None))


def test_nothing_to_test_is_no_tally(network):
    assert tallies(network, PARAMS, [], Outputs(2)) == []
