"""Figures: what they show of frames with known numbers, and what they refuse."""

import hashlib
import json
import math

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from matplotlib.colors import to_hex

from fedgps_ray.analysis import figures, load, metrics, published, statistics
from fedgps_ray.analysis.figures.ablation import variant
from fedgps_ray.analysis.figures.chart import POINTS, Axis, Chart, Guide, Panel, Series, to_json
from fedgps_ray.analysis.figures.frames import leading
from fedgps_ray.analysis.figures.looks import COLOURS, MARKERS, OWN_COLOURS, STROKES, looks
from fedgps_ray.analysis.figures.paint import paint, room_for
from fedgps_ray.errors import UserError

CEILINGS = {"fedavg": 0.5, "fedprox": 0.6, "scaffold": 0.55, "fedgps": 0.7}
LOOK = looks(["FedGPS"])["FedGPS"]


class Frames:
    """All frames of a folder, labelled."""

    def __init__(self, *folders):
        rounds = load.rounds(*folders)
        self.runs = metrics.runs(load.trials(*folders), rounds)
        self.rounds = figures.labelled(rounds, self.runs)
        self.partitions = load.partitions(*folders)


@pytest.fixture(scope="module")
def frames(tmp_path_factory, folder_maker):
    folder = tmp_path_factory.mktemp("two scenarios, two seeds")
    return Frames(folder_maker(folder, CEILINGS, seeds=(0, 1), rounds=10))


@pytest.fixture(scope="module")
def later(frames, fabricate):
    """Return rounds with the columns on updates, clients and classes."""
    plain = frames.rounds.astype(dict.fromkeys(("trial_id", "label", "setting"), "str"))
    chosen = ["trial_id", "label", "setting", "scenario", "seed", "round", "accuracy"]
    return fabricate.later_columns(pa.Table.from_pandas(plain[chosen])).to_pandas()


def series_of(chart, panel=0):
    return {one.name: one for one in chart.panels[panel].series}


# --- style ----------------------------------------------------------------------------------------


def test_every_method_of_a_large_comparison_looks_different():
    labels = [f"method {number}" for number in range(30)]
    drawn = looks([*labels, "FedGPS", "FedGPS-CF", "FedAvg"])
    assert len({(look.color, look.linestyle) for look in drawn.values()}) == 33
    assert len(COLOURS) * len(STROKES) >= 30
    assert len(set(MARKERS)) == len(MARKERS)


def test_a_search_with_many_variants_still_has_looks():
    assert len(looks(f"FedGPS (rho={number})" for number in range(100))) == 100


def test_a_method_looks_the_same_whatever_order_it_comes_in():
    assert looks(["VHL", "FedGPS", "CCVR"]) == looks(["CCVR", "VHL", "FedGPS", "FedGPS"])


def test_ours_keep_their_colours_unless_variants_are_compared():
    assert looks(["FedGPS (rho=0.3)"])["FedGPS (rho=0.3)"].color == OWN_COLOURS["FedGPS"]
    several = looks(["FedGPS (rho=0.3)", "FedGPS (rho=0.5)"])
    assert len({look.color for look in several.values()} - set(OWN_COLOURS.values())) == 2


@pytest.mark.parametrize("draw", ["convergence", "best_accuracy", "rank_stability", "partitions"])
def test_the_same_frames_give_the_same_files(frames, tmp_path, draw):
    source = {"convergence": frames.rounds, "partitions": frames.partitions}.get(draw, frames.runs)
    for name in ("first", "second"):
        path = figures.save(getattr(figures, draw)(source), tmp_path, name)
        assert path == tmp_path / f"{name}.png"
    for ending in ("png", "pdf"):
        first, second = (tmp_path / f"{name}.{ending}" for name in ("first", "second"))
        assert first.stat().st_size > 3000
        digests = {hashlib.sha256(path.read_bytes()).hexdigest() for path in (first, second)}
        assert len(digests) == 1
    assert len(list(tmp_path.iterdir())) == 4  # nothing is left beside them


# --- charts ---------------------------------------------------------------------------------------


def chart_of(*series, kind="lines", **more):
    return Chart(kind, (Panel("", series),), Axis("x"), Axis("y"), **more)


def test_a_page_gets_no_more_points_than_can_be_seen_and_the_last_one():
    xs = list(range(1001))
    (one,) = to_json(chart_of(Series("a", LOOK, xs, xs, xs, xs)))["panels"][0]["series"]
    assert len(one["x"]) <= POINTS + 1
    assert one["x"] == one["y"] == one["low"] == one["high"]
    assert (one["x"][0], one["x"][-1]) == (0, 1000)


def test_what_is_no_number_is_empty_in_a_page():
    (one,) = to_json(chart_of(Series("a", LOOK, [1, 2], [math.nan, 1 / 3])))["panels"][0]["series"]
    assert one["y"] == [None, 0.33333]
    json.dumps(one, allow_nan=False)


def test_a_figure_draws_the_leading_series_with_labels_and_bands():
    first = Series("a", LOOK, [1, 2], [1, 2], [0, 1], [2, 3])
    second = Series("b", LOOK, [1, 2], [5, 6], leading=False)
    axes = figures.paint(chart_of(first, second)).axes[0]
    assert [line.get_label() for line in axes.get_lines()] == ["a"]
    assert len(axes.collections) == 1
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("x", "y")


def test_dots_are_drawn_in_rows_from_the_top_with_their_ranges():
    means = Series("mean", LOOK, [3.0, 5.0], [0, 1], [1.0, 4.0], [4.0, 6.0])
    chart = Chart("dots", (Panel("", (means,)),), Axis("x"), Axis("method", ("one", "two")))
    axes = figures.paint(chart).axes[0]
    assert [text.get_text() for text in axes.get_yticklabels()] == ["one", "two"]
    assert axes.yaxis_inverted()
    (ranges,) = axes.collections
    assert [list(path[:, 0]) for path in ranges.get_segments()] == [[1.0, 4.0], [4.0, 6.0]]


# --- curves ---------------------------------------------------------------------------------------


def test_a_curve_is_the_mean_over_the_seeds_in_percent_with_their_range(frames):
    chart = figures.convergence(frames.rounds)
    rows = frames.rounds[(frames.rounds["scenario"] == 2) & (frames.rounds["label"] == "FedGPS")]
    by_round = 100 * rows["accuracy"].groupby(rows["round"]).agg(["mean", "min", "max"])
    one = series_of(chart, 1)["FedGPS"]
    assert chart.panels[1].title == "scenario 2"
    for values, name in ((one.y, "mean"), (one.low, "min"), (one.high, "max")):
        np.testing.assert_allclose(values, by_round[name])


def test_one_seed_has_no_band_and_untested_rounds_no_point(frames):
    rounds = frames.rounds[frames.rounds["seed"] == 0].copy()
    rounds.loc[rounds["round"] % 5 != 0, "accuracy"] = np.nan
    one = series_of(figures.convergence(rounds))["FedAvg"]
    assert list(one.x) == [5, 10]
    assert len(one.low) == 0


def test_the_best_are_shown_and_always_fedavg_and_ours():
    labels = pd.Series(["a", "b", "FedAvg", "FedGPS-CF", "c", "FedGPS (rho=0)"])
    scores = pd.Series([5.0, 4.0, 1.0, 2.0, 3.0, 0.0])
    assert leading(scores, labels, 2) == ["a", "b", "FedGPS-CF", "FedAvg", "FedGPS (rho=0)"]
    assert leading(scores, labels, 1) == ["a", "FedGPS-CF", "FedAvg"]


def test_the_others_are_there_but_not_drawn_at_first(frames):
    found = series_of(figures.convergence(frames.rounds, top=1))
    assert {name for name, one in found.items() if one.leading} == {"FedGPS", "FedAvg"}
    assert {name for name, one in found.items() if not one.leading} == {"FedProx", "SCAFFOLD"}


def test_bytes_add_up_from_round_to_round_and_have_a_range(frames):
    chart = figures.accuracy_against_bytes(frames.rounds)
    one = series_of(chart)["FedGPS"]
    assert chart.x.label == "MB exchanged (up and down)"
    np.testing.assert_allclose(one.x, 3.0 * np.arange(1, 11))
    assert (np.diff(one.y) >= 0).all()
    assert all(
        low <= mean <= high for low, mean, high in zip(one.low, one.y, one.high, strict=True)
    )


def test_divergence_has_a_line_for_each_sampling_rate(tmp_path, trial_maker):
    for rate in (0.2, 0.5):
        trial_maker(tmp_path, method="fedgps", rounds=10, sampling_rate=rate)
    found = series_of(figures.divergence(Frames(tmp_path).rounds))
    np.testing.assert_allclose(found["20% of clients"].y, [5.0, 2.5])
    np.testing.assert_allclose(found["50% of clients"].y, [2.0, 1.0])


# --- updates, clients, classes --------------------------------------------------------------------


def test_update_diversity_is_a_mean_over_trials_with_its_range(later):
    one = series_of(figures.update_diversity(later))["FedGPS"]
    rows = later[later["label"] == "FedGPS"]
    by_round = rows.groupby("round")["update_diversity"].agg(["mean", "min", "max"])
    for values, name in ((one.y, "mean"), (one.low, "min"), (one.high, "max")):
        np.testing.assert_allclose(values, by_round[name])


def test_client_accuracies_are_those_of_the_last_round_in_percent(later):
    chart = figures.client_accuracy(later)
    found = series_of(chart)
    assert list(found) == ["worst client", "10th percentile", "median client"]
    last = later[(later["round"] == 10) & (later["label"] == "FedGPS")]["worst_client_accuracy"]
    place = chart.y.names.index("FedGPS")
    assert found["worst client"].x[place] == pytest.approx(100 * last.mean())
    assert found["worst client"].low[place] == pytest.approx(100 * last.min())
    assert list(found["median client"].y) == [0, 1, 2, 3]


def test_class_accuracies_are_those_of_the_last_round_with_the_best_method_on_top(later):
    chart = figures.class_accuracy(later)
    last = later[(later["round"] == 10) & (later["label"] == "FedGPS")]["class_accuracy"]
    place = chart.y.names.index("FedGPS")
    np.testing.assert_allclose(
        chart.panels[0].cells[place], 100 * np.stack(list(last)).mean(axis=0)
    )
    means = [np.mean(row) for row in chart.panels[0].cells]
    assert means == sorted(means, reverse=True)
    assert chart.x.names == tuple("0123456789")


def test_a_class_that_some_trials_lack_is_averaged_over_the_others():
    lists = [[0.5, None, 1.0], [0.7, None]]
    rows = {"trial_id": ["a", "b"], "round": 1, "label": "FedAvg", "class_accuracy": lists}
    (row,) = figures.class_accuracy(pd.DataFrame(rows)).panels[0].cells
    assert row[0] == pytest.approx(60)
    assert math.isnan(row[1])
    assert row[2] == pytest.approx(100)


@pytest.mark.parametrize(
    ("draw", "column"),
    [
        (figures.update_diversity, "update_diversity"),
        (figures.client_accuracy, "worst_client_accuracy"),
        (figures.class_accuracy, "class_accuracy"),
    ],
)
def test_columns_that_older_results_lack_are_told(later, draw, column):
    with pytest.raises(UserError, match=f"no round has an? {column}; results of older versions"):
        draw(later.drop(columns=column))
    with pytest.raises(UserError, match="nothing to draw"):
        draw(later.assign(**{column: None}))


def test_empty_lists_of_classes_are_no_accuracies(later):
    with pytest.raises(UserError, match="no class accuracy was recorded"):
        figures.class_accuracy(later.assign(class_accuracy=[[]] * len(later)))


# --- ranks ----------------------------------------------------------------------------------------


def test_ranks_in_each_scenario_with_ties_and_gaps():
    cells = {("a", 1): 50, ("b", 1): 50, ("c", 1): 60, ("a", 2): 70, ("b", 2): 40}
    runs = pd.DataFrame([{"label": m, "scenario": s, "accuracy": v} for (m, s), v in cells.items()])
    chart = figures.rank_stability(runs)
    found = {name: one.y for name, one in series_of(chart).items()}
    assert (found["a"], found["b"]) == ([2.5, 1.0], [2.5, 2.0])
    assert found["c"][0] == 1.0
    assert math.isnan(found["c"][1])
    assert list(found) == ["c", "a", "b"]  # by mean rank
    assert figures.paint(chart).axes[0].yaxis_inverted()


def test_methods_are_told_apart_where_their_bars_do_not_overlap():
    ranking = statistics.ranking(statistics.scores(published.runs("SVHN_10_5_1")))
    found = series_of(figures.average_ranks({"": ranking}))
    apart = {
        (one.name, other.name)
        for one in found.values()
        for other in found.values()
        if one.high[0] <= other.low[0]
    }
    significant = ranking.pairs[ranking.pairs["significant"]]
    assert apart == set(zip(significant["better"], significant["worse"], strict=True))
    assert len(apart) == 9


def test_the_critical_difference_diagram_places_names_and_bars():
    ranking = statistics.ranking(statistics.scores(published.runs("CIFAR10_10_5_1")))
    axes = figures.critical_difference({"CIFAR-10": ranking}).axes[0]
    texts = " ".join(text.get_text() for text in axes.texts)
    assert "critical distance 8.87" in texts
    assert "FedGPS  1.00" in texts
    assert "12.80  NUCFL" in texts
    thick = [line for line in axes.get_lines() if line.get_linewidth() == 3.5]
    assert len(thick) == len(ranking.groups)
    ours = next(line for line in axes.get_lines() if to_hex(line.get_color()) == "#d55e00")
    assert ours.get_xdata()[0] == 1.0


def test_names_of_the_diagram_do_not_overlap():
    figure = figures.figure_1()
    figure.draw_without_rendering()
    for axes in figure.axes:
        boxes = [text.get_window_extent() for text in axes.texts]
        for number, box in enumerate(boxes):
            assert not any(box.overlaps(other) for other in boxes[number + 1 :])


def test_a_distance_longer_than_the_scale_is_told_not_drawn():
    scores = pd.DataFrame({"a": [3.0, 3.0], "b": [2.0, 2.0], "c": [1.0, 1.0]})
    axes = figures.critical_difference({"": statistics.ranking(scores)}).axes[0]
    assert any("longer than the scale" in text.get_text() for text in axes.texts)


# --- settings, ablation, partitions ---------------------------------------------------------------


def test_accuracy_at_each_value_of_a_setting_with_its_deviation():
    rows = [("FedAvg", 0.1, 40), ("FedAvg", 0.1, 60), ("FedAvg", 0.5, 70), ("FedGPS", 0.5, 80)]
    runs = pd.DataFrame(rows, columns=["label", "alpha", "accuracy"])
    chart = figures.accuracy_by(runs, "alpha")
    found = series_of(chart)
    assert {name: (one.x, one.y) for name, one in found.items()} == {
        "FedGPS": ([1], [80]),
        "FedAvg": ([0, 1], [50, 70]),
    }
    assert found["FedAvg"].low[0] == pytest.approx(50 - 200**0.5)
    assert chart.x.names == ("0.1", "0.5")
    assert len(figures.paint(chart).axes[0].containers) == 2


def test_best_accuracies_show_the_mean_its_range_and_every_trial():
    rows = [("FedAvg", 40), ("FedAvg", 60), ("FedGPS", 80)]
    chart = figures.best_accuracy(pd.DataFrame(rows, columns=["label", "accuracy"]))
    one = series_of(chart)["FedAvg"]
    assert chart.y.names == ("FedGPS", "FedAvg")
    assert (one.x, one.y) == ([50, 40, 60], [1, 1, 1])
    assert (one.low[0], one.high[0]) == (40, 60)
    assert all(math.isnan(value) for value in one.low[1:])


def test_the_ablation_is_relative_to_fedavg_in_the_same_place():
    rows = [
        ("fedavg", "{}", 1, 50),
        ("fedavg", "{}", 2, 60),
        ("fedgps", "{}", 1, 58),
        ("fedgps", "{}", 2, 64),
        ("fedgps", '{"rho": 0.0}', 1, 53),
    ]
    names = ["method", "method_options", "scenario", "accuracy"]
    runs = pd.DataFrame(rows, columns=names).assign(seed=0)
    chart = figures.ablation(runs)
    found = series_of(chart)
    assert chart.y.names == ("FedGPS", "without path (rho = 0)")
    assert found["mean"].x == [6, 3]  # ((58 - 50) + (64 - 60)) / 2, 53 - 50
    assert (found["each trial"].x, found["each trial"].y) == ([8, 4, 3], [0, 0, 1])
    with pytest.raises(UserError, match="no ablation: it needs FedAvg"):
        figures.ablation(runs[runs["method_options"] == "{}"])


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("{}", "FedGPS"),
        ('{"rho": 0.0}', "without path (rho = 0)"),
        ('{"goal": false}', "without goal (goal = false)"),
        ('{"goal": false, "rho": 0.0, "divergence_every": 5}', "without both"),
        ('{"rho": 0.3}', None),
        ('{"w_align": 2.0}', None),
    ],
)
def test_variants_of_fedgps(options, expected):
    assert variant(options) == expected


def test_partitions_are_drawn_on_one_scale(frames):
    chart = figures.partitions(frames.partitions)
    rows = frames.partitions[frames.partitions["scenario"] == 2].drop_duplicates(
        ["client", "class"]
    )
    expected = rows.pivot(index="class", columns="client", values="count")
    np.testing.assert_array_equal(chart.panels[1].cells, expected)
    figure = figures.paint(chart)
    limits = [axes.images[0].get_clim() for axes in figure.axes[:2]]
    assert limits[0] == limits[1] == (0, frames.partitions["count"].max())
    assert figure.axes[-1].get_ylabel() == "training samples"  # the colour bar says what it shows


# --- nothing to show ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("draw", "told"),
    [
        (lambda f: figures.convergence(f.rounds.assign(accuracy=np.nan)), "no round"),
        (lambda f: figures.rank_stability(f.runs.assign(accuracy=np.nan)), "no trial has finished"),
        (lambda f: figures.rank_stability(f.runs[f.runs["scenario"] == 1]), "two scenarios"),
        (lambda f: figures.rank_stability(f.runs[f.runs["label"] == "FedGPS"]), "two methods"),
        (lambda f: figures.accuracy_by(f.runs, "clients"), "clients has fewer than two values"),
        (lambda f: figures.divergence(f.rounds[f.rounds["label"] == "FedAvg"]), "divergence_every"),
        (lambda f: figures.partitions(f.partitions.head(0)), "no partition"),
    ],
)
def test_what_cannot_be_drawn_is_told(frames, draw, told):
    with pytest.raises(UserError, match=told):
        draw(frames)


def test_a_figure_without_panels_is_refused():
    with pytest.raises(UserError, match="nothing to draw"):
        Chart("lines", (), Axis("round"), Axis("accuracy"))


def test_long_names_make_a_figure_wider():
    assert room_for(["FedAvg", "FedGPS"]) == 0
    assert room_for(["x" * 60]) == pytest.approx(20 * 0.075)


@pytest.mark.parametrize("name", [r"$\frac{$", "$$", "_under", "$x^{$", r"\$a$"])
def test_every_name_is_drawn_as_it_is(tmp_path, name):
    series = (Series(name, LOOK, [1, 2], [0.1, 0.2], [0.0, 0.1], [0.2, 0.3]),)
    guides = (Guide("x", 1.5, name),)
    for kind, y in (("lines", Axis(name)), ("dots", Axis(name, (name, "b"))), ("marks", Axis("y"))):
        chart = Chart(kind, (Panel(name, series),), Axis(name), y, guides=guides)
        assert figures.save(chart, tmp_path, kind).stat().st_size > 1000
    (legend,) = paint(chart).legends
    assert legend.get_texts()[0].get_text().replace(r"\$", "$").strip() == name
    rank = statistics.ranking(pd.DataFrame({name: [1.0, 2.0], "b": [2.0, 3.0], "c": [0.0, 1.0]}))
    figures.save(figures.critical_difference({name: rank}), tmp_path, "ranks")
