"""The theory of FedGPS: distances and curvature against known ones, and on real trials."""

import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from scipy.stats import wasserstein_distance

from fedgps_ray.analysis import theory as shown
from fedgps_ray.cli.declared import Report
from fedgps_ray.data.datasets import Source
from fedgps_ray.errors import UserError
from fedgps_ray.methods import METHODS
from fedgps_ray.results import files
from fedgps_ray.results.store import TrialStore
from fedgps_ray.rounds.trial import run_trial
from fedgps_ray.spec import ExecutionSpec, trial_spec
from fedgps_ray.tools import theory

DATA = {"num_classes": 3, "image_size": 8, "channels": 1, "train_size": 60, "test_size": 15}
TINY = {
    "dataset": {"name": "synthetic", **DATA},
    "partition": {"alpha": 0.5, "min_size": 6},
    "model": "mlp",
    "clients": 4,
    "rounds": 2,
    "batch_size": 8,
    "surrogate": {"per_class": 8, "batch_size": 6},
}


def run(folder, **values):
    spec = trial_spec(**{**TINY, **values})
    for _ in run_trial(spec, ExecutionSpec(out=folder, actors=0)):
        pass
    return TrialStore(folder, spec).folder


# --- distances ------------------------------------------------------------------------------------


def test_the_distance_of_two_points_is_their_distance():
    assert theory.transport(torch.tensor([[0.0, 0.0]]), torch.tensor([[3.0, 4.0]])) == 5.0


def test_a_shifted_cloud_is_as_far_as_it_was_shifted():
    cloud = torch.randn(50, 8, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    shift = torch.full((8,), 2.0, dtype=torch.float64)
    assert theory.transport(cloud, cloud + shift) == pytest.approx(2 * math.sqrt(8))


def test_on_a_line_it_is_the_known_distance_also_of_clouds_of_unlike_size():
    rng = np.random.Generator(np.random.PCG64(0))
    x, y = rng.normal(size=30), rng.exponential(size=47)
    found = theory.transport(torch.from_numpy(x[:, None]), torch.from_numpy(y[:, None]))
    assert found == pytest.approx(wasserstein_distance(x, y))


def test_the_lipschitz_constant_bounds_the_gradient_and_is_reached():
    generator = torch.Generator().manual_seed(0)
    head = torch.randn(4, 6, generator=generator)
    z = (10 * torch.randn(200, 6, generator=generator)).requires_grad_()
    y = torch.randint(4, (200,), generator=generator)
    (gradient,) = torch.autograd.grad(F.cross_entropy(z @ head.T, y, reduction="sum"), z)
    assert float(gradient.norm(dim=1).max()) <= theory.cross_entropy_lipschitz(head)
    opposite = torch.tensor([[1.0, 0.0], [-1.0, 0.0]])  # confident and wrong: p - e_y = (1, -1)
    z = torch.tensor([[100.0, 0.0]], requires_grad=True)
    (gradient,) = torch.autograd.grad(F.cross_entropy(z @ opposite.T, torch.tensor([1])), z)
    assert float(gradient.norm()) == pytest.approx(theory.cross_entropy_lipschitz(opposite))


# --- curvature ------------------------------------------------------------------------------------


def quadratic(matrix):
    """Return v -> H v of x'Ax / 2, whose Hessian is A, split over two parameters."""
    first = torch.ones(2, dtype=torch.float64, requires_grad=True)
    second = torch.ones(len(matrix) - 2, dtype=torch.float64, requires_grad=True)
    x = torch.cat([first, second])
    return theory.hessian_product(x @ matrix @ x / 2, [first, second])


def symmetric(eigenvalues):
    generator = torch.Generator().manual_seed(3)
    size = len(eigenvalues)
    basis, _ = torch.linalg.qr(torch.randn(size, size, generator=generator, dtype=torch.float64))
    return basis @ torch.diag(torch.tensor(eigenvalues, dtype=torch.float64)) @ basis.T


def test_the_hessian_of_a_quadratic_is_its_matrix():
    matrix = symmetric([1.0, 2.0, 3.0, -4.0])
    vector = torch.tensor([1.0, -2.0, 0.5, 3.0], dtype=torch.float64)
    torch.testing.assert_close(quadratic(matrix)(vector), matrix @ vector)


@pytest.mark.parametrize(
    "eigenvalues", [[5.0, 1.0, 0.5, 0.1], [1.0, 0.5, -3.0, -0.2], [-1.0, -2.0, -7.0, -3.0]]
)
def test_both_ends_of_a_known_spectrum(eigenvalues):
    start = torch.tensor([1.0, 0.3, -0.7, 0.2], dtype=torch.float64)
    largest, smallest = theory.extreme_eigenvalues(quadratic(symmetric(eigenvalues)), start)
    near = 1e-3 * max(map(abs, eigenvalues))
    assert (largest, smallest) == pytest.approx((max(eigenvalues), min(eigenvalues)), abs=near)


def test_the_hessian_of_a_softmax_is_the_one_of_autograd():
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(20, 3, generator=generator, dtype=torch.float64)
    y = torch.randint(4, (20,), generator=generator)

    def loss(flat):
        return F.cross_entropy(x @ flat.view(4, 3).T, y)

    weights = torch.randn(12, generator=generator, dtype=torch.float64, requires_grad=True)
    full = torch.autograd.functional.hessian(loss, weights)
    start = torch.randn(12, generator=generator, dtype=torch.float64)
    product = theory.hessian_product(loss(weights), [weights])
    torch.testing.assert_close(product(start), full @ start)
    ends = torch.linalg.eigvalsh(full)
    found = theory.extreme_eigenvalues(product, start)
    assert found == pytest.approx((float(ends[-1]), float(ends[0])), rel=0.01, abs=0.01)


def test_a_flat_loss_has_no_curvature():
    start = torch.ones(3)
    assert theory.extreme_eigenvalues(torch.zeros_like, start) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("length", "norm"),
    [(0.0, 1.0), (0.25, 0.75), (0.4, 0.6), (0.5, 1.0), (1.0, 3.0)],  # H = diag(4, 1)
)
def test_the_norm_of_the_path_condition(length, norm):
    by_hand = np.linalg.norm(np.eye(2) - length * np.diag([4.0, 1.0]), 2)
    assert theory.deviation_norm(length, 4.0, 1.0) == pytest.approx(norm)
    assert by_hand == pytest.approx(norm)


@pytest.mark.parametrize(
    ("method", "length"),
    [
        ("fedavg", 0.5),  # has none: FedGPS's default
        ({"name": "fedgps", "rho": 0.1}, 0.1),
        ({"name": "fedgps", "rho_relative": 0.0015}, 0.03),  # of weights of norm 20
        ({"name": "fedgps", "rho": 0.1, "rho_relative": 0.0}, 0.0),
    ],
)
def test_the_length_of_the_path_is_the_one_that_is_used(method, length):
    assert theory.path_length(trial_spec(method=method), 20.0) == pytest.approx(length)


def test_the_curvature_along_a_direction():
    hessian = torch.diag(torch.tensor([4.0, 1.0]))
    # (1, 1): (4 + 1) / 2; its length does not matter
    assert theory.curvature_along(hessian.mv, torch.tensor([3.0, 3.0])) == pytest.approx(2.5)
    assert theory.curvature_along(hessian.mv, torch.zeros(2)) == 0.0


# --- on a real trial ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("results")
    for method in ("fedavg", "fedgps"):
        run(folder, method=method)
    return folder


def test_the_terms_of_a_trial_add_up_and_come_out_again(results):
    trial = next(results.glob("trials/*"))
    found = theory.measure(trial, samples=20)
    assert found == theory.measure(trial, samples=20)
    assert len(found["clients"]) == 2
    for row in found["clients"]:
        terms = [row[name] for name in shown.TERMS]
        assert min(terms) > 0
        assert row["gap"] == pytest.approx(row["global_risk"] - row["local_risk"])
        assert row["bound"] == pytest.approx(row["lipschitz"] * sum(terms))
        assert row["held"] == (row["gap"] <= row["bound"])
        assert row["global_surrogate"] <= 2 * row["largest_feature"]
    curved = found["curvature"]
    assert curved["largest"] > curved["smallest"]
    assert curved["lambda_g"] == 0.5
    assert curved["smallest"] <= curved["along_gradient"] <= curved["largest"]
    model = load_file(trial / "model.safetensors")
    weights = [value for name, value in model.items() if "running" not in name]
    norm = math.sqrt(sum(float((value.double() ** 2).sum()) for value in weights))
    assert curved["weights_norm"] == pytest.approx(norm, rel=1e-5)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_can_be_measured(tmp_path, method):
    trial = run(tmp_path, method=method, rounds=1)
    found = theory.measure(trial, samples=10)
    assert len(found["clients"]) == (1 if method == "centralized" else 2)
    assert all(math.isfinite(row["bound"]) for row in found["clients"])
    assert math.isfinite(found["curvature"]["norm"])


def test_a_client_that_stands_still_leaves_the_surrogate_where_it_was(tmp_path):
    trial = run(tmp_path, method="fedgps", optimizer={"lr": 1e-20})
    rows = theory.measure(trial, samples=20)["clients"]
    assert [row["surrogate_global"] for row in rows] == pytest.approx([0, 0], abs=1e-6)


def test_every_ended_trial_is_measured_once(results):
    told = []
    waiting = TrialStore(results, trial_spec(**TINY, method="fedprox"))
    waiting.open(ExecutionSpec(out=results))
    written = theory.measure_all(results, told.append, samples=20)
    assert sorted(path.name for path in written) == ["theory.json"] * 2
    assert f"{waiting.folder.name}: not measured, it has not ended" in told
    assert theory.measure_all(results, told.append, samples=20) == []
    frames = shown.read(results)
    assert set(frames.clients["label"]) == {"FedAvg", "FedGPS"}
    assert len(frames.curvature) == 2


def test_what_cannot_be_measured_is_told(tmp_path, trial_maker):
    with pytest.raises(UserError, match="no trials in"):
        theory.measure_all(tmp_path, print)
    trial = trial_maker(tmp_path, method="fedgps", model="mlp", rounds=1)
    with pytest.raises(UserError, match=r"has no model.safetensors; finish it: fedgps-ray resume"):
        theory.measure(trial.folder)
    with pytest.raises(UserError, match="nothing was measured"):
        shown.read(tmp_path)
    (trial.folder / "theory.json").write_text("[]")
    with pytest.raises(UserError, match=r"theory.json is damaged .* delete it and measure again"):
        shown.read(tmp_path)


# --- figures --------------------------------------------------------------------------------------


def measured(label, gaps, bound=2.0):
    rows = [{"gap": gap, "bound": bound, "held": gap <= bound} for gap in gaps]
    terms = {"local_surrogate": 3.0, "surrogate_global": 1.0, "global_surrogate": 2.0}
    return [{"label": label, "method": label, **terms, **row} for row in rows]


def test_the_terms_and_how_often_the_bound_held():
    frame = pd.DataFrame([*measured("fedgps", [1.0, 3.0]), *measured("fedavg", [0.5])])
    terms, shares = shown.bound_terms(frame), shown.bound_shares(frame)
    assert terms.y.names == ("fedavg", "fedgps")
    assert [one.x[1] for one in terms.panels[0].series] == [3.0, 1.0, 2.0]
    assert shares.panels[0].title == "the bound held for 2 of 3 clients"
    assert shares.panels[0].series[1].x == [0.5, 1.5]
    assert shares.panels[0].series[1].y == [1, 1]


def test_the_path_condition_is_drawn_where_it_holds():
    row = {"label": "fedgps", "method": "fedgps", "largest": 2.0, "smallest": 1.0, "lambda_g": 0.5}
    chart = shown.path_condition(pd.DataFrame([row]))
    curve = chart.panels[0].series[0]
    below = [x for x, y in zip(curve.x, curve.y, strict=True) if y < 0.9999]
    assert max(below) == pytest.approx(1.0, rel=0.06)  # |1 - 2 lambda| < 1 up to lambda = 1
    assert [guide.label for guide in chart.guides] == ["", "lambda_g = 0.5"]


def test_the_file_is_json_with_plain_numbers(results):
    trial = next(results.glob("trials/*/rounds.parquet")).parent
    assert json.loads(json.dumps(theory.measure(trial, 10)))["samples"] == 10


@pytest.mark.parametrize("place", ["trials", "trials/ID", "sweep"])
def test_nothing_is_written_through_a_link(tmp_path, place):
    trial = run(tmp_path / "theirs" / "sweep", method="fedavg", rounds=1)
    folder = tmp_path / "theirs" / "sweep"
    link = tmp_path / "sent" / place.replace("ID", trial.name)
    link.parent.mkdir(parents=True)
    link.symlink_to(folder if place == "sweep" else folder / place.replace("ID", trial.name))
    with pytest.raises(UserError, match="is a symbolic link"):
        theory.measure_all(tmp_path / "sent", print, samples=10)
    assert not (trial / theory.FILE).exists()


def test_where_data_is_read_the_folder_does_not_say(tmp_path, monkeypatch):
    trial = run(tmp_path, method="fedavg", rounds=1)
    info = json.loads((trial / "trial.json").read_text())
    told = {"data_dir": "/theirs", "download": True, "files": {"a" * 64: "/dev/zero"}}
    files.write_json(trial / "trial.json", {**info, "execution": info["execution"] | told})
    used = []
    monkeypatch.setattr(theory, "with_surrogate", lambda spec, source: used.append(source))
    monkeypatch.setattr(theory, "Worker", lambda setup: None)
    monkeypatch.setattr(theory, "read_model", lambda folder, worker: None)
    monkeypatch.setattr(theory, "Probe", lambda *_: SimpleNamespace(clients=list, curvature=Empty))
    for data_dir in (None, Path("/mine")):
        theory.measure(trial, data_dir=data_dir)
    assert used == [Source(None, False, {}), Source(Path("/mine"), False, {})]


class Empty(NamedTuple):
    """No figures."""


def test_the_option_for_data_is_for_the_theory():
    with pytest.raises(UserError, match="--data-dir is for --theory"):
        Report(folders=[Path()], data_dir=Path("data"))
