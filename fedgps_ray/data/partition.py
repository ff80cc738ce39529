"""Labels in, one index array per client out: drawn in several ways, or as the data say."""

import hashlib
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.random import RandomState
from numpy.typing import NDArray
from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from fedgps_ray.errors import UserError

Indices = NDArray[np.int64]
Shares = NDArray[np.float64]

OFFICIAL_ATTEMPTS = 50_000  # 100 clients with alpha 0.05 need up to some 30,000
FEASIBLE_ATTEMPTS = 20
MAX_REDRAWS = 10
SEEDS = 2**32  # all that the legacy stream takes


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class Dirichlet:
    """Each class is shared out by a Dirichlet draw: the smaller alpha, the fewer clients have it.

    "official" draws until every client has min_size samples; "feasible" gives the same when that
    happens soon, else moves samples from the largest clients to those that have too few.
    """

    kind: Literal["dirichlet"] = "dirichlet"
    alpha: float = Field(default=0.1, gt=0, le=1e9, allow_inf_nan=False)  # le: no draw overflows
    mode: Literal["feasible", "official"] = "feasible"
    min_size: int = Field(default=10, ge=1)


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class Classes:
    """Each client has samples of a fixed number of classes, the first one by turns, the rest drawn.

    "official" draws as the authors' code does, in which the last class is never an extra class.
    """

    kind: Literal["classes"] = "classes"
    classes_per_client: int = Field(default=2, ge=1)
    extra_class_range: Literal["all", "official"] = "all"


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class Iid:
    """Every client has an equal share of all samples at random."""

    kind: Literal["iid"] = "iid"


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class Natural:
    """Each client has the samples that the data set says are its own, such as those of a writer.

    Clients are in the sorted order of their names. "all" needs as many clients as there are names;
    "first" and "largest" take the first names, or those with the most samples.
    """

    kind: Literal["natural"] = "natural"
    choose: Literal["all", "first", "largest"] = "all"
    min_size: int = Field(default=1, ge=1)  # names with fewer samples are left out


PartitionSpec = Dirichlet | Classes | Iid | Natural


class Partition(NamedTuple):
    """Each client's positions, the draws this took, and the samples moved to fill small clients."""

    parts: tuple[Indices, ...]
    attempts: int
    moved: int


def split(
    labels: Indices, clients: int, spec: PartitionSpec, seed: int, owners: Indices | None = None
) -> Partition:
    """Return who owns which position; drawn from the legacy stream, whose bits are frozen.

    Owners is the number of each sample's client, for data sets that say whose samples they are.
    """
    if not 0 <= seed < SEEDS:
        raise UserError(f"the partition's seed must be from 0 to {SEEDS - 1}, got {seed}")
    if isinstance(spec, Natural):
        return _natural(owners, clients, spec)
    return divide(labels, clients, spec, RandomState(seed))


def divide(
    labels: Indices, clients: int, spec: Dirichlet | Classes | Iid, rng: RandomState
) -> Partition:
    """Return the same as `split`, from a stream that the caller may go on to use."""
    if not 1 <= clients <= len(labels):
        raise UserError(
            f"cannot split {len(labels)} samples among {clients} clients:"
            f" use 1 to {len(labels)} clients, so that each has at least one sample"
        )
    if isinstance(spec, Dirichlet):
        return _by_dirichlet(labels, clients, spec, rng)
    if isinstance(spec, Classes):
        return _by_classes(labels, clients, spec, rng)
    pieces = np.array_split(rng.permutation(len(labels)).astype(np.int64), clients)
    return Partition(tuple(pieces), attempts=1, moved=0)


def _natural(owners: Indices | None, clients: int, spec: Natural) -> Partition:
    if owners is None:
        raise UserError(
            "partition natural needs a data set that says whose samples they are: an array"
            " client_train, a column client, or LEAF's users"
        )
    sizes = np.bincount(owners)
    chosen = _chosen(np.flatnonzero(sizes >= spec.min_size), sizes, clients, spec)
    order = np.argsort(owners, kind="stable").astype(np.int64)
    ends = np.cumsum(sizes)
    parts = tuple(order[ends[owner] - sizes[owner] : ends[owner]] for owner in chosen)
    return Partition(parts, attempts=1, moved=0)


def _chosen(able: Indices, sizes: Indices, clients: int, spec: Natural) -> Indices:
    """Return the numbers of the clients to use, in ascending order."""
    of_size = f" with at least {spec.min_size} samples" if spec.min_size > 1 else ""
    if clients > len(able) or (clients < len(able) and spec.choose == "all"):
        raise UserError(
            f"the data set names {len(able)} clients{of_size}, got clients = {clients}: use"
            f' {len(able)}, or fewer with choose = "first" or "largest" of partition natural'
        )
    if spec.choose == "largest":
        return np.sort(able[np.argsort(-sizes[able], kind="stable")[:clients]])
    return able[:clients]


def class_counts(parts: Sequence[Indices], labels: Indices, num_classes: int) -> Indices:
    """Return how many samples of each class (column) each client (row) has."""
    rows = [np.bincount(labels[part], minlength=num_classes) for part in parts]
    return np.stack(rows).astype(np.int64)


def index_sha256(parts: Sequence[Indices]) -> str:
    """Return a hash of who owns what in which order, to tell whether two partitions are equal."""
    return hashlib.sha256(b"".join(part.astype("<i8").tobytes() for part in parts)).hexdigest()


def _positions_by_class(labels: Indices) -> list[Indices]:
    return [np.flatnonzero(labels == label).astype(np.int64) for label in range(labels.max() + 1)]


class _Attempt(NamedTuple):
    shuffled: list[Indices]  # positions of each class
    ends: list[Indices]  # for each class, where each client's piece of it ends
    sizes: Indices  # samples of each client


def _by_dirichlet(labels: Indices, clients: int, spec: Dirichlet, rng: RandomState) -> Partition:
    _check_min_size(len(labels), clients, spec.min_size)
    positions = _positions_by_class(labels)
    alphas = np.full(clients, spec.alpha)
    best = None
    for number in range(1, _max_attempts(spec) + 1):
        attempt = _attempt(positions, alphas, rng)
        if attempt.sizes.min() >= spec.min_size:
            return Partition(tuple(_shuffled_parts(attempt, rng)), number, moved=0)
        if best is None or _merit(attempt, spec.min_size) > _merit(best, spec.min_size):
            best = attempt
    assert best is not None
    if spec.mode == "official":
        raise _hopeless(clients, spec, int(best.sizes.min()))
    parts, moved = _filled_up(_shuffled_parts(best, rng), spec.min_size)
    return Partition(parts, FEASIBLE_ATTEMPTS, moved)


def _max_attempts(spec: Dirichlet) -> int:
    return OFFICIAL_ATTEMPTS if spec.mode == "official" else FEASIBLE_ATTEMPTS


def _check_min_size(num_samples: int, clients: int, min_size: int) -> None:
    if clients * min_size > num_samples:
        raise UserError(
            f"{clients} clients with at least {min_size} samples each need {clients * min_size}"
            f" samples, there are {num_samples}: use at most {num_samples // min_size} clients"
            " or a smaller min_size"
        )


def _hopeless(clients: int, spec: Dirichlet, best: int) -> UserError:
    return UserError(
        f"no Dirichlet draw in {OFFICIAL_ATTEMPTS} gave each of {clients} clients"
        f" {spec.min_size} samples (alpha {spec.alpha:g}; the best gave the smallest client"
        f' {best}): use mode "feasible", a smaller min_size, fewer clients or a larger alpha'
    )


def _attempt(positions: list[Indices], alphas: Shares, rng: RandomState) -> _Attempt:
    fair = sum(map(len, positions)) / len(alphas)
    sizes = np.zeros(len(alphas), dtype=np.int64)
    shuffled, ends = [], []
    for places in positions:
        shuffled.append(places.copy())
        rng.shuffle(shuffled[-1])  # the same draws as permutation, in 3/4 of its time
        ends.append(_piece_ends(len(places), _shares(alphas, sizes < fair, rng)))
        sizes += ends[-1]
        sizes[1:] -= ends[-1][:-1]
    return _Attempt(shuffled, ends, sizes)


def _shares(alphas: Shares, has_room: NDArray[np.bool_], rng: RandomState) -> Shares:
    for _ in range(MAX_REDRAWS):
        shares = np.where(has_room, rng.dirichlet(alphas), 0.0)
        total = float(shares.sum())
        if 0 < total < np.inf:
            return shares / total
    # All shares underflow to 0 again and again: take the draw's limit for alpha -> 0, one winner.
    alone = np.zeros(len(alphas))
    alone[rng.choice(np.flatnonzero(has_room))] = 1
    return alone


def _piece_ends(num_places: int, shares: Shares) -> Indices:
    ends = (np.cumsum(shares) * num_places).astype(np.int64)
    ends[-1] = num_places  # the last client takes what rounding leaves over, even if it is full
    return ends


def _merit(attempt: _Attempt, min_size: int) -> tuple[int, int]:
    missing = np.maximum(min_size - attempt.sizes, 0).sum()
    return int(attempt.sizes.min()), -int(missing)


def _shuffled_parts(attempt: _Attempt, rng: RandomState) -> list[Indices]:
    pieces = [
        np.split(places, ends[:-1])
        for places, ends in zip(attempt.shuffled, attempt.ends, strict=True)
    ]
    return [rng.permutation(np.concatenate(own)) for own in zip(*pieces, strict=True)]


def _filled_up(parts: list[Indices], min_size: int) -> tuple[tuple[Indices, ...], int]:
    # Parts are in random order, so the last sample of the largest client is a random one of it.
    lists = [part.tolist() for part in parts]
    sizes = np.array([len(part) for part in parts])
    too_small = [client for client, size in enumerate(sizes) for _ in range(size, min_size)]
    for client in too_small:
        largest = sizes.argmax()
        lists[client].append(lists[largest].pop())
        sizes[client] += 1
        sizes[largest] -= 1
    return tuple(np.array(part, dtype=np.int64) for part in lists), len(too_small)


def _by_classes(labels: Indices, clients: int, spec: Classes, rng: RandomState) -> Partition:
    positions = _positions_by_class(labels)
    _check_classes_per_client(len(positions), spec)
    wanted = [_wanted(client, len(positions), spec, rng) for client in range(clients)]
    pieces: list[list[Indices]] = [[] for _ in range(clients)]
    for label, places in enumerate(positions):
        owners = [client for client, classes in enumerate(wanted) if label in classes]
        _check_owners(label, len(places), len(owners), clients)
        shares = np.array_split(rng.permutation(places), max(len(owners), 1))
        for client, share in zip(owners, shares, strict=False):
            pieces[client].append(share)
    parts = tuple(np.concatenate(own) for own in pieces)
    _check_none_empty(parts)
    return Partition(parts, attempts=1, moved=0)


def _wanted(client: int, num_classes: int, spec: Classes, rng: RandomState) -> set[int]:
    num_drawable = num_classes if spec.extra_class_range == "all" else num_classes - 1
    classes = {client % num_classes}
    while len(classes) < spec.classes_per_client:
        classes.add(int(rng.randint(num_drawable, dtype=np.int64)))
    return classes


def _check_classes_per_client(num_classes: int, spec: Classes) -> None:
    if spec.classes_per_client > num_classes:
        raise UserError(
            f"classes_per_client is {spec.classes_per_client}, but there are {num_classes} classes"
        )
    if spec.extra_class_range == "official" and 1 < num_classes == spec.classes_per_client:
        raise UserError(
            f"classes_per_client is {num_classes}, but the official draw never gives the last class"
            f' as an extra one: use at most {num_classes - 1} or extra_class_range "all"'
        )


def _check_owners(label: int, num_places: int, num_owners: int, clients: int) -> None:
    if num_places and not num_owners:
        raise UserError(
            f"none of {clients} clients owns class {label}, so its {num_places} samples would be"
            " lost: use as many clients as classes, more classes_per_client or another seed"
        )


def _check_none_empty(parts: Sequence[Indices]) -> None:
    empty = [client for client, part in enumerate(parts) if len(part) == 0]
    if empty:
        raise UserError(
            f"{len(empty)} of {len(parts)} clients (the first is client {empty[0]}) get no sample,"
            " as their classes have more owners than samples: use fewer clients"
        )
