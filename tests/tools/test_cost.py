"""Estimated costs against those of real rounds, counted image by image and byte by byte."""

from collections import Counter

import numpy as np
import pytest
import torch

from fedgps_ray.data.datasets import NO_SOURCE, Source, load, npz_spec
from fedgps_ray.methods import METHODS
from fedgps_ray.methods.ccvr import CCVR
from fedgps_ray.methods.delta_sgd import DeltaSGD
from fedgps_ray.methods.fedgps import FedGPS
from fedgps_ray.methods.fedlesam import FedLESAM
from fedgps_ray.methods.nucfl import NUCFL
from fedgps_ray.rounds.loop import Snapshot, run
from fedgps_ray.rounds.pool import InProcess
from fedgps_ray.rounds.setup import prepare
from fedgps_ray.rounds.worker import Worker
from fedgps_ray.spec import trial_spec
from fedgps_ray.tools.cost import estimate as cost
from fedgps_ray.tools.cost.estimate import FORWARD_SHARE
from fedgps_ray.tools.cost.law import PROBES, Law, RoundWork, image_terms, law_of, message_terms

# Four clients of 12 images: a full batch of 8 and one that is half full, as the estimate supposes.
TINY = {
    "dataset": {"name": "synthetic", "num_classes": 3, "image_size": 8, "train_size": 48}
    | {"test_size": 20},
    "partition": "iid",
    "clients": 4,
    "sampling_rate": 0.5,
    "batch_size": 8,
    "surrogate": {"per_class": 5, "batch_size": 7},
}
LATER = 2  # the first round sends less in some methods


def rounds_of(spec):
    """Yield the row of each round, with the images that went through the network in it."""
    worker = Worker(prepare(spec, NO_SOURCE))
    counts = Counter()

    def count(module, given, output):
        counts["gradient" if torch.is_grad_enabled() else "forward"] += len(given[0])

    worker.network.chain = None  # it passes by the hooks of layers
    worker.network.model.body.register_forward_hook(count)
    state = spec.method.init(worker.initial(), worker.cohort())
    for finished in run(spec, worker.cohort(), InProcess(worker), Snapshot(0, state, {})):
        yield finished.row, dict(counts)


def later_round(spec):
    """Return what one round costs that is not the first."""
    *_, (_, before), (row, after) = rounds_of(spec)
    images = {key: after[key] - before.get(key, 0) for key in after}
    return row, images


def quick(method):
    return CCVR(virtual_features=5) if type(method) is CCVR else method


VARIANTS = {name: quick(kind()) for name, kind in METHODS.items()} | {
    "ccvr diagonal": CCVR(virtual_features=5, covariance="diagonal"),
    "fedgps from the text": FedGPS(**FedGPS.presets["paper"]["method"]),
    "fedgps without path": FedGPS(rho=0),
    "fedgps without goal": FedGPS(goal=False),
    "fedlesam sends the update": FedLESAM(reference="last_update"),
    "fedlesam base": FedLESAM(variant="base"),
    "nucfl by heads": NUCFL(compare="head_updates"),
}


@pytest.mark.parametrize(
    ("name", "model"),
    [*((name, "convnet") for name in VARIANTS), ("fedgps", "mlp"), ("ccvr", "cnn")],
)
def test_a_round_costs_what_was_estimated(name, model):
    spec = trial_spec(method=VARIANTS[name], model=model, rounds=LATER, **TINY)
    row, images = later_round(spec)
    estimated = cost.estimate(spec.model_copy(update={"rounds": 1}), seconds_per_image=1.0)
    assert estimated.bytes_up == row["bytes_up"]
    assert estimated.bytes_down == row["bytes_down"]
    assert estimated.gradient_images == images["gradient"]
    assert estimated.forward_images == images["forward"]
    assert estimated.steps == row["steps"]


def test_epochs_and_rounds_multiply_and_tests_may_be_rare():
    # 10 rounds, 2 clients of 12 images, 3 epochs of 2 steps; 20 images are tested 3 times.
    spec = trial_spec(
        method="fedasam", rounds=10, local_epochs=3, evaluate_every=4, model="mlp", **TINY
    )
    estimated = cost.estimate(spec, seconds_per_image=0.5)
    assert estimated.images == 10 * 2 * 12 * 3
    assert estimated.gradient_images == 2 * estimated.images  # a second gradient
    assert estimated.steps == 10 * 2 * 3 * 2
    assert estimated.forward_images == 3 * 20
    assert estimated.seconds == pytest.approx(0.5 * (2 * 720 + 60 * FORWARD_SHARE))


def test_a_cell_of_the_paper():
    spec = trial_spec(
        method="fedgps", dataset="cifar10", model="resnet18", rounds=500, batch_size=64
    )
    estimated = cost.estimate(spec, seconds_per_image=0.001)
    assert estimated.images == 500 * 5 * 5000
    steps = 500 * 5 * (5000 / 64 + 0.5)
    assert estimated.steps == pytest.approx(steps, abs=1)
    assert estimated.gradient_images == estimated.images + 128 * steps
    weights, buffers, prototypes = 11_179_092, 9_600, 10 * 512
    assert estimated.bytes_up == 2500 * 4 * (weights + buffers + prototypes + 10)
    assert estimated.bytes_down == 2500 * (4 * (2 * weights + buffers + prototypes) + 10 + 8)
    seconds = 0.001 * (estimated.gradient_images + 500 * 10_000 / 3)
    assert estimated.seconds == pytest.approx(seconds)


def test_centralized_training_sees_everything_once_an_epoch():
    spec = trial_spec(method="centralized", rounds=7, local_epochs=2, **TINY)
    assert cost.estimate(spec, 1.0).images == 7 * 2 * 48


def test_the_probes_tell_all_terms_apart():
    messages = np.stack(
        [message_terms(s.spare + 7, s.buffers, s.features, s.classes) for s in PROBES]
    )
    assert np.linalg.matrix_rank(messages) == messages.shape[1]
    works = np.stack([image_terms(RoundWork(s.steps * s.batch, *s[4:])) for s in PROBES])
    assert np.linalg.matrix_rank(works) == works.shape[1]


def test_a_learning_rate_of_its_own_costs_a_gradient_in_all_steps_but_the_first():
    spec = trial_spec(method=DeltaSGD(), rounds=1, model="mlp", **TINY)
    assert cost.estimate(spec, 1.0).gradient_images == 2 * (2 * 12 - 8)


def test_measuring_the_divergence_is_left_out():
    plain, measured = (law_of(FedGPS(divergence_every=n), "float32") for n in (0, 1))
    for name, of_plain, of_measured in zip(Law._fields, plain, measured, strict=True):
        assert of_plain.tolist() == of_measured.tolist(), name


def test_sizes_of_data_sets(tmp_path):
    assert cost.size_of(trial_spec(dataset="svhn").dataset) == (73_257, 26_032, 10, (3, 32, 32))
    assert cost.size_of(trial_spec(dataset="digits").dataset) == (1437, 360, 10, (1, 8, 8))
    synthetic = trial_spec(**TINY).dataset
    data = load(synthetic)
    assert cost.size_of(synthetic) == (len(data.x_train), len(data.x_test), 3, (3, 8, 8))
    x = np.zeros((6, 9, 7), np.uint8)
    np.savez(tmp_path / "own.npz", x_train=x, y_train=np.arange(6) % 2, x_test=x, y_test=[0] * 6)
    own = npz_spec(tmp_path / "own.npz")
    source = Source(files={own.sha256: str(tmp_path / "own.npz")})
    assert cost.size_of(own, source) == (6, 6, 2, (1, 9, 7))


# --- time ----------------------------------------------------------------------------------------


def test_a_larger_model_takes_longer():
    threads = torch.get_num_threads()
    small = cost.measure_seconds_per_image("mlp", (3, 8, 8))
    large = cost.measure_seconds_per_image("resnet18", (3, 8, 8), batch_size=2)
    assert 0 < small.seconds < large.seconds
    assert small.threads == 1
    assert "core" in small.device
    assert torch.get_num_threads() == threads


def test_gpu_hours_come_from_the_gpu_or_from_an_assumption():
    assert cost.gpu_hours(7200, "cuda", gpu_speedup=10) == 2
    assert cost.gpu_hours(7200, "cpu", gpu_speedup=10) == 0.2


def test_a_budget_adds_up_and_says_what_it_rests_on():
    specs = [
        trial_spec(method=method, model=model, rounds=3, **TINY)
        for method in ("fedavg", "fedgps")
        for model in ("mlp", "convnet")
    ]
    estimated = cost.budget(specs, device="cpu", gpu_speedup=20)
    timed = {
        name: cost.measure_seconds_per_image(name, (3, 8, 8), 8, "cpu").seconds
        for name in ("mlp", "convnet")
    }
    costs = [cost.estimate(spec, timed[spec.model]) for spec in specs]
    assert estimated.trials == 4
    assert estimated.images == sum(one.images for one in costs)
    assert estimated.bytes_up == sum(one.bytes_up for one in costs)
    assert estimated.bytes_down == sum(one.bytes_down for one in costs)
    assert estimated.core_hours * 3600 == pytest.approx(sum(one.seconds for one in costs))
    assert estimated.gpu_hours == pytest.approx(estimated.core_hours / 20)
    for part in ("Measured on one core of", "mlp", "convnet", "assumed", "20 times as fast"):
        assert part in estimated.sentence


def test_nothing_is_assumed_about_a_gpu_that_was_measured():
    measured = {"mlp": cost.Measured(0.001, "a GPU", 1)}
    text = cost.sentence(measured, "cuda")
    assert "times as fast" not in text
    assert "on a GPU: mlp 1 ms" in text
