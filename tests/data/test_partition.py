import hashlib
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from fedgps_ray.data.partition import (
    FEASIBLE_ATTEMPTS,
    Classes,
    Dirichlet,
    Iid,
    Natural,
    class_counts,
    divide,
    index_sha256,
    split,
)
from fedgps_ray.errors import UserError

SVHN = [4948, 13861, 10585, 8497, 7458, 6882, 5727, 5595, 5045, 4659]
CLASS_SIZES = {"cifar10": [5000] * 10, "cifar100": [500] * 100, "svhn": SVHN}
GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "partitions.json").read_text())
ONE_WINNER = 1e-300  # so small an alpha that every draw underflows: each class goes to one client


def labels_of(*class_sizes):
    return np.repeat(np.arange(len(class_sizes)), class_sizes)


def sizes(partition):
    return [len(part) for part in partition.parts]


def covers(partition, labels):
    return np.array_equal(np.sort(np.concatenate(partition.parts)), np.arange(len(labels)))


def golden_name(row):
    return f"{row['dataset']}-{row['clients']}-{row['method']}-{row['alpha']}-{row['seed']}"


def recorded_how(row):
    if row["method"] == "hetero":
        return Dirichlet(alpha=row["alpha"], mode="official")
    if row["method"] == "homo":
        return Iid()
    per_client = int(row["method"].removeprefix("noniid-#label"))
    return Classes(classes_per_client=per_client, extra_class_range="official")


@pytest.mark.parametrize("row", GOLDEN, ids=golden_name)
def test_recorded_partitions_come_out_bit_for_bit(row):
    labels = labels_of(*CLASS_SIZES[row["dataset"]])
    rng = np.random.RandomState(row["seed"])
    partition = divide(labels, row["clients"], recorded_how(row), rng)
    assert index_sha256(partition.parts) == row["index_sha256"]
    assert (partition.attempts, partition.moved) == (row["attempts"], 0)
    assert sizes(partition) == row["sizes"]
    assert rng.random_sample() == row["next_random_sample"]


@pytest.mark.parametrize("row", [r for r in GOLDEN if "class_counts" in r], ids=golden_name)
def test_recorded_class_counts(row):
    class_sizes = CLASS_SIZES[row["dataset"]]
    labels = labels_of(*class_sizes)
    parts = split(labels, row["clients"], recorded_how(row), row["seed"]).parts
    assert class_counts(parts, labels, len(class_sizes)).tolist() == row["class_counts"]


@pytest.mark.parametrize("row", [r for r in GOLDEN if r["method"] == "hetero"], ids=golden_name)
def test_feasible_equals_official_where_that_accepts_soon(row):
    assert row["attempts"] <= FEASIBLE_ATTEMPTS
    labels = labels_of(*CLASS_SIZES[row["dataset"]])
    partition = split(labels, row["clients"], Dirichlet(alpha=row["alpha"]), row["seed"])
    assert index_sha256(partition.parts) == row["index_sha256"]


@pytest.mark.slow
def test_official_may_need_thousands_of_attempts():
    how = Dirichlet(alpha=0.05, mode="official")
    assert split(labels_of(*[5000] * 10), 100, how, seed=0).attempts == 6446


@pytest.mark.timeout(5)
@pytest.mark.parametrize("dataset", CLASS_SIZES)
@pytest.mark.parametrize("alpha", [0.1, 0.05])
@pytest.mark.parametrize("clients", [10, 100, 500])
def test_feasible_serves_every_setting_of_the_paper_quickly(clients, alpha, dataset):
    labels = labels_of(*CLASS_SIZES[dataset])
    partition = split(labels, clients, Dirichlet(alpha=alpha), seed=0)
    assert covers(partition, labels)
    assert len(partition.parts) == clients
    assert min(sizes(partition)) >= 10


class Scripted(np.random.RandomState):
    """A stream whose Dirichlet draws are given, to compute partitions by hand."""

    def __init__(self, *draws):
        super().__init__(0)
        self.draws = iter(draws)

    def dirichlet(self, alpha, size=None):
        return np.array(next(self.draws))


def test_classes_are_cut_at_the_rounded_down_shares():
    # Class 0: 10 * (.19, .74) is cut at 1 and 7, so the clients have 1, 6, 3. N / K = 5, the second
    # is full. Class 1: (.5, 0, .1) / .6 = (.83, 0, .17), and 5 * (.83, .83) is cut at 4 and 4.
    labels = labels_of(10, 5)
    rng = Scripted([0.19, 0.55, 0.26], [0.5, 0.4, 0.1])
    parts = divide(labels, 3, Dirichlet(mode="official", min_size=1), rng).parts
    assert class_counts(parts, labels, 2).tolist() == [[1, 4], [6, 0], [3, 1]]


def test_last_client_takes_the_rest_even_if_it_is_full():
    # N / K = 5: class 0 fills the last client. Class 1: 7 * (.2, 1, 1) would be cut at 1 and 7, but
    # .01 / .05 + .04 / .05 is less than 1 by rounding, so it is cut at 1 and 6.
    labels = labels_of(8, 7)
    rng = Scripted([0, 0, 1], [0.01, 0.04, 0.95])
    parts = divide(labels, 3, Dirichlet(min_size=1), rng).parts
    assert class_counts(parts, labels, 2).tolist() == [[0, 1], [0, 5], [8, 1]]


def test_rest_that_rounding_leaves_counts_for_the_last_client():
    # .33 + .56 + .11 is a little more than 1, so that the sums of the shares are a little less than
    # .33, .89 and 1: they are cut at 32 and 88, and the last client has 12, though 99 - 88 is 11.
    rng = Scripted([0.33, 0.56, 0.11])
    how = Dirichlet(mode="official", min_size=12)
    assert sizes(divide(labels_of(100), 3, how, rng)) == [32, 56, 12]


def test_a_client_with_exactly_the_mean_size_is_full():  # N / K = 4, the first one has 4
    labels = labels_of(4, 4)
    how = Dirichlet(mode="official", min_size=4)
    parts = divide(labels, 2, how, Scripted([1, 0], [0.9, 0.1])).parts
    assert class_counts(parts, labels, 2).tolist() == [[4, 0], [0, 4]]


@pytest.mark.parametrize("useless", [[1.0, 0.0], [np.nan, np.nan], [np.inf, np.inf]])
def test_shares_that_underflow_are_drawn_again(useless):  # the first client is full with its 4
    labels = labels_of(4, 4)
    rng = Scripted([1, 0], useless, [0.5, 0.5])
    partition = divide(labels, 2, Dirichlet(min_size=4), rng)
    assert class_counts(partition.parts, labels, 2).tolist() == [[4, 0], [0, 4]]
    assert partition.attempts == 1


def test_without_usable_draws_each_class_goes_to_one_client_with_room():  # full with one class
    labels = labels_of(4, 4, 4)
    parts = split(labels, 3, Dirichlet(alpha=ONE_WINNER, min_size=4), seed=0).parts
    assert sorted(class_counts(parts, labels, 3).tolist()) == [[0, 0, 4], [0, 4, 0], [4, 0, 0]]


def test_small_clients_are_filled_from_the_currently_largest():
    # Two clients win a class of 6 each: 6 6 0 0 -> 5 6 1 0 -> 5 5 1 1
    labels = labels_of(6, 6)
    partition = split(labels, 4, Dirichlet(alpha=ONE_WINNER, min_size=1), seed=0)
    assert sorted(sizes(partition)) == [1, 1, 5, 5]
    assert (partition.attempts, partition.moved) == (FEASIBLE_ATTEMPTS, 2)
    assert covers(partition, labels)


def test_filling_up_can_use_the_last_sample():  # 6 6 0 0 -> 3 3 3 3
    partition = split(labels_of(6, 6), 4, Dirichlet(alpha=ONE_WINNER, min_size=3), seed=0)
    assert sizes(partition) == [3, 3, 3, 3]
    assert partition.moved == 6


def test_feasible_mends_the_attempt_with_the_best_smallest_part():  # 1 9 but once 4 6 -> 5 5
    draws = [[0.1, 0.9]] * FEASIBLE_ATTEMPTS
    draws[7] = [0.4, 0.6]
    partition = divide(labels_of(10), 2, Dirichlet(min_size=5), Scripted(*draws))
    assert sizes(partition) == [5, 5]
    assert (partition.attempts, partition.moved) == (FEASIBLE_ATTEMPTS, 1)


def test_of_equal_smallest_parts_the_one_that_lacks_less_is_mended():
    # 0 1 19 lacks 5 + 4, but once 0 5 15 lacks 5
    draws = [[0, 0.05, 0.95]] * FEASIBLE_ATTEMPTS
    draws[3] = [0, 0.25, 0.75]
    partition = divide(labels_of(20), 3, Dirichlet(min_size=5), Scripted(*draws))
    assert partition.moved == 5
    assert sizes(partition) == [5, 5, 10]


def test_one_client_takes_all():
    labels = labels_of(7, 5)
    for how in (Dirichlet(), Classes(classes_per_client=2), Iid()):
        assert sorted(split(labels, 1, how, seed=3).parts[0]) == list(range(12))


def test_order_of_the_data_does_not_change_the_class_counts():
    ordered = labels_of(50, 40, 30)
    mixed = np.random.RandomState(9).permutation(ordered)
    tables = [class_counts(split(y, 5, Dirichlet(), 1).parts, y, 3) for y in (ordered, mixed)]
    assert np.array_equal(*tables)


def test_first_classes_go_by_turns_and_larger_pieces_first():  # 5 = 3 + 2 ; 4 = 2 + 2
    labels = labels_of(5, 4)
    parts = split(labels, 4, Classes(classes_per_client=1), seed=0).parts
    assert class_counts(parts, labels, 2).tolist() == [[3, 0], [0, 2], [2, 0], [0, 2]]


def test_every_client_can_own_every_class():
    labels = labels_of(6, 4, 2)
    parts = split(labels, 2, Classes(classes_per_client=3), seed=0).parts
    assert class_counts(parts, labels, 3).tolist() == [[3, 2, 1], [3, 2, 1]]


def test_official_draw_never_gives_the_last_class_as_an_extra_one():
    labels = labels_of(*[100] * 10)
    owners = {}
    for extra in ("official", "all"):
        how = Classes(classes_per_client=3, extra_class_range=extra)
        counts = class_counts(split(labels, 40, how, seed=0).parts, labels, 10)
        assert ((counts > 0).sum(axis=1) == 3).all()
        owners[extra] = np.flatnonzero(counts[:, 9]).tolist()
    assert owners["official"] == [9, 19, 29, 39]
    assert set(owners["all"]) > {9, 19, 29, 39}


def test_fewer_clients_than_classes_are_fine_if_every_class_has_an_owner():
    labels = labels_of(4, 4, 4)
    parts = split(labels, 2, Classes(classes_per_client=3), seed=0).parts
    assert class_counts(parts, labels, 3).tolist() == [[2, 2, 2], [2, 2, 2]]


def test_a_class_without_samples_needs_no_owner():  # the client owns 0 by turn and 2 by draw
    class Two(np.random.RandomState):
        def randint(self, *_, **__):
            return 2

    partition = divide(np.array([0, 0, 2]), 1, Classes(classes_per_client=2), Two(0))
    assert sorted(partition.parts[0]) == [0, 1, 2]


def test_iid_pieces_differ_by_at_most_one():
    labels = labels_of(4, 3)
    partition = split(labels, 3, Iid(), seed=0)
    assert sizes(partition) == [3, 2, 2]
    assert covers(partition, labels)


@pytest.mark.parametrize("how", [Dirichlet(), Classes(), Iid()], ids=lambda how: how.kind)
def test_seed_decides_the_partition(how):
    labels = labels_of(60, 60)
    hashes = [index_sha256(split(labels, 4, how, seed).parts) for seed in (0, 0, 1)]
    assert hashes[0] == hashes[1] != hashes[2]


def test_global_stream_is_neither_read_nor_moved():
    np.random.seed(5)
    before = np.random.get_state()[1].tolist()
    split(labels_of(60, 60), 4, Dirichlet(), seed=0)
    assert np.random.get_state()[1].tolist() == before


def test_class_counts_has_a_column_for_classes_nobody_has():
    counts = class_counts([np.array([0, 2]), np.array([1])], np.array([0, 1, 1]), num_classes=3)
    assert counts.tolist() == [[1, 1, 0], [0, 1, 0]]


def test_index_hash_is_of_little_endian_int64():
    expected = hashlib.sha256(bytes([1, *[0] * 7, 0, 1, *[0] * 6])).hexdigest()
    assert index_sha256([np.array([1], dtype=np.int32), np.array([256])]) == expected


def test_import_needs_neither_torch_nor_pandas():
    code = "import sys, fedgps_ray.data.partition; print({'torch', 'pandas'} & set(sys.modules))"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout == "set()\n"


class_sizes_drawn = st.lists(st.integers(0, 30), min_size=1, max_size=6).filter(lambda n: n[-1])


@settings(deadline=None, max_examples=200)
@given(
    class_sizes_drawn, st.integers(1, 60), st.floats(-8, 4), st.integers(1, 8), st.integers(0, 9)
)
def test_dirichlet_always_ends_with_every_sample_used_once(
    sizes_drawn, clients, power, least, seed
):
    labels = labels_of(*sizes_drawn)
    how = Dirichlet(alpha=10**power, min_size=least)
    if clients * least > len(labels):
        with pytest.raises(UserError, match="use"):
            split(labels, clients, how, seed)
        return
    partition = split(labels, clients, how, seed)
    assert covers(partition, labels)
    assert len(partition.parts) == clients
    assert min(sizes(partition)) >= least
    assert partition.attempts <= FEASIBLE_ATTEMPTS
    assert all(part.dtype == np.int64 for part in partition.parts)


@settings(deadline=None, max_examples=100)
@given(class_sizes_drawn, st.integers(1, 12), st.integers(1, 6), st.integers(0, 9))
def test_classes_are_shared_out_or_refused(sizes_drawn, clients, per_client, seed):
    labels = labels_of(*sizes_drawn)
    try:
        parts = split(labels, clients, Classes(classes_per_client=per_client), seed)
    except UserError:
        assert (
            per_client > len(sizes_drawn)
            or clients < len(sizes_drawn)
            or min(sizes_drawn) < clients
        )
        return
    counts = class_counts(parts.parts, labels, len(sizes_drawn))
    assert covers(parts, labels)
    assert counts.sum(axis=1).min() >= 1
    assert (counts > 0).sum(axis=1).max() <= per_client


@settings(deadline=None, max_examples=50)
@given(st.integers(1, 50), st.data())
def test_iid_uses_every_sample_once(num_samples, data):
    clients = data.draw(st.integers(1, num_samples))
    partition = split(np.zeros(num_samples, dtype=np.int64), clients, Iid(), seed=0)
    assert np.array_equal(np.sort(np.concatenate(partition.parts)), np.arange(num_samples))
    assert max(sizes(partition)) - min(sizes(partition)) <= 1


@pytest.mark.parametrize("clients", [-1, 0, 13])
def test_clients_must_be_from_one_to_the_number_of_samples(clients):
    message = f"cannot split 12 samples among {clients} clients: use 1 to 12 clients"
    with pytest.raises(UserError, match=message):
        split(labels_of(6, 6), clients, Iid(), seed=0)


@pytest.mark.parametrize("seed", [-1, 2**32])
def test_seed_must_fit_the_legacy_stream(seed):
    with pytest.raises(UserError, match=f"seed must be from 0 to 4294967295, got {seed}"):
        split(labels_of(6, 6), 2, Iid(), seed)


@pytest.mark.parametrize("mode", ["feasible", "official"])
def test_too_many_clients_for_the_smallest_size(mode):  # 25 // 10 = 2
    message = "3 clients with at least 10 samples each need 30 samples, there are 25: use at most 2"
    with pytest.raises(UserError, match=message):
        split(labels_of(12, 13), 3, Dirichlet(mode=mode), seed=0)


def test_official_gives_up_in_the_end_and_says_what_to_do():  # 4 * .25 = 1, never 2
    class Hopeless(np.random.RandomState):
        def dirichlet(self, alpha, size=None):
            return np.array([0.25, 0.75])

    how = Dirichlet(alpha=0.05, mode="official", min_size=2)
    with pytest.raises(UserError) as error:
        divide(labels_of(4), 2, how, Hopeless(0))
    assert str(error.value) == (
        "no Dirichlet draw in 50000 gave each of 2 clients 2 samples (alpha 0.05; the best gave"
        ' the smallest client 1): use mode "feasible", a smaller min_size, fewer clients or a'
        " larger alpha"
    )


def test_more_classes_per_client_than_there_are():
    with pytest.raises(UserError, match="classes_per_client is 3, but there are 2 classes"):
        split(labels_of(6, 6), 2, Classes(classes_per_client=3), seed=0)


def test_official_draw_cannot_give_all_classes():
    how = Classes(classes_per_client=2, extra_class_range="official")
    with pytest.raises(UserError, match='use at most 1 or extra_class_range "all"'):
        split(labels_of(6, 6), 2, how, seed=0)


def test_official_draw_of_a_single_class_is_fine():
    how = Classes(classes_per_client=1, extra_class_range="official")
    assert sizes(split(labels_of(6), 2, how, seed=0)) == [3, 3]


def test_class_without_owner():  # the clients 0 and 1 own the classes 0 and 1 only
    with pytest.raises(UserError, match="none of 2 clients owns class 2, so its 7 samples would"):
        split(labels_of(5, 6, 7), 2, Classes(classes_per_client=1), seed=0)


def test_client_without_sample():  # clients 0, 2, 4 share the two samples of class 0
    with pytest.raises(UserError, match=r"1 of 6 clients \(the first is client 4\) get no sample"):
        split(labels_of(2, 10), 6, Classes(classes_per_client=1), seed=0)


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        (Dirichlet, {"alpha": 0}, "alpha\n.*greater than 0"),
        (Dirichlet, {"alpha": float("nan")}, "alpha\n.*finite number"),
        (Dirichlet, {"alpha": float("inf")}, "alpha\n.*finite number"),
        (Dirichlet, {"alpha": 1e10}, "alpha\n.*less than or equal to 1000000000"),
        (Dirichlet, {"mode": "fast"}, "mode\n.*'feasible' or 'official'"),
        (Dirichlet, {"min_size": 0}, "min_size\n.*greater than or equal to 1"),
        (Dirichlet, {"aplha": 0.1}, "aplha\n.*[Uu]nexpected"),
        (Classes, {"classes_per_client": 0}, "classes_per_client\n.*greater than or equal to 1"),
        (Classes, {"extra_class_range": "some"}, "extra_class_range\n.*'all' or 'official'"),
        (Iid, {"kind": "dirichlet"}, "kind\n.*'iid'"),
    ],
)
def test_wrong_settings_are_named(kind, settings, message):
    with pytest.raises(ValidationError, match=message):
        kind(**settings)


# --- whose samples they are, as the data set says

OWNERS = np.array([2, 0, 2, 1, 0, 2, 3])  # sizes 2, 1, 3, 1


def natural(clients, **options):
    shared = split(np.zeros(7, np.int64), clients, Natural(**options), 0, OWNERS)
    return [part.tolist() for part in shared.parts]


def test_natural_clients_hold_what_the_data_set_says():
    assert natural(4) == [[1, 4], [3], [0, 2, 5], [6]]


def test_natural_clients_can_be_chosen():
    assert natural(2, choose="first") == [[1, 4], [3]]
    assert natural(2, choose="largest") == [[1, 4], [0, 2, 5]]  # still in the order of names
    assert natural(3, choose="largest") == [[1, 4], [3], [0, 2, 5]]  # the first of equal ones
    assert natural(2, min_size=2) == [[1, 4], [0, 2, 5]]
    assert natural(1, min_size=2, choose="largest") == [[0, 2, 5]]


def test_natural_needs_the_right_number_of_clients():
    words = "the data set names 4 clients, got clients = 3: use 4, or fewer with choose = "
    with pytest.raises(UserError, match=words):
        natural(3)
    with pytest.raises(UserError, match="the data set names 4 clients, got clients = 5: use 4"):
        natural(5, choose="largest")
    with pytest.raises(UserError, match="names 2 clients with at least 2 samples, got clients = 4"):
        natural(4, min_size=2)


def test_natural_needs_a_data_set_that_names_clients():
    with pytest.raises(UserError, match="natural needs a data set that says whose samples they"):
        split(np.zeros(7, np.int64), 2, Natural(), 0)


def test_natural_is_the_same_for_every_seed():
    one, other = (split(OWNERS, 4, Natural(), seed, OWNERS) for seed in (0, 1))
    assert index_sha256(one.parts) == index_sha256(other.parts)
