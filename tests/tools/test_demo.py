"""The demo's verdict, on tables that fit on paper."""

from pathlib import Path

import pandas as pd
import pytest

from fedgps_ray.errors import UserError
from fedgps_ray.experiment import load
from fedgps_ray.tools.demo import orders, verdict, why


def table(**columns):
    return pd.DataFrame(columns, index=pd.Index([1, 2, 3, 4, 5], name="scenario"))


FEDAVG = [90.0, 91.0, 92.0, 93.0, 94.0]


def test_a_clear_lead_over_fedgps():
    found = table(fedavg=FEDAVG, vhl=[80.0] * 5, fedgps=[88.0, 89.5, 89.5, 91.0, 92.0])
    told = verdict(found)
    assert told.startswith("FedAvg leads FedGPS by 2.0 points (95 % interval ")
    assert told.endswith("5 scenarios), which is more than chance.")
    assert why(found).startswith("FedGPS does not win here: on 8x8 images after 40 rounds")


def test_a_lead_that_chance_explains():
    # differences 5, -4, 3, -2, 1: their mean is 0.6
    found = table(fedavg=FEDAVG, fedgps=[85.0, 95.0, 89.0, 95.0, 93.0])
    assert "by 0.6 points (95 % interval -" in verdict(found)
    assert verdict(found).endswith("which chance explains as well.")


def test_where_fedgps_wins_it_is_compared_with_the_next():
    found = table(fedavg=FEDAVG, vhl=[80.0] * 5, fedgps=[95.0, 96.0, 97.0, 98.0, 99.0])
    assert verdict(found).startswith("FedGPS leads FedAvg by 5.0 points (95 % interval 5.0 to 5.0")
    assert why(found) == ""


def test_published_order_is_beside_ours():
    found = table(fedavg=FEDAVG, vhl=[80.0] * 5, fedgps=[85.0] * 5)
    lines = orders(found)
    assert [line.split()[:2] for line in lines[1:]] == [
        ["1.", "FedAvg"],
        ["2.", "FedGPS"],
        ["3.", "VHL"],
    ]
    assert [line.split()[5] for line in lines[1:]] == ["FedGPS", "VHL", "FedAvg"]


def test_too_little_to_compare():
    with pytest.raises(UserError, match="two scenarios"):
        verdict(table(fedavg=FEDAVG, fedgps=FEDAVG).head(1))


def test_the_demo_has_as_many_noise_images_as_real_ones():
    experiment = load(Path(__file__).parents[2] / "experiments" / "demo.toml")
    assert len(experiment.cells) == 15
    spec = experiment.cells[0].spec
    assert spec.surrogate.batch_size <= 2 * spec.batch_size
