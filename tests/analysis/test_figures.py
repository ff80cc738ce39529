"""Figures: what they show of frames with known numbers, and what they refuse."""

import hashlib

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex

from fedgps_ray.analysis import figures, load, metrics, published, statistics
from fedgps_ray.analysis.figures.ablation import variant
from fedgps_ray.analysis.figures.frames import leading
from fedgps_ray.analysis.figures.looks import COLOURS, MARKERS, OWN_COLOURS, STROKES, looks
from fedgps_ray.errors import UserError

CEILINGS = {"fedavg": 0.5, "fedprox": 0.6, "scaffold": 0.55, "fedgps": 0.7}
KINDS = ["partitions"]


class Frames:
    """All frames of a folder, labelled."""

    def __init__(self, *folders):
        rounds = load.rounds(*folders)
        self.runs = metrics.runs(load.trials(*folders), rounds)
        self.rounds = figures.labelled(rounds, self.runs)
        self.clients = figures.labelled(load.clients(*folders), self.runs)
        self.partitions = load.partitions(*folders)

    def draw(self, kind):
        by_kind = {"rank_stability": (self.runs,), "partitions": (self.partitions,)}
        by_kind["client_drift"] = (self.rounds, self.clients)
        return getattr(figures, kind)(*by_kind.get(kind, (self.rounds,)))


@pytest.fixture(scope="module")
def frames(tmp_path_factory, folder_maker):
    folder = tmp_path_factory.mktemp("two scenarios, two seeds")
    return Frames(folder_maker(folder, CEILINGS, seeds=(0, 1), rounds=10))


def lines_of(axes):
    return {line.get_label(): line for line in axes.get_lines()}


# --- style ----------------------------------------------------------------------------------------


def test_every_method_of_a_large_comparison_looks_different():
    labels = [f"method {number}" for number in range(30)]
    drawn = looks([*labels, "fedgps", "fedgps_cf", "fedavg"])
    assert len({(look.color, look.linestyle) for look in drawn.values()}) == 33
    assert len(COLOURS) * len(STROKES) >= 30
    assert len(set(MARKERS)) == len(MARKERS)


def test_a_search_with_many_variants_still_has_looks():
    assert len(looks(f"fedgps (rho={number})" for number in range(100))) == 100


def test_a_method_looks_the_same_whatever_order_it_comes_in():
    assert looks(["vhl", "fedgps", "ccvr"]) == looks(["ccvr", "vhl", "fedgps", "fedgps"])


def test_ours_keep_their_colours_unless_variants_are_compared():
    assert looks(["fedgps (rho=0.3)"])["fedgps (rho=0.3)"].color == OWN_COLOURS["fedgps"]
    several = looks(["fedgps (rho=0.3)", "fedgps (rho=0.5)"])
    assert len({look.color for look in several.values()} - set(OWN_COLOURS.values())) == 2


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_frames_give_the_same_files(frames, tmp_path, kind):
    for name in ("first", "second"):
        path = figures.save(frames.draw(kind), tmp_path, name)
        assert path == tmp_path / f"{name}.png"
    for ending in ("png", "pdf"):
        first, second = (tmp_path / f"{name}.{ending}" for name in ("first", "second"))
        assert first.stat().st_size > 3000
        digests = {hashlib.sha256(path.read_bytes()).hexdigest() for path in (first, second)}
        assert len(digests) == 1


# --- curves ---------------------------------------------------------------------------------------


def test_a_curve_is_the_mean_over_the_seeds_in_percent(frames):
    axes = frames.draw("convergence").axes[1]
    rows = frames.rounds[(frames.rounds["scenario"] == 2) & (frames.rounds["label"] == "fedgps")]
    expected = 100 * rows.groupby("round")["accuracy"].mean()
    line = lines_of(axes)["fedgps"]
    assert axes.get_title() == "scenario 2"
    np.testing.assert_allclose(line.get_ydata(), expected)
    assert len(axes.collections) == len(CEILINGS)  # a band each


def test_one_seed_has_no_band_and_untested_rounds_no_point(frames):
    rounds = frames.rounds[frames.rounds["seed"] == 0].copy()
    rounds.loc[rounds["round"] % 5 != 0, "accuracy"] = np.nan
    axes = figures.convergence(rounds).axes[0]
    assert len(axes.collections) == 0
    assert list(lines_of(axes)["fedavg"].get_xdata()) == [5, 10]


def test_the_best_are_shown_and_always_fedavg_and_ours():
    labels = pd.Series(["a", "b", "fedavg", "fedgps_cf", "c", "fedgps (rho=0)"])
    scores = pd.Series([5.0, 4.0, 1.0, 2.0, 3.0, 0.0])
    assert leading(scores, labels, 2) == ["a", "b", "fedgps_cf", "fedavg", "fedgps (rho=0)"]
    assert leading(scores, labels, 1) == ["a", "fedgps_cf", "fedavg"]


def test_bytes_add_up_from_round_to_round(frames):
    axes = frames.draw("accuracy_against_bytes").axes[0]
    line = lines_of(axes)["fedgps"]
    assert axes.get_xlabel() == "MB exchanged (up and down)"
    np.testing.assert_allclose(line.get_xdata(), 3.0 * np.arange(1, 11))
    assert (np.diff(line.get_ydata()) >= 0).all()


def test_drift_is_what_methods_report_else_the_spread_of_losses(frames):
    axes = frames.draw("client_drift").axes[0]
    rows = frames.clients[(frames.clients["label"] == "fedavg") & (frames.clients["round"] == 3)]
    by_trial = rows.groupby("trial_id", observed=True)["loss"]
    expected = (by_trial.std() / by_trial.mean()).mean()
    assert lines_of(axes)["fedavg"].get_ydata()[2] == pytest.approx(expected)
    told = frames.rounds.assign(metrics=[[("drift", 0.25)]] * len(frames.rounds))
    reported = figures.client_drift(told, frames.clients).axes[0]
    assert reported.get_ylabel() == "client drift"
    np.testing.assert_allclose(lines_of(reported)["fedavg"].get_ydata(), 0.25)


def test_divergence_has_a_line_a_sampling_rate(tmp_path, trial_maker):
    for rate in (0.2, 0.5):
        trial_maker(tmp_path, method="fedgps", rounds=10, sampling_rate=rate)
    axes = figures.divergence(Frames(tmp_path).rounds).axes[0]
    found = lines_of(axes)
    np.testing.assert_allclose(found["20% of clients"].get_ydata(), [5.0, 2.5])
    np.testing.assert_allclose(found["50% of clients"].get_ydata(), [2.0, 1.0])


# --- ranks ----------------------------------------------------------------------------------------


def test_ranks_in_each_scenario_with_ties_and_gaps():
    cells = {("a", 1): 50, ("b", 1): 50, ("c", 1): 60, ("a", 2): 70, ("b", 2): 40}
    runs = pd.DataFrame([{"label": m, "scenario": s, "accuracy": v} for (m, s), v in cells.items()])
    axes = figures.rank_stability(runs).axes[0]
    found = [list(line.get_ydata()) for line in axes.get_lines()]
    assert found[:2] == [[2.5, 1.0], [2.5, 2.0]]
    assert found[2][0] == 1.0
    assert np.isnan(found[2][1])
    places = [text.get_position()[1] for text in axes.texts]
    assert places == [1, 2, 3]  # names never lie on each other


def test_the_critical_difference_diagram_places_names_and_bars():
    ranking = statistics.ranking(statistics.scores(published.runs("CIFAR10_10_5_1")))
    axes = figures.critical_difference({"CIFAR-10": ranking}).axes[0]
    texts = " ".join(text.get_text() for text in axes.texts)
    assert "critical distance 8.87" in texts
    assert "fedgps  1.00" in texts
    assert "12.80  nucfl" in texts
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


def test_accuracy_at_each_value_of_a_setting():
    rows = [("fedavg", 0.1, 40), ("fedavg", 0.1, 60), ("fedavg", 0.5, 70), ("fedgps", 0.5, 80)]
    runs = pd.DataFrame(rows, columns=["label", "alpha", "accuracy"])
    axes = figures.accuracy_by(runs, "alpha").axes[0]
    means = {c.get_label(): list(c.lines[0].get_ydata()) for c in axes.containers}
    assert means == {"fedgps": [80], "fedavg": [50, 70]}
    assert [text.get_text() for text in axes.get_xticklabels()] == ["0.1", "0.5"]


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
    axes = figures.ablation(runs).axes[0]
    heights = [bar.get_height() for container in axes.containers for bar in container]
    assert heights == [6, 3]  # ((58 - 50) + (64 - 60)) / 2, 53 - 50
    with pytest.raises(UserError, match="no ablation: it needs FedAvg"):
        figures.ablation(runs[runs["method_options"] == "{}"])


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("{}", "FedGPS"),
        ('{"rho": 0.0}', "without path\n(rho = 0)"),
        ('{"goal": false}', "without goal\n(goal = false)"),
        ('{"goal": false, "rho": 0.0, "divergence_every": 5}', "without both"),
        ('{"rho": 0.3}', None),
        ('{"w_align": 2.0}', None),
    ],
)
def test_variants_of_fedgps(options, expected):
    assert variant(options) == expected


def test_partitions_are_drawn_on_one_scale(frames):
    figure = frames.draw("partitions")
    images = [axes.images[0] for axes in figure.axes[:2]]
    rows = frames.partitions[frames.partitions["scenario"] == 2].drop_duplicates(
        ["client", "class"]
    )
    expected = rows.pivot(index="class", columns="client", values="count")
    np.testing.assert_array_equal(images[1].get_array(), expected)
    assert images[0].norm is images[1].norm


# --- nothing to show ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("draw", "told"),
    [
        (lambda f: figures.convergence(f.rounds.assign(accuracy=np.nan)), "no round"),
        (lambda f: figures.rank_stability(f.runs.assign(accuracy=np.nan)), "no trial has finished"),
        (lambda f: figures.rank_stability(f.runs[f.runs["scenario"] == 1]), "two scenarios"),
        (lambda f: figures.rank_stability(f.runs[f.runs["label"] == "fedgps"]), "two methods"),
        (lambda f: figures.accuracy_by(f.runs, "clients"), "clients has fewer than two values"),
        (lambda f: figures.divergence(f.rounds[f.rounds["label"] == "fedavg"]), "divergence_every"),
        (lambda f: figures.partitions(f.partitions.head(0)), "no partition"),
        (lambda f: figures.client_drift(f.rounds, f.clients.assign(loss=np.nan)), "two clients"),
    ],
)
def test_what_cannot_be_drawn_is_told(frames, draw, told):
    with pytest.raises(UserError, match=told):
        draw(frames)
