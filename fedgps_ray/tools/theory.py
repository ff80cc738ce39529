"""Measures what the theory of FedGPS bounds and assumes, on the final model of a trial."""

import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import ot  # type: ignore[import-untyped]
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor

from fedgps_ray import seeds
from fedgps_ray.data.batches import Batches
from fedgps_ray.data.datasets import Source
from fedgps_ray.errors import UserError
from fedgps_ray.identity import Table
from fedgps_ray.methods.base import Turn
from fedgps_ray.methods.fedgps import FedGPS
from fedgps_ray.results import files
from fedgps_ray.results.named import known_files
from fedgps_ray.results.read import read_trial, trial_folders
from fedgps_ray.results.schema import ENDED
from fedgps_ray.rounds.setup import Setup, prepare
from fedgps_ray.rounds.worker import Worker
from fedgps_ray.spec import TrialSpec, trial_spec
from fedgps_ray.tensors import Params

SAMPLES = 256  # of each distribution; exact transport takes the cube of it
FILE = "theory.json"
Product = Callable[[Tensor], Tensor]


class Terms(NamedTuple):
    """The terms of Theorem 4.1, as we read it, for one client after one more round of training.

    global risk - local risk <= L (W1(local, local surrogate) + W1(local surrogate, global
    surrogate) + W1(global surrogate, global)), all of them distributions of features. The loss is
    L-Lipschitz in the features, but it also depends on labels, which W1 ignores: so we measure.
    """

    client: int
    local_surrogate: float
    surrogate_global: float
    global_surrogate: float
    lipschitz: float  # of the cross-entropy in the features, under the client's own head
    largest_feature: float  # the norm B; the last term is called kappa and is at most 2 B L
    local_risk: float  # the client's head on its own features
    global_risk: float  # the client's head on the global model's features of all data
    gap: float
    bound: float
    held: bool


class Curvature(NamedTuple):
    """The condition of the path: |I - lambda_g H| below 1, H of the loss on all clients' data.

    The condition is that of a step of lambda_g times the gradient. FedGPS's step has a fixed length
    instead, so the norms of the weights and of the gradient are kept to convert one to the other.
    """

    largest: float  # eigenvalue of H
    smallest: float
    lambda_g: float
    norm: float
    held: bool
    along_gradient: float  # g'Hg / g'g: the gradient after a step of s g is about (1 - s this) g
    gradient_norm: float
    weights_norm: float


def measure_all(
    folder: Path,
    notify: Callable[[str], None],
    samples: int = SAMPLES,
    data_dir: Path | None = None,
) -> list[Path]:
    """Write theory.json for each finished trial of a folder that does not have it yet.

    data_dir: where the user keeps data; the folder does not say that, and nothing is downloaded.
    """
    nested = sorted(path.parent for path in folder.glob("*/trials/*/trial.json"))
    trials = trial_folders(folder) or nested
    if not trials:
        raise UserError(f"no trials in {folder}: expected trial.json or trials/*/trial.json there")
    written = []
    for trial in trials:
        if read_trial(trial)["status"] not in ENDED:
            notify(f"{trial.name}: not measured, it has not ended")
        elif not (trial / FILE).exists():
            notify(f"{trial.name}: measuring")
            _refuse_links(folder, trial)
            files.write_json(trial / FILE, measure(trial, samples, data_dir))
            written.append(trial / FILE)
    return written


def _refuse_links(folder: Path, trial: Path) -> None:
    """Raise an error if the way from a folder to a trial may lead out of it."""
    while trial != folder:
        files.refuse_link(trial)
        trial = trial.parent


def measure(folder: Path, samples: int = SAMPLES, data_dir: Path | None = None) -> Table:
    """Return the terms of the theorem for each client of one more round, and the curvature."""
    info = read_trial(folder)
    spec = trial_spec(**info["spec"])
    own = known_files(info["execution"].get("files", {}))
    worker = Worker(with_surrogate(spec, Source(data_dir, files=own)))
    params = read_model(folder, worker)
    probe = Probe(worker, params, samples)
    return {
        "samples": samples,
        "clients": [row._asdict() for row in probe.clients()],
        "curvature": probe.curvature()._asdict(),
    }


def with_surrogate(spec: TrialSpec, source: Source) -> Setup:
    """Make a trial ready with its surrogate set, whether or not its method trains on one."""
    needs_one = spec.model_copy(update={"method": FedGPS()})
    return prepare(needs_one, source)._replace(spec=spec)


def read_model(folder: Path, worker: Worker) -> Params:
    """Return the final global model of a trial."""
    path = folder / "model.safetensors"
    if not path.is_file():
        raise UserError(f"{folder} has no model.safetensors; finish it: fedgps-ray resume {folder}")
    tensors = load_file(path)
    empty = worker.network.buffers.new_empty(0)
    weights, buffers = (
        torch.cat([empty, *(tensors[piece.name].reshape(-1) for piece in part)])
        for part in (worker.network.layout.weights, worker.network.layout.buffers)
    )
    return Params(weights, buffers)


class Probe:
    """Samples of the data, and their features under the global and the clients' models."""

    def __init__(self, worker: Worker, params: Params, samples: int) -> None:
        self.worker, self.params, self.samples = worker, params, samples
        locals_ = [worker.local(client.id, 0, None, "theory") for client in worker.clients]
        self.indices = [local.data.index for local in locals_]
        everyone = Batches(locals_[0].data.examples, torch.cat(self.indices))
        noise = locals_[0].noise_set().images
        self.everyone = self._sample(everyone, "everyone")
        self.noise = self._sample(Batches(noise, torch.arange(len(noise.labels))), "surrogate")
        self.global_features = self._features(params, self.everyone)
        self.global_noise = self._features(params, self.noise)
        self.global_surrogate = transport(self.global_noise, self.global_features)

    def _sample(self, data: Batches, purpose: str, client: int = 0) -> Batches:
        rng = seeds.stream(self.worker.spec.seed, f"theory {purpose}", 0, client)
        size = min(self.samples, len(data.index))
        chosen = torch.from_numpy(rng.choice(len(data.index), size, replace=False))
        return Batches(data.examples, data.index[chosen])

    @torch.no_grad()
    def _features(self, params: Params, data: Batches) -> Tensor:
        self.worker.network.load(params)
        self.worker.network.model.eval()
        return torch.cat([self.worker.network.features(batch.x) for batch in data.plain()])

    def clients(self) -> list[Terms]:
        """Train the clients of one more round and measure each."""
        spec, method = self.worker.spec, self.worker.spec.method
        rng = seeds.stream(spec.seed, "theory server")
        chosen = rng.choice(spec.clients, spec.per_round, replace=False)
        turn = Turn(spec.rounds, tuple(self.worker.clients[k] for k in chosen), rng)
        messages = method.send(method.init(self.params, self.worker.cohort()), turn)
        measured = []
        for client, message in zip(turn.clients, messages, strict=True):
            method.work(self.worker.local(client.id, turn.round, None), message, None)
            measured.append(self._terms(client.id, self.worker.network.params()))
        return measured

    def _terms(self, client: int, own: Params) -> Terms:
        """Return the terms of a client whose trained model is given."""
        examples = self.everyone.examples
        data = self._sample(Batches(examples, self.indices[client]), "client", client)
        features, noise = self._features(own, data), self._features(own, self.noise)
        local_surrogate = transport(features, noise)
        surrogate_global = transport(noise, self.global_noise)
        lipschitz = cross_entropy_lipschitz(self.worker.network.model.head.weight)
        local_risk = self._risk(features, data)
        global_risk = self._risk(self.global_features, self.everyone)
        gap = global_risk - local_risk
        bound = lipschitz * (local_surrogate + surrogate_global + self.global_surrogate)
        every = (features, noise, self.global_features, self.global_noise)
        return Terms(
            client=client,
            local_surrogate=local_surrogate,
            surrogate_global=surrogate_global,
            global_surrogate=self.global_surrogate,
            lipschitz=lipschitz,
            largest_feature=max(float(z.norm(dim=1).max()) for z in every),
            local_risk=local_risk,
            global_risk=global_risk,
            gap=gap,
            bound=bound,
            held=gap <= bound,
        )

    @torch.no_grad()
    def _risk(self, features: Tensor, data: Batches) -> float:
        """Return the mean cross-entropy of the current head on features of these images."""
        labels = data.examples.labels[data.index]
        return float(F.cross_entropy(self.worker.network.head(features), labels))

    def curvature(self) -> Curvature:
        """Return the extreme eigenvalues of the Hessian, and the norm that should be below 1."""
        network = self.worker.network
        network.load(self.params)
        network.model.eval()
        batches = list(self.everyone.plain())
        x, y = torch.cat([batch.x for batch in batches]), torch.cat([b.y for b in batches])
        loss, parameters = F.cross_entropy(network(x), y), list(network.model.parameters())
        product = hessian_product(loss, parameters)
        gradient = _flat(torch.autograd.grad(loss, parameters, retain_graph=True))
        rng = seeds.stream(self.worker.spec.seed, "theory power iteration")
        start = torch.from_numpy(rng.standard_normal(len(network.weights))).to(network.weights)
        largest, smallest = extreme_eigenvalues(product, start)
        weights = float(network.weights.norm())
        lambda_g = path_length(self.worker.spec, weights)
        size = deviation_norm(lambda_g, largest, smallest)
        return Curvature(
            largest=largest,
            smallest=smallest,
            lambda_g=lambda_g,
            norm=size,
            held=size < 1,
            along_gradient=curvature_along(product, gradient),
            gradient_norm=float(gradient.norm()),
            weights_norm=weights,
        )


def path_length(spec: TrialSpec, weights_norm: float) -> float:
    """Return lambda_g of the method, or FedGPS's default if it has none.

    That is rho, or rho_relative (where it is set) times the norm of the weights.
    """
    share = getattr(spec.method, "rho_relative", None)
    if share is not None:
        return float(share) * weights_norm
    return float(getattr(spec.method, "rho", FedGPS().rho))


def curvature_along(product: Product, direction: Tensor) -> float:
    """Return v'Hv / v'v, or 0 for a direction of no length."""
    size = float(direction @ direction)
    return float(direction @ product(direction)) / size if size else 0.0


def transport(first: Tensor, second: Tensor) -> float:
    """Return W1 of two clouds of points, each point of a cloud with the same weight."""
    x, y = first.double().numpy(), second.double().numpy()
    return float(ot.emd2([], [], ot.dist(x, y, metric="euclidean")))


def cross_entropy_lipschitz(head: Tensor) -> float:
    """Return sqrt(2) |W|: the gradient in z is W'(p - e_y), and |p - e_y| <= sqrt(2)."""
    return math.sqrt(2) * float(torch.linalg.matrix_norm(head.detach(), ord=2))


def hessian_product(loss: Tensor, parameters: Sequence[Tensor]) -> Product:
    """Return the function v -> H v of a loss in these parameters."""
    gradient = _flat(torch.autograd.grad(loss, parameters, create_graph=True))

    def product(vector: Tensor) -> Tensor:
        return _flat(
            torch.autograd.grad(
                gradient, parameters, vector, retain_graph=True, materialize_grads=True
            )
        )

    return product


def _flat(tensors: Iterable[Tensor]) -> Tensor:
    return torch.cat([tensor.reshape(-1) for tensor in tensors])


def extreme_eigenvalues(product: Product, start: Tensor) -> tuple[float, float]:
    """Return the largest and the smallest eigenvalue of a symmetric matrix given by its product."""
    farthest = dominant(product, start)
    other = farthest + dominant(lambda v: product(v) - farthest * v, start)
    return max(farthest, other), min(farthest, other)


def dominant(product: Product, start: Tensor, tolerance: float = 1e-5, most: int = 200) -> float:
    """Return the eigenvalue farthest from zero, by power iteration."""
    vector, value = start / start.norm(), math.inf
    for _ in range(most):
        image = product(vector)
        before, value = value, float(vector @ image)
        size = image.norm()
        if size == 0 or abs(value - before) <= tolerance * abs(value):
            break
        vector = image / size
    return value


def deviation_norm(length: float, largest: float, smallest: float) -> float:
    """Return |I - length H| of a symmetric H with these extreme eigenvalues."""
    return max(abs(1 - length * largest), abs(1 - length * smallest))
