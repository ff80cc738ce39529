import torch
import torch.nn.functional as F

from fedgps_ray.data.datasets import NO_SOURCE
from fedgps_ray.methods.centralized import Centralized
from fedgps_ray.models import build, initialise
from fedgps_ray.rounds.setup import prepare
from fedgps_ray.rounds.worker import Worker
from fedgps_ray.seeds import stream
from fedgps_ray.spec import trial_spec

SGD = {"lr": 0.05, "momentum": 0.9, "weight_decay": 1e-3}


def test_the_pooled_data_is_one_client(quick):
    spec = trial_spec(method="centralized", clients=10, sampling_rate=0.5, partition="dirichlet")
    assert (spec.clients, spec.sampling_rate, spec.partition.kind) == (1, 1.0, "iid")
    finished = quick(Centralized(), rounds=1)[0]
    assert [(row["client"], row["samples"]) for row in finished.clients] == [(0, 150)]


def test_rounds_are_epochs_of_plain_sgd(quick, tiny):
    settings = {"precision": "float64", "optimizer": SGD}
    finished = quick(Centralized(), **settings)
    spec = trial_spec(method="centralized", **{**tiny, **settings})
    worker = Worker(prepare(spec, NO_SOURCE))
    model = build("convnet", (3, 8, 8), 10).double()
    initialise(model, stream(0, "init"))
    optimizer = torch.optim.SGD(model.parameters(), **SGD)
    for epoch in range(3):
        for batch in worker.local(0, epoch, None).batches():
            optimizer.zero_grad()
            F.cross_entropy(model(batch.x), batch.y).backward()
            optimizer.step()
        expected = torch.cat([p.detach().flatten() for p in model.parameters()])
        found = finished[epoch].snapshot.state.params.weights
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
