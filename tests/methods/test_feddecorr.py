import pytest

from fedgps_ray.methods.feddecorr import FedDecorr
from fedgps_ray.training.local import Sgd


def test_batches_of_one_example_with_batchnorm(quick):
    data = {"name": "synthetic", "image_size": 4, "train_size": 30, "test_size": 10}
    finished = quick(FedDecorr(), dataset=data, clients=2, batch_size=1, rounds=1)
    assert finished[0].clients[0]["steps"] == finished[0].clients[0]["samples"]


def test_settings_are_those_of_the_paper():
    assert FedDecorr().coefficient == 0.1
    assert FedDecorr.optimizer == Sgd(lr=0.01, momentum=0.9, weight_decay=1e-5)


@pytest.mark.parametrize("wrong", [{"coefficient": -0.1}, {"form": "other"}, {"lambda": 1.0}])
def test_wrong_settings_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        FedDecorr(**wrong)
