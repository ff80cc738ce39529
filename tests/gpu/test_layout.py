"""Convolutions whose weights lie channels-last in memory: the same model, the same hash."""

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from fedgps_ray.data.datasets import NO_SOURCE
from fedgps_ray.methods import METHODS
from fedgps_ray.rounds.loop import Snapshot, run
from fedgps_ray.rounds.pool import InProcess
from fedgps_ray.rounds.setup import prepare
from fedgps_ray.rounds.trial import claimed, run_with_pool
from fedgps_ray.rounds.worker import Worker
from fedgps_ray.spec import ExecutionSpec, trial_spec
from fedgps_ray.tensors import Piece, logical, pieces, sha256, views


def tiny_spec(method, **values):
    data = {"num_classes": 3, "image_size": 8, "channels": 3, "train_size": 60, "test_size": 15}
    options = {"name": method, **({"virtual_features": 20} if method == "ccvr" else {})}
    defaults = {
        "dataset": {"name": "synthetic", **data},
        "partition": {"alpha": 0.5, "min_size": 6},
        "model": "convnet",
        "clients": 4,
        "rounds": 2,
        "batch_size": 8,
        "surrogate": {"per_class": 4, "batch_size": 6},
        "precision": "float64",
    }
    return trial_spec(method=options, **{**defaults, **values})


def worker_of(spec):
    """Return a worker on the CPU whatever the device of the spec: only the layout follows it."""
    return Worker(prepare(spec, NO_SOURCE), "cpu")


def trained(spec):
    worker = worker_of(spec)
    state = spec.method.init(worker.initial(), worker.cohort())
    rounds = list(run(spec, worker.cohort(), InProcess(worker), Snapshot(0, state, {})))
    params = spec.method.global_params(rounds[-1].snapshot.state)
    return rounds, logical(params.weights, worker.cohort().layout.weights)


def test_a_piece_lies_channels_last_and_reads_as_ever():
    # two filters of two channels, one row of three: memory goes through the channels first
    piece = Piece("conv.weight", (2, 2, 1, 3), 0, channels_last=True)
    vector = torch.arange(12.0)
    tensor = piece.of(vector)
    assert tensor.shape == (2, 2, 1, 3)
    assert tensor.is_contiguous(memory_format=torch.channels_last)
    assert tensor[0].tolist() == [[[0.0, 2.0, 4.0]], [[1.0, 3.0, 5.0]]]
    assert tensor.data_ptr() == vector.data_ptr()
    assert logical(vector, (piece,)).tolist() == [0, 2, 4, 1, 3, 5, 6, 8, 10, 7, 9, 11]


def test_without_such_pieces_nothing_is_copied():
    vector = torch.arange(6.0)
    assert logical(vector, pieces([("a", (2, 3))])) is vector


@pytest.mark.parametrize("model", ["mlp", "cnn", "convnet", "resnet18", "vit"])
def test_the_first_model_has_the_same_hash_in_either_order(model):
    found = []
    for device in ("cpu", "cuda"):
        size = {"image_size": 32, "channels": 3, "num_classes": 3, "train_size": 60}
        spec = tiny_spec(
            "fedavg", model=model, device=device, dataset={"name": "synthetic", **size}
        )
        worker = worker_of(spec)
        layout, weights = worker.network.layout.weights, worker.initial().weights
        orders = {piece.channels_last for piece in layout if len(piece.shape) == 4}
        assert orders <= {device == "cuda"}
        found.append(sha256(logical(weights, layout)))
        for name, view in views(weights, layout).items():
            assert torch.equal(view, dict(worker.network.model.named_parameters())[name])
    assert found[0] == found[1]


@pytest.mark.parametrize("method", METHODS)
def test_every_method_comes_to_the_same_weights_in_either_order(method):
    plain, weights = trained(tiny_spec(method))
    other, weights_there = trained(tiny_spec(method, device="cuda"))
    torch.testing.assert_close(weights_there, weights, rtol=1e-6, atol=1e-9)
    for one, two in zip(plain, other, strict=True):
        assert two.row["loss"] == pytest.approx(one.row["loss"], rel=1e-6)
    assert other[-1].row["weights_sha256"] == sha256(weights_there)


def test_the_model_file_has_the_usual_shapes_and_order(tmp_path):
    models = []
    for device in ("cpu", "cuda"):
        spec, execution = tiny_spec("fedavg", device=device), ExecutionSpec(out=tmp_path / device)
        with claimed(spec, execution) as store:
            worker = worker_of(spec)
            list(run_with_pool(store, execution, worker, InProcess(worker)))
        models.append(load_file(store.folder / "model.safetensors"))
    assert models[0].keys() == models[1].keys()
    for name, tensor in models[0].items():
        assert models[1][name].is_contiguous()
        np.testing.assert_allclose(models[1][name], tensor, rtol=1e-6, atol=1e-9)
