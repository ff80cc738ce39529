"""FedGPS (NeurIPS 2025): features aligned to shared noise, gradients taken ahead on the path.

Defaults follow the authors' public code; every point where the paper's text differs is an option,
and the presets `official` and `paper` set them all at once.
"""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

import torch
import torch.nn.functional as F
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor
from typing_extensions import TypeVar

from fedgps_ray.data.batches import Batch
from fedgps_ray.methods.averages import averages, by_shares
from fedgps_ray.methods.base import STRICT, About, Ask, Cohort, Presets, Reply, Turn, Work
from fedgps_ray.methods.fedavg import Averaging
from fedgps_ray.tensors import Params, Update, moved, norm, step, sum_of_norms
from fedgps_ray.training.gradients import (
    Loss,
    ahead_sizes,
    backprop,
    cross_entropy,
    real_statistics,
    shifted,
)
from fedgps_ray.training.local import Gradient, Local, NotNegative, Positive, Sgd, train
from fedgps_ray.training.losses import supervised_contrast

DIVERGENCE_BATCHES = 5


class Prototypes(NamedTuple):
    """One feature vector for each surrogate class, and for which classes there is one."""

    values: Tensor
    known: Tensor


class State(NamedTuple):
    """The server's state: the model, the last mean update, the prototypes, the initial model."""

    params: Params
    update: Tensor | None
    prototypes: Prototypes | None
    initial: Params | None  # only for the official scaling of the divergence


class Message(NamedTuple):
    """Sent to a client; total is the sum of the aggregation weights of this round."""

    params: Params
    update: Tensor | None
    prototypes: Prototypes | None
    total: float


class Upload(NamedTuple):
    """Sent to the server: the update, and the weighted class means of the surrogate features."""

    delta: Tensor
    buffers: Tensor
    class_means: Tensor | None
    class_weights: Tensor | None


class Memory(NamedTuple):
    """A client's own last update, when it was made, and its share in that round's mean."""

    round: int
    share: float
    delta: Tensor | None
    model: Params | None = None  # only while the divergence is measured


class Remembered(Protocol):
    """What the memories of FedGPS and FedGPS-CF have in common."""

    @property
    def round(self) -> int:
        """The round of the client's last participation."""
        ...

    @property
    def share(self) -> float:
        """The client's share in that round's mean."""
        ...

    @property
    def delta(self) -> Tensor | None:
        """The client's own update in that round."""
        ...

    @property
    def model(self) -> Params | None:
        """The client's own model after that round."""
        ...


RememberedT = TypeVar("RememberedT", bound=Remembered, default=Any)


class ClassSums:
    """Adds up features class by class."""

    def __init__(self, num_classes: int, like: Tensor) -> None:
        self.sums = like.new_zeros(num_classes, like.shape[1])
        self.counts = torch.zeros(num_classes, device=like.device, dtype=like.dtype)

    def add(self, z: Tensor, labels: Tensor) -> None:
        """Take in a batch (as a matrix product: the same sum on every device and every run)."""
        members = F.one_hot(labels, len(self.counts)).to(z.dtype)
        self.sums += members.T @ z
        self.counts += members.sum(dim=0)

    def means(self) -> Tensor:
        """Return the mean of each class; zero where there is none."""
        return self.sums / self.counts.clamp(min=1)[:, None]


@dataclass(frozen=True, config=STRICT)
class FedGPSWith(Averaging[State, Message, Upload, RememberedT]):
    """FedGPS with any client memory; subclasses say how the others' update follows from it."""

    about: ClassVar[About] = About(
        client="joint step on real and noise images, gradient taken ahead along the others' update",
        server="mean update; prototypes of the noise classes",
        state="client: own update, momentum (2M); server: last update (M), prototypes",
        up="M + Cd",
        down="2M + Cd",
        source="FedGPS, NeurIPS 2025",
    )
    optimizer: ClassVar[Sgd] = Sgd(max_norm=10.0)
    presets: ClassVar[Presets] = {
        "default": {},
        "official": {
            "method": {
                "norm_epsilon": -1e-7,
                "single_sample_weight": "feature_dim",
                "divergence_scale": "official",
            },
            "optimizer": {"lr": 0.00998},
            "spec": {"init_seed": "partition", "selection": "official"},
            "classes": {"extra_class_range": "official"},
        },
        "paper": {
            "method": {
                "direction": -1,  # Definition 4.2; the table of messages has plus
                "perturb_norm": "global",
                "norm_epsilon": 0.0,
                "first_time": "global_update",
                "align_labels": "matched",
                "w_align": 0.1,
                "w_surrogate_supcon": 0.0,
                "proto_source": "final_pass",
            },
            "optimizer": {"max_norm": None},
        },
    }

    weighting: Literal["samples", "uniform"] = "uniform"
    server_lr: Positive = 1.0
    # goal: the objective
    goal: bool = True
    w_surrogate_ce: NotNegative = 1.0
    w_align: NotNegative = 1.0
    align_labels: Literal["distinct", "matched"] = "distinct"
    align_detach_surrogate: bool = True
    w_surrogate_supcon: NotNegative = 0.1
    temperature: Positive = 0.07
    w_proto: NotNegative = 0.1
    proto_source: Literal["last_epoch_batches", "final_pass"] = "last_epoch_batches"
    single_sample_weight: Literal["count", "feature_dim"] = "count"
    bn_statistics: Literal["joint", "real"] = "joint"
    # path: where the gradient is taken
    rho: NotNegative = 0.5
    rho_relative: NotNegative | None = None  # |e| / |weights|, in place of rho and perturb_norm
    direction: Literal[1, -1] = 1
    perturb_norm: Literal["sum", "global"] = "sum"
    norm_epsilon: float = Field(default=1e-7, ge=-1e-6, le=1e-3)
    first_time: Literal["none", "global_update"] = "none"
    # rounds between two measurements, 0 = never
    divergence_every: int = Field(default=0, ge=0)
    divergence_scale: Literal["trained", "official"] = "trained"

    @property
    def needs_surrogate(self) -> bool:
        """Without the goal part there are no noise images."""
        return self.goal

    def num_outputs(self, num_classes: int) -> int:
        """Real and surrogate classes have outputs of their own."""
        return 2 * num_classes if self.goal else num_classes

    def init(self, params: Params, cohort: Cohort) -> State:
        """Start without an update and without prototypes."""
        official = self.divergence_every and self.divergence_scale == "official"
        return State(params, None, None, params if official else None)

    def send(self, state: State, turn: Turn) -> Sequence[Message]:
        """Send the model, the last mean update and the prototypes."""
        update = state.update if self.looks_ahead else None
        message = Message(state.params, update, state.prototypes, self._total(turn))
        return [message] * len(turn.clients)

    def work(
        self, local: Local, message: Message, memory: RememberedT | None
    ) -> Work[Upload, RememberedT]:
        """Train at weights shifted along the others' update; return the update and class means."""
        seen: list[ClassSums] = []
        shift = self.shift(local, message, memory)
        gradient = self.gradient_of(self.loss(message, seen))
        done = train(local, message.params, gradient if shift is None else shifted(gradient, shift))
        update = moved(message.params, done.params)
        upload = Upload(*update, *self.class_means(local, seen))
        sizes = ahead_sizes(shift, message.params.weights, update.delta)
        return Work(upload, self.remember(local, message, update), done.loss, sizes)

    @averages(by_shares)
    def merge(self, state: State, replies: Sequence[Reply[Upload]]) -> State:
        """Move the model by the mean update; pool the class means into prototypes."""
        update = self.average(replies)
        params = step(state.params, update, self.server_lr)
        return state._replace(
            params=params, update=update.delta, prototypes=pool(state.prototypes, replies)
        )

    # --- goal -----------------------------------------------------------------------------------

    def gradient_of(self, loss: Loss) -> Gradient:
        """Return the gradient of a loss; it also decides what BatchNorm's statistics follow."""
        separate = self.goal and self.bn_statistics == "real"
        return real_statistics(backprop(loss)) if separate else backprop(loss)

    def loss(self, message: Message, seen: list[ClassSums]) -> Loss:
        """Return the local objective; surrogate features of the last epoch are added up in seen."""
        if not self.goal:
            return cross_entropy

        def joint(local: Local, batch: Batch) -> Tensor:
            noise = local.noise()
            z = local.network.features(torch.cat([batch.x, noise.x]))
            surrogate = z[len(batch.y) :]
            if not seen:
                seen.append(ClassSums(local.num_classes, surrogate.detach()))
            if batch.epoch == local.epochs - 1:
                seen[0].add(surrogate.detach(), noise.y)
            return self.objective(local, (batch.y, noise.y), z, message.prototypes)

        return joint

    def objective(
        self,
        local: Local,
        labels: tuple[Tensor, Tensor],
        z: Tensor,
        prototypes: Prototypes | None,
    ) -> Tensor:
        """Return real and surrogate cross-entropy, contrast, and distance to the prototypes."""
        real_y, noise_y = labels
        real, surrogate = z[: len(real_y)], z[len(real_y) :]
        logits = local.network.head(z)
        shifted_y = noise_y + local.num_classes
        loss = F.cross_entropy(logits[: len(real_y)], real_y)
        if self.w_surrogate_ce:
            loss = loss + self.w_surrogate_ce * F.cross_entropy(logits[len(real_y) :], shifted_y)
        if self.w_align:
            other = surrogate.detach() if self.align_detach_surrogate else surrogate
            other_y = shifted_y if self.align_labels == "distinct" else noise_y
            loss = loss + self.w_align * self._contrast(
                torch.cat([real, other]), torch.cat([real_y, other_y])
            )
        if self.w_surrogate_supcon:
            loss = loss + self.w_surrogate_supcon * self._contrast(surrogate, noise_y)
        if prototypes is not None and self.w_proto:
            loss = loss + self.w_proto * distance_to(prototypes, surrogate, noise_y)
        return loss

    def _contrast(self, z: Tensor, labels: Tensor) -> Tensor:
        return supervised_contrast(z, labels, self.temperature)

    def class_means(
        self, local: Local, seen: list[ClassSums]
    ) -> tuple[Tensor | None, Tensor | None]:
        """Return the class means of the surrogate features, and how much each weighs."""
        if not self.goal:
            return None, None
        sums = final_pass(local) if self.proto_source == "final_pass" else seen[0]
        weights = sums.counts.clone()
        if self.single_sample_weight == "feature_dim":
            weights[weights == 1] = sums.sums.shape[1]
        return sums.means(), weights.to(torch.int32)

    # --- path -----------------------------------------------------------------------------------

    @property
    def looks_ahead(self) -> bool:
        """Whether gradients are taken at other weights."""
        return bool(self.rho if self.rho_relative is None else self.rho_relative)

    def shift(self, local: Local, message: Message, memory: RememberedT | None) -> Tensor | None:
        """Return e, the way from the weights to where the gradient is taken; None: nowhere else."""
        others = self.others(local, message, memory) if self.looks_ahead else None
        if others is None:
            return None
        layout, whole = local.network.layout.weights, self.rho_relative is not None
        summed = self.perturb_norm == "sum" and not whole
        size = sum_of_norms(others, layout) if summed else norm(others)
        if size == 0:
            return None
        length = self.length(message.params.weights)
        return others * (self.direction * length / (size + self.norm_epsilon))

    def length(self, weights: Tensor) -> float:
        """Return rho, or the length that is the given share of the weights' norm."""
        return self.rho if self.rho_relative is None else self.rho_relative * norm(weights)

    @abstractmethod
    def others(self, local: Local, message: Message, memory: RememberedT | None) -> Tensor | None:
        """Return the mean update of the other clients, or None if it is not known."""

    @abstractmethod
    def remember(self, local: Local, message: Message, update: Update) -> RememberedT:
        """Return what the client keeps for its next participation."""

    def memory_of(self, local: Local, message: Message, update: Update) -> Memory:
        """Return the client's update with its round and its share."""
        share = self.shares([local.client])[0] / message.total
        model = local.network.params() if self.divergence_every else None
        return Memory(local.round, share, update.delta if self.looks_ahead else None, model)

    def _total(self, turn: Turn) -> float:
        return sum(self.shares(turn.clients))

    # --- divergence -----------------------------------------------------------------------------

    def measure(self, state: State, turn: Turn, ask: Ask) -> dict[str, float]:
        """Return how far the clients' surrogate features lie from the prototypes they got."""
        due = self.divergence_every and turn.round and turn.round % self.divergence_every == 0
        if not due or state.prototypes is None:
            return {}
        answers = ask(feature_distance, (state.prototypes, state.initial))
        distances = [answer for answer in answers if answer is not None]
        if not distances:
            return {}
        official = self.divergence_scale == "official"
        by = len(turn.clients) if official else len(distances)
        return {"divergence": sum(distances) / by, "divergence_clients": float(len(distances))}


@dataclass(frozen=True, config=STRICT)
class FedGPS(FedGPSWith[Memory]):
    """Goal: features aligned to shared noise. Path: looking ahead along the others' update."""

    name: ClassVar[str] = "fedgps"
    title: ClassVar[str] = "FedGPS"

    def others(self, local: Local, message: Message, memory: Memory | None) -> Tensor | None:
        """Return the mean update of the other clients of the previous round, or None."""
        if message.update is None:
            return None
        if memory is None:
            return message.update if self.first_time == "global_update" else None
        if memory.round == local.round - 1:
            return without_own(message.update, memory)
        return message.update

    def remember(self, local: Local, message: Message, update: Update) -> Memory:
        """Keep the client's update for its next participation."""
        return self.memory_of(local, message, update)

    def fade(self, memory: Memory) -> Memory:
        """Drop the update: it counts in the very next round only."""
        return memory._replace(delta=None)


def without_own(update: Tensor, memory: Remembered, scale: float = 1.0) -> Tensor | None:
    """Return the mean of the others, (U - share * own) / (1 - share); None without others."""
    if memory.share >= 1 or memory.delta is None:
        return None
    return update.sub(memory.delta, alpha=scale * memory.share).div_(1 - memory.share)


def distance_to(prototypes: Prototypes, z: Tensor, labels: Tensor) -> Tensor:
    """Return the mean squared distance to the prototypes, over images whose class has one."""
    squared = (prototypes.values[labels] - z).square().mean(dim=1)
    known = prototypes.known[labels].to(z.dtype)
    return (squared * known).sum() / known.sum().clamp(min=1)


def pool(last: Prototypes | None, replies: Sequence[Reply[Upload]]) -> Prototypes | None:
    """Return the weighted mean of the class means; a class nobody saw keeps its last prototype."""
    uploads = [reply.upload for reply in replies]
    means = [upload.class_means for upload in uploads if upload.class_means is not None]
    if not means:
        return None
    weights = torch.stack([u.class_weights for u in uploads if u.class_weights is not None])
    sums = torch.zeros_like(means[0])
    for class_means, weight in zip(means, weights.to(sums.dtype), strict=True):
        sums += class_means * weight[:, None]
    total = weights.sum(dim=0)
    values, known = sums / total.clamp(min=1)[:, None], total > 0
    if last is None:
        return Prototypes(values, known)
    return Prototypes(torch.where(known[:, None], values, last.values), known | last.known)


@torch.no_grad()
def final_pass(local: Local) -> ClassSums:
    """Add up the features of the whole surrogate set under the final local model."""
    local.network.model.eval()
    sums: ClassSums | None = None
    for batch in local.noise_set().plain():
        z = local.network.features(batch.x)
        sums = sums or ClassSums(local.num_classes, z)
        sums.add(z, batch.y)
    assert sums is not None
    return sums


@torch.no_grad()
def feature_distance(
    local: Local, memory: Remembered | None, sent: tuple[Prototypes, Params | None]
) -> float | None:
    """Return how far surrogate images lie from the prototypes under a client's last model."""
    prototypes, initial = sent
    params = initial if memory is None else memory.model
    if params is None:
        return None
    local.network.load(params)
    local.network.model.eval()
    batches = [_distances(local, prototypes) for _ in range(DIVERGENCE_BATCHES)]
    sizes = [batch.shape[1] for batch in batches]
    read = torch.cat(batches, dim=1).cpu().split(sizes, dim=1)  # once: the host has to wait for it
    known = [distances[is_known.bool()] for distances, is_known in read]
    means = [float(distances.mean()) for distances in known if len(distances)]
    return sum(means) / len(means) if means else None


def _distances(local: Local, prototypes: Prototypes) -> Tensor:
    """Return the distances of a batch's images to their prototypes, and whether there is one."""
    noise = local.noise()
    z = local.network.features(noise.x)
    distances: Tensor = (z - prototypes.values[noise.y]).norm(dim=1)
    return torch.stack([distances, prototypes.known[noise.y].to(distances.dtype)])
