"""FedDyn of experiments/own: vectors computed by hand from the paper's Algorithm 1, and the laws.

theta_k = argmin L_k(w) - <g_k, w> + alpha/2 |w - theta|^2;  g_k <- g_k - alpha (theta_k - theta)
h <- h - alpha/m sum(theta_k - theta);  theta <- mean(theta_k) - h / alpha
"""

from pathlib import Path

import pytest

from fedgps_ray.experiment import load, resolve
from fedgps_ray.tools.verify import laws, prove, toy

FOLDER = Path(__file__).parents[2] / "experiments" / "own"
START = {"w": [0.0]}


def made(**options):
    spec, _ = resolve({"method": {"name": "feddyn.py:FedDyn", **options}}, FOLDER)
    return spec.method


def test_first_round():
    """Slopes 1 and 3, lr 0.1: the clients end at -0.1 and -0.3; h = 0.5/2 * 0.4 = 0.1.

    theta = -0.2 - 0.1 / 0.5
    """
    game = toy.Federation(made(alpha=0.5), START, toy.slope(1.0), toy.slope(3.0)).round(0, 1)
    assert game.weights == pytest.approx((-0.4,), abs=1e-12)
    assert game.state.h.item() == pytest.approx(0.1)
    assert [game.memories[k].gradient.item() for k in (0, 1)] == pytest.approx([0.05, 0.15])


def test_second_round_with_one_of_two_clients():
    """Client 0 steps along 1 - 0.05: to -0.4 - 0.095. h = 0.1 + 0.5/2 * 0.095 = 0.12375.

    theta = -0.495 - 0.12375 / 0.5
    """
    game = toy.Federation(made(alpha=0.5), START, toy.slope(1.0), toy.slope(3.0))
    game.round(0, 1).round(0)
    assert game.state.h.item() == pytest.approx(0.12375)
    assert game.weights == pytest.approx((-0.7425,), abs=1e-12)
    assert game.memories[0].gradient.item() == pytest.approx(0.0975)
    assert game.memories[1].gradient.item() == pytest.approx(0.15), "it sat out"


def test_second_step_is_pulled_back_to_the_start():
    """-0.1, then a gradient of 1 + 0.5 * (-0.1) = 0.95."""
    local = toy.client(START, toy.slope(1.0), steps=2)
    done = made(alpha=0.5).work(local, local.network.params(), None)
    assert done.upload.delta.item() == pytest.approx(-0.195)
    assert done.memory.gradient.item() == pytest.approx(0.5 * 0.195)


def test_it_is_short():
    assert len((FOLDER / "feddyn.py").read_text().splitlines()) < 60


@pytest.mark.parametrize("law", laws.checks(made()), ids=lambda law: law.claim)
def test_law(law):
    proof = prove(law)
    assert proof.holds, proof.got


def test_one_file_compares_it_with_five_methods():
    cells = load(FOLDER / "compare.toml").cells
    methods = [cell.label.method for cell in cells]
    assert methods[-1] == "feddyn.py:FedDyn alpha=0.1"
    assert len(methods) == 6
    assert len({cell.spec.partition for cell in cells}) == 1
