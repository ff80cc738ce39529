"""FedGPS and FedGPS-CF against numbers recorded from the authors' public implementation."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from fedgps_ray.methods.fedgps import FedGPS
from fedgps_ray.methods.fedgps_cf import FedGPSCF
from fedgps_ray.training.losses import supervised_contrast

_spec = importlib.util.spec_from_file_location("problem", Path(__file__).parent / "problem.py")
problem = importlib.util.module_from_spec(_spec)
sys.modules["problem"] = problem
_spec.loader.exec_module(problem)

HERE = Path(__file__).parent
OFFICIAL = FedGPS.presets["official"]["method"]
VARIANTS = {  # option changed -> (method, optimizer settings)
    "align_matched": (FedGPS(**OFFICIAL, align_labels="matched"), {}),
    "norm_global": (FedGPS(**{**OFFICIAL, "norm_epsilon": 0.0}, perturb_norm="global"), {}),
    "momentum_reset": (FedGPS(**OFFICIAL), {"client_momentum": "reset"}),
    "proto_count_weight": (FedGPS(norm_epsilon=-1e-7), {}),
    "cf_adjacent": (FedGPSCF(**OFFICIAL), {}),
    "no_path": (FedGPS(**OFFICIAL, rho=0.0), {}),
    "no_goal": (FedGPS(**OFFICIAL, goal=False), {}),
}


def close(got, expected, tolerance):
    expected = torch.as_tensor(np.asarray(expected), dtype=torch.float64)
    torch.testing.assert_close(got.double(), expected, rtol=0, atol=tolerance)


def trained_by(arrays, key):
    return problem.flat(arrays, key, problem.WEIGHTS, torch.float64)


def check_round(run, round_index, works, golden, tolerance):
    at = f"round{round_index}"
    for client, work in zip(problem.SCHEDULE[round_index], works, strict=True):
        here = f"{at}/client{client}"
        close(work.upload.delta, trained_by(golden, f"{here}/delta/"), tolerance)
        close(run.velocities[client], trained_by(golden, f"{here}/momentum/"), tolerance)
        classes = golden[f"{here}/protos/labels"] - 4
        close(work.upload.class_means[classes], golden[f"{here}/protos/values"], tolerance)
        close(work.upload.class_weights[classes], golden[f"{here}/protos/weights"], 0)
    server = run.state
    close(server.params.weights, trained_by(golden, f"{at}/server/params/"), tolerance)
    close(server.update, trained_by(golden, f"{at}/server/update/"), tolerance)
    buffers = problem.flat(golden, f"{at}/server/params/", problem.BUFFERS, torch.float64)
    close(server.params.buffers, buffers, tolerance)
    classes = golden[f"{at}/server/protos/labels"] - 4
    close(server.prototypes.values[classes], golden[f"{at}/server/protos/values"], tolerance)


@pytest.mark.parametrize(
    ("dtype", "name", "tolerance"),
    [(torch.float64, "default_f64", 1e-10), (torch.float32, "default_f32", 1e-5)],
)
def test_four_rounds_match_the_recording(dtype, name, tolerance):
    golden = np.load(HERE / f"{name}.npz")
    run = problem.Problem(FedGPS(**OFFICIAL), dtype)
    for round_index in range(4):
        works = run.round(round_index)
        check_round(run, round_index, works, golden, tolerance)
        run.network.load(run.state.params)
        run.network.model.eval()
        with torch.no_grad():
            logits = run.network(torch.from_numpy(problem.INPUTS["test/x"]).to(dtype))
        close(logits, golden[f"round{round_index}/server/test_logits"], 100 * tolerance)


def test_the_harmless_epsilon_stays_near_the_recording():
    golden = np.load(HERE / "default_f64.npz")
    run = problem.Problem(FedGPS(single_sample_weight="feature_dim"))
    for round_index in range(4):
        run.round(round_index)
        expected = trained_by(golden, f"round{round_index}/server/params/")
        close(run.state.params.weights, expected, 1e-6)
    assert not torch.equal(run.state.params.weights, expected)


@pytest.mark.parametrize("variant", VARIANTS)
def test_each_changed_option_matches_its_recording(variant):
    method, optimizer = VARIANTS[variant]
    golden = np.load(HERE / "derived_f64.npz")
    run = problem.Problem(method, **optimizer)
    for round_index in range(4):
        run.round(round_index)
        at = f"{variant}/round{round_index}/server"
        flat = torch.cat([run.state.params.weights, run.state.params.buffers])
        close(flat, golden[f"{at}/params_flat"], 1e-10)
        if method.goal:
            classes = golden[f"{at}/protos/labels"] - 4
            close(run.state.prototypes.values[classes], golden[f"{at}/protos/values"], 1e-10)


def test_every_recorded_variant_is_checked():
    assert set(VARIANTS) == set(problem.DERIVED["options"])


def test_step_losses_match_the_trace(monkeypatch):
    trace = iter(problem.FIXTURE["trace_f64"])
    losses = []
    real = FedGPS.objective

    def noted(self, local, labels, z, prototypes):
        value = real(self, local, labels, z, prototypes)
        losses.append(float(value.detach()))
        return value

    monkeypatch.setattr(FedGPS, "objective", noted)
    run = problem.Problem(FedGPS(**OFFICIAL))
    for round_index in range(4):
        run.round(round_index)
    expected = [step["loss_total"] for training in trace for step in training["steps"]]
    assert losses == pytest.approx(expected, abs=1e-10)


def test_divergence_matches_both_scalings():
    golden = np.load(HERE / "default_f64.npz")
    official = problem.Problem(FedGPS(**OFFICIAL, divergence_every=1))
    trained = problem.Problem(
        FedGPS(**{**OFFICIAL, "divergence_scale": "trained"}, divergence_every=1)
    )
    for round_index in range(4):
        official.round(round_index)
        trained.round(round_index)
        if round_index == 0:
            assert official.measured == {}
            continue
        each = golden[f"round{round_index}/divergence_per_client"]
        expected = float(golden[f"round{round_index}/divergence_official"])
        assert official.measured["divergence"] == pytest.approx(expected, abs=1e-10)
        assert trained.measured["divergence"] == pytest.approx(each.mean(), abs=1e-10)


@pytest.mark.parametrize("case", ["a", "b", "c"])
def test_contrast_values_and_gradients(case):
    recorded = {
        key.split("/")[1]: value
        for key, value in np.load(HERE / "supcon.npz").items()
        if key.startswith(case + "/")
    }
    z = torch.tensor(recorded["features"], dtype=torch.float64, requires_grad=True)
    real, noise = torch.from_numpy(recorded["y_real"]), torch.from_numpy(recorded["y_sur"])
    n, classes = len(real), int(recorded["classes"])
    fixed = torch.cat([z[:n], z[n:].detach()])
    distinct = supervised_contrast(fixed, torch.cat([real, noise + classes]))
    alone = supervised_contrast(z[n:], noise)
    matched = supervised_contrast(fixed, torch.cat([real, noise]))
    close(distinct.detach(), recorded["supcon_all"], 1e-10)
    close(alone.detach(), recorded["supcon_surrogate"], 1e-10)
    close(matched.detach(), recorded["supcon_matched"], 1e-10)
    (gradient,) = torch.autograd.grad(distinct + 0.1 * alone, z, retain_graph=True)
    close(gradient, recorded["grad_align_total"], 1e-10)
    (gradient,) = torch.autograd.grad(matched, z)
    close(gradient, recorded["grad_supcon_matched"], 1e-10)
