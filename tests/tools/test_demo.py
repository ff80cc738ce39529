"""What the demo adds to its report, on tables that fit on paper."""

from pathlib import Path

import pandas as pd
import pytest

from fedgps_ray.errors import UserError
from fedgps_ray.experiment import load
from fedgps_ray.tools.demo import orders, scores, why
from fedgps_ray.tools.fabricate import Size, fabricate


def table(**columns):
    return pd.DataFrame(columns, index=pd.Index([1, 2], name="scenario"))


def test_why_is_said_only_where_fedgps_does_not_win():
    assert why(table(fedavg=[90.0, 92.0], fedgps=[89.0, 91.0])).startswith(
        "FedGPS does not win here: on 8x8 images after 40 rounds"
    )
    assert why(table(fedavg=[90.0, 92.0], fedgps=[89.0, 99.0])) == ""


def test_published_order_is_beside_ours():
    lines = orders(table(fedavg=[90.0, 92.0], vhl=[80.0, 80.0], fedgps=[85.0, 85.0]))
    assert [line.split()[:3] for line in lines[1:]] == [
        ["1.", "FedAvg", "91.00"],
        ["2.", "FedGPS", "85.00"],
        ["3.", "VHL", "80.00"],
    ]
    assert [line.split()[5:7] for line in lines[1:]] == [
        ["FedGPS", "86.73"],
        ["VHL", "85.69"],
        ["FedAvg", "75.69"],
    ]


def test_scores_are_those_of_scenarios_that_all_methods_finished(tmp_path):
    fabricate(tmp_path / "made", Size(trials=8, running=0, failed=0, rounds=5))
    found = scores(tmp_path / "made")
    assert found.shape[0] == 1
    assert found.to_numpy().min() > 1  # percent


def test_a_demo_of_which_nothing_has_finished_says_so(tmp_path):
    fabricate(tmp_path / "made", Size(trials=8, running=6, failed=0, rounds=5))
    with pytest.raises(UserError, match="no scenario"):
        scores(tmp_path / "made")


def test_the_demo_has_as_many_noise_images_as_real_ones():
    experiment = load(Path(__file__).parents[2] / "experiments" / "demo.toml")
    assert len(experiment.cells) == 15
    spec = experiment.cells[0].spec
    assert spec.surrogate.batch_size <= 2 * spec.batch_size
