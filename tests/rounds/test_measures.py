"""How clients' updates differ and how each client fares, on numbers that fit on paper."""

import math

import pytest
import torch

from fedgps_ray.methods.base import Reply
from fedgps_ray.rounds.measures import client_accuracies, label_counts, scores, update_diversity
from fedgps_ray.tensors import Params, Update, norm
from fedgps_ray.training.evaluate import Score
from fedgps_ray.training.local import Client

NOBODY = Client(0, (1,))


def reply(*delta):
    upload = Update(torch.tensor(delta), torch.zeros(0))
    return Reply(NOBODY, upload, update_norm=norm(upload.delta))


def test_updates_at_right_angles():
    # squared norms 9 and 16, mean 12.5; the mean update is (1.5, 2) with 6.25
    assert update_diversity([reply(3.0, 0.0), reply(0.0, 4.0)]) == pytest.approx(2.0)


def test_equal_updates_have_no_diversity():
    assert update_diversity([reply(1.0, 2.0)] * 3) == pytest.approx(1.0)


@pytest.mark.parametrize(
    "replies",
    [
        [reply(1.0), reply(-1.0)],  # their mean is zero
        [Reply(NOBODY, Params(torch.ones(2), torch.zeros(0)))],  # a model, not an update
    ],
)
def test_no_diversity_where_it_is_not_defined(replies):
    assert update_diversity(replies) is None


CLIENTS = [Client(0, (3, 1, 0)), Client(1, (0, 0, 5)), Client(2, (1, 1, 2)), Client(3, (0, 4, 0))]


def test_a_client_is_tested_with_its_own_shares_of_the_classes():
    # .75 * 1 + .25 * .5 ; .2 ; .25 * 1 + .25 * .5 + .5 * .2 ; .5
    assert client_accuracies((1.0, 0.5, 0.2), label_counts(CLIENTS)).tolist() == pytest.approx(
        [0.875, 0.2, 0.475, 0.5]
    )


def test_classes_without_test_examples_are_left_out():
    # client 0 has only class 0 left, client 1 nothing, client 2 a third of class 0 and two of 2
    assert client_accuracies((1.0, None, 0.4), label_counts(CLIENTS)).tolist() == pytest.approx(
        [1.0, 0.4, 0.6]
    )


def test_columns_of_a_test():
    # sorted .2 .475 .5 .875: the tenth percentile is .2 + .3 * .275, the median .4875
    told = scores(Score(0.6, 1.5, (1.0, 0.5, 0.2)), label_counts(CLIENTS))
    assert told == {
        "accuracy": 0.6,
        "loss": 1.5,
        "class_accuracy": [1.0, 0.5, 0.2],
        "worst_client_accuracy": pytest.approx(0.2),
        "p10_client_accuracy": pytest.approx(0.2825),
        "median_client_accuracy": pytest.approx(0.4875),
    }


def test_columns_are_empty_without_a_test():
    assert set(scores(None, label_counts(CLIENTS)).values()) == {None}


def test_client_columns_are_empty_where_no_class_is_known():
    told = scores(Score(0.0, math.inf, (None, None, None)), label_counts(CLIENTS))
    assert told["worst_client_accuracy"] is None
    assert told["class_accuracy"] == [None, None, None]
