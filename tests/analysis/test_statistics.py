"""Ranks, tests, effect sizes and intervals: by hand, and against the paper's numbers."""

import math
from itertools import product

import numpy as np
import pandas as pd
import pytest

from fedgps_ray.analysis import published
from fedgps_ray.analysis.statistics import (
    bootstrap_interval,
    cliffs_delta,
    holm,
    pairwise,
    rank_biserial,
    ranking,
    scores,
    without_incomplete,
)
from fedgps_ray.errors import UserError


def frame(**methods):
    """Return runs: a method has one accuracy a scenario, or a list of one a seed; None failed."""
    rows = [
        {"label": method, "method": method, "scenario": scenario, "seed": seed, "accuracy": one}
        for method, values in methods.items()
        for scenario, value in enumerate(values, start=1)
        for seed, one in enumerate(value if isinstance(value, list) else [value])
    ]
    made = pd.DataFrame(rows).astype({"accuracy": float})
    status = made["accuracy"].isna().map({True: "diverged", False: "finished"})
    return made.assign(setting="a setting", status=status)


def table(**methods):
    return scores(frame(**methods))


# --- scores ---------------------------------------------------------------------------------------


def test_a_block_is_a_scenario_and_seeds_are_averaged():
    made = table(fedgps=[[3, 5], 7], fedavg=[[1, 2], 5])
    assert list(made.columns) == ["fedavg", "fedgps"]
    assert made.to_numpy().tolist() == [[1.5, 4], [5, 7]]


def test_scenarios_of_several_settings_are_blocks_of_their_own():
    one, two = frame(a=[1, 2], b=[3, 4]), frame(a=[5, 6], b=[7, 8]).assign(setting="another")
    made = scores(pd.concat([one, two]))
    assert made["a"].tolist() == [1, 2, 5, 6]
    assert made.index.nlevels == 2


def test_missing_runs_are_refused_and_named():
    whole = frame(fedavg=[1, 2], fedgps=[3, 4], vhl=[5, 6])
    holes = whole[~((whole["label"] == "vhl") & (whole["scenario"] == 2))]
    with pytest.raises(UserError, match="1 runs are missing: vhl in scenario 2, seed 0; run them"):
        scores(holes)


def test_a_missing_seed_is_a_missing_run():
    with pytest.raises(UserError, match="b in scenario 1, seed 1"):
        table(a=[[1, 2]], b=[[3]])


def test_of_many_missing_runs_ten_are_named():
    rows = [frame(a=range(12)), frame(b=[1])]
    with pytest.raises(UserError, match=r"11 runs are missing: .*; and 1 more; run them"):
        scores(pd.concat(rows))


def test_failed_runs_are_refused_or_ranked_last():
    runs = frame(a=[1, 2], b=[None, 3], c=[5, 6])
    with pytest.raises(UserError, match="1 runs have no result: b in scenario 1, seed 0; leave"):
        scores(runs)
    made = scores(runs, failed="last")
    assert made["b"].tolist() == [-math.inf, 3]
    assert ranking(made).average_ranks.to_dict() == {"c": 1, "b": 2.5, "a": 2.5}


def test_an_unfinished_run_is_never_ranked_last():
    runs = frame(a=[1, 2], b=[None, 3])
    runs.loc[runs["accuracy"].isna(), "status"] = "running"
    with pytest.raises(UserError, match="1 runs have no result"):
        scores(runs, failed="last")


def test_no_runs_at_all():
    with pytest.raises(UserError, match="there are no runs to compare"):
        scores(frame(a=[1]).iloc[:0])


def test_methods_that_are_not_complete_can_be_left_out():
    runs, left_out = without_incomplete(frame(fedavg=[1, 2], vhl=[None, 2], fedgps=[3, 4]))
    assert left_out == ["vhl"]
    assert list(scores(runs).columns) == ["fedavg", "fedgps"]


# --- ranks ----------------------------------------------------------------------------------------


def test_friedman_by_hand():
    made = ranking(table(a=[3, 3, 3], b=[2, 2, 1], c=[1, 1, 2]))
    # average ranks 1, 7/3, 8/3; chi2 = 12*3/(3*4) * ((1-2)^2 + (1/3)^2 + (2/3)^2) = 14/3
    assert made.average_ranks.to_dict() == pytest.approx({"a": 1, "b": 7 / 3, "c": 8 / 3})
    assert made.chi2 == pytest.approx(14 / 3)
    assert made.chi2_without_tie_correction == pytest.approx(14 / 3)
    assert made.df == 2
    assert made.p_value == pytest.approx(math.exp(-7 / 3))  # chi-squared with 2 df
    assert made.kendall_w == pytest.approx(14 / 3 / 6)
    assert made.iman_davenport_f == pytest.approx(2 * (14 / 3) / (6 - 14 / 3))  # = 7
    assert made.iman_davenport_df == (2, 4)
    # q of 3 methods at 0.05 is 2.343 in Demsar's table; sqrt(3*4/(6*3)) = 0.8165
    assert made.critical_distance == pytest.approx(2.343 * 0.8165, abs=1e-3)
    assert made.pairs["significant"].tolist() == [False, False, False]
    assert made.groups == [["a", "b", "c"]]


def test_ties_share_their_ranks():
    made = ranking(table(a=[2, 2], b=[2, 1], c=[1, 1]))
    assert made.average_ranks.to_dict() == {"a": 1.25, "b": 2.0, "c": 2.75}
    assert made.chi2 > made.chi2_without_tie_correction


def test_blocks_that_all_agree():
    made = ranking(table(a=[3] * 80, b=[2] * 80, c=[1] * 80))
    assert made.iman_davenport_f == math.inf
    assert made.iman_davenport_p == 0
    assert made.pairs["significant"].tolist() == [True, True, True]
    assert made.groups == []
    assert made.caveats == []


def test_methods_that_are_all_alike():
    made = ranking(table(a=[1, 2], b=[1, 2], c=[1, 2]))
    assert (made.chi2, made.p_value, made.iman_davenport_f) == (0, 1, 0)
    assert made.groups == [["a", "b", "c"]]


PAPER = [
    (dataset, case)
    for dataset, case in product(
        ("svhn", "cifar10"),
        (
            "main_table_all_methods",
            "main_table_baselines_only",
            "pooled_three_settings_all_methods",
        ),
    )
]


@pytest.mark.parametrize(("dataset", "case"), PAPER)
def test_the_papers_ranks_are_reproduced(dataset, case):
    wanted = published.nemenyi()[dataset][case]
    runs = published.runs(*(name.removeprefix("tab:") for name in wanted["tables"]))
    runs = runs.assign(label=runs["method"])  # the file has the names of methods as we write them
    runs = runs[runs["label"].isin(wanted["average_ranks"])]
    made = ranking(scores(runs, failed="last"))
    friedman = wanted["friedman"]
    assert (made.num_methods, made.num_blocks) == (wanted["n_methods"], wanted["n_blocks"])
    exact = {
        "chi2": friedman["chi2"],
        "chi2_without_tie_correction": friedman["chi2_without_tie_correction"],
        "p_value": friedman["p_value"],
        "kendall_w": friedman["kendall_w"],
        "iman_davenport_f": friedman["iman_davenport_f"],
        "iman_davenport_p": friedman["iman_davenport_p"],
        "q_alpha": wanted["q_alpha"],
        "critical_distance": wanted["critical_distance"],
    }
    for name, value in exact.items():
        assert getattr(made, name) == pytest.approx(value, rel=1e-9, abs=0), name
    assert [made.df, *made.iman_davenport_df] == [friedman["df"], *friedman["iman_davenport_df"]]
    ranks = made.average_ranks.round(4).to_dict()  # as many digits as the file has
    assert list(ranks.items()) == list(wanted["average_ranks"].items())
    assert made.groups == wanted["groups_not_separated"]
    found = made.pairs[made.pairs["significant"]].set_index(["better", "worse"])["p_value"]
    pairs = {(pair["better"], pair["worse"]): pair for pair in wanted["significant_pairs"]}
    assert set(found.index) == set(pairs)
    for pair, told in pairs.items():
        assert found[pair] == pytest.approx(told["p_value"], rel=1e-9)


def test_few_blocks_are_warned_of():
    made = ranking(scores(published.runs("CIFAR10_10_5_1")))
    assert made.caveats[0].startswith(
        "With 14 methods and 5 blocks the critical distance is 8.873 of a possible 13: even a"
        " method that is always first is separated only from those with an average rank above 9.87"
    )


def test_too_few_blocks_to_separate_anything():
    made = ranking(table(a=[3, 3], b=[2, 2], c=[1, 1]))
    assert "ranks cannot differ by more than 2: Nemenyi's test cannot separate" in made.caveats[0]
    assert any("does not reject" in caveat for caveat in made.caveats)


@pytest.mark.parametrize(("methods", "blocks"), [(2, 5), (3, 1), (1, 1)])
def test_friedman_is_not_defined_for_so_few(methods, blocks):
    made = table(**{f"m{index}": list(range(blocks)) for index in range(methods)})
    with pytest.raises(
        UserError, match=f"needs 3 methods and 2 blocks, got {methods} and {blocks}"
    ):
        ranking(made)


# --- pairs ----------------------------------------------------------------------------------------


def test_wilcoxon_by_hand():
    made = pairwise(table(a=[5, 6, 7, 8, 10], b=[4, 4, 4, 4, 5])).iloc[0]
    # differences 1, 2, 3, 4, 5, all gains: p = 2 / 2^5
    assert made["mean_difference"] == 3
    assert made["p_value"] == made["p_holm"] == 2 / 2**5
    assert made["rank_biserial"] == 1
    assert made["cliffs_delta"] == pytest.approx(24 / 25)  # 5 against 5 is the one tie
    assert 1 < made["low"] < 3 < made["high"] < 5


def test_holm_steps_down():
    values = {"a": [9] * 8, "b": [1, 2, 3, 4, 5, 6, 7, 8], "c": [8, 7, 6, 5, 4, 3, 10, 11]}
    made = pairwise(table(**values), reference="a")
    assert made["other"].tolist() == ["b", "c"]
    small, large = made["p_value"]
    assert small == 2 / 2**8
    assert made["p_holm"].tolist() == pytest.approx([2 * small, max(2 * small, large)])


def test_blocks_without_a_difference_count_for_neither():
    made = pairwise(table(a=[1, 2, 3], b=[1, 2, 3])).iloc[0]
    assert made[["p_value", "rank_biserial", "cliffs_delta", "low", "high"]].tolist() == [
        *(1, 0, 0, 0, 0)
    ]


def test_rank_biserial_by_hand():  # |d| ranks 1, 2, 3: gains 1 + 3, losses 2, of 6
    assert rank_biserial(np.array([0.5, -1, 2, 0])) == pytest.approx((4 - 2) / 6)


def test_cliffs_delta_by_hand():  # 1 beats none of 2, 3 and ties 1; 4 beats all three
    delta = cliffs_delta(np.array([1.0, 4.0]), np.array([1.0, 2.0, 3.0]))
    assert delta == pytest.approx((0 - 2 + 3) / 6)


def test_all_pairs_or_those_with_a_reference():
    made = table(a=[1, 2], b=[2, 3], c=[3, 5])
    pairs = pairwise(made)
    assert list(zip(pairs["method"], pairs["other"], strict=True)) == [
        ("a", "b"),
        ("a", "c"),
        ("b", "c"),
    ]
    assert pairwise(made, "c")["method"].tolist() == ["c", "c"]


def test_what_few_blocks_cannot_show():
    five = pairwise(table(a=[1, 2, 3, 4, 5], b=[2, 3, 4, 5, 7]))
    assert "5 blocks cannot go below p = 0.0625 (two-sided)" in five.attrs["caveats"][0]
    many = {f"m{index}": np.arange(7) * (index + 1.0) for index in range(4)}
    seven = pairwise(table(**many)).attrs["caveats"]  # 6 * 2 / 2^7 = 0.09
    assert "correction for 6 pairs multiplies the smallest by 6" in seven[0]
    one = pairwise(table(a=[1], b=[2])).attrs["caveats"]
    assert one == ["With a single block there is no interval, and no test can be significant."]
    enough = pairwise(table(a=range(12), b=range(1, 13)))
    assert enough.attrs["caveats"] == []


@pytest.mark.parametrize(
    ("methods", "reference", "message"),
    [
        ({"a": [1, 2]}, None, "needs two methods, got a"),
        ({"a": [1, 2], "b": [2, 3]}, "c", "reference 'c' has no runs here; there are a, b"),
    ],
)
def test_pairs_that_are_not_there(methods, reference, message):
    with pytest.raises(UserError, match=message):
        pairwise(table(**methods), reference)


def test_a_failed_run_has_no_difference():
    with pytest.raises(UserError, match="b: a failed run has no difference"):
        pairwise(scores(frame(a=[1, 2], b=[None, 3]), failed="last"))


# --- intervals ------------------------------------------------------------------------------------

VALUES = np.sqrt(np.arange(1.0, 13.0))


def test_an_interval_depends_on_name_and_seed_alone():
    assert bootstrap_interval(VALUES, "x") == bootstrap_interval(VALUES, "x")
    assert bootstrap_interval(VALUES, "x") != bootstrap_interval(VALUES, "x", seed=1)
    assert bootstrap_interval(VALUES, "x") != bootstrap_interval(VALUES, "y")


def test_an_interval_widens_with_its_level():
    narrow, wide = (bootstrap_interval(VALUES, "x", level) for level in (0.5, 0.95))
    assert 1 < wide.low < narrow.low < VALUES.mean() < narrow.high < wide.high < math.sqrt(12)


def test_intervals_cover_as_often_as_they_say():
    rng = np.random.default_rng(0)
    drawn = [bootstrap_interval(rng.normal(5, 1, 40), str(index), 0.8) for index in range(100)]
    covered = sum(interval.low <= 5 <= interval.high for interval in drawn)
    assert 66 <= covered <= 94  # 80 expected; 3.5 standard errors of 4


def test_an_interval_of_equal_values_and_of_one():
    assert bootstrap_interval(np.array([3.0, 3.0]), "x") == (3, 3)
    assert all(math.isnan(end) for end in bootstrap_interval(np.array([3.0]), "x"))


def test_a_single_scenario_has_differences_but_no_test():
    made = pairwise(table(a=[5], b=[3])).iloc[0]
    assert (made["mean_difference"], made["p_value"]) == (2, 1)
    assert math.isnan(made["low"])


# --- as other programs have it --------------------------------------------------------------------


@pytest.mark.parametrize("values", [[0.01, 0.04, 0.03, 0.2], [0.5], [0.02, 0.02, 1.0], [0.6, 0.9]])
def test_holms_correction_is_that_of_statsmodels(values):
    multitest = pytest.importorskip("statsmodels.stats.multitest")
    expected = multitest.multipletests(values, method="holm")[1]
    np.testing.assert_allclose(holm(np.array(values)), expected)


def test_nemenyis_p_values_are_those_of_scikit_posthocs():
    posthocs = pytest.importorskip("scikit_posthocs")
    made = scores(published.runs("CIFAR10_10_5_1"))
    expected = posthocs.posthoc_nemenyi_friedman(made.reset_index(drop=True))
    for row in ranking(made).pairs.itertuples():
        assert row.p_value == pytest.approx(expected.loc[row.better, row.worse], abs=1e-9)
