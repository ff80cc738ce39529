import io

import matplotlib.pyplot as plt
import numpy as np
import pytest
from rich.console import Console

from fedgps_ray.analysis.figures.heatmap import DARK, LIGHT, figure, save_png, table

CIFAR10 = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]


def printed(heat, width=80):
    console = Console(width=width, file=io.StringIO(), color_system=None)
    console.print(heat)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def shades(heat):
    segments = Console(width=80, color_system="truecolor").render(heat)
    return {
        segment.text.strip(): (segment.style.color.name, tuple(segment.style.bgcolor.triplet))
        for segment in segments
        if segment.style is not None and segment.style.bgcolor is not None
    }


def test_table_shows_numbers_names_and_totals():
    heat = table(np.array([[120, 0], [7, 35]]), ["cat", "automobile"])
    assert printed(heat)[:3] == [
        "client    cat auto…    total",
        "     0    120     ·      120",
        "     1      7    35       42",
    ]
    assert " ".join(" ".join(printed(heat)[3:]).split()) == "darker: more samples of the class"


def test_table_is_darkest_where_most_samples_are():  # sqrt(25 / 100) is half way from light to dark
    shade = shades(table(np.array([[100, 25, 0]]), None))
    half = tuple(round((light + dark) / 2) for light, dark in zip(LIGHT, DARK, strict=True))
    assert shade == {"100": ("white", DARK), "25": ("black", half), "·": ("black", LIGHT)}


def test_ten_clients_and_classes_fit_a_terminal_of_80_columns():
    lines = printed(table(np.full((10, 10), 4999), CIFAR10))
    assert lines[0].split() == ["client", "airp…", "auto…", *CIFAR10[2:], "total"]
    assert lines[10].split() == ["9", *["4999"] * 10, "49990"]


def test_table_says_which_clients_and_classes_are_not_shown():  # (80 - 16) / 4 = 16 classes
    lines = printed(table(np.full((500, 100), 3), None))
    assert lines[0].split() == ["client", *map(str, range(16)), "total"]
    assert lines[40].split() == ["39", *["3"] * 16, "300"]
    assert lines[-1].strip() == (
        "not shown: clients from 40 on (of 500), classes from 16 on (of 100)"
    )


def test_max_clients_limits_the_rows():
    lines = printed(table(np.full((5, 10), 3), None, max_clients=2))
    assert [line.split()[0] for line in lines[1:3]] == ["0", "1"]
    assert lines[-1].strip() == "not shown: clients from 2 on (of 5)"


def test_wide_terminal_shows_more_classes():
    assert printed(table(np.full((1, 100), 3), None), width=420)[0].split()[-2] == "99"


def test_narrow_terminal_still_shows_a_class():
    assert printed(table(np.full((1, 3), 12345), None), width=24)[1].split() == [
        "0",
        "12345",
        "37035",
    ]


def test_names_that_look_alike_when_cut_become_numbers():
    heat = table(np.ones((1, 2), dtype=np.int64), ["sweet_pepper", "sweet_potato"])
    assert printed(heat)[0].split() == ["client", "0", "1", "total"]


def test_table_without_any_sample():
    assert printed(table(np.zeros((1, 2), dtype=np.int64), None))[1].split() == ["0", "·", "·", "0"]


def test_figure_prints_numbers_in_small_tables_only():
    small = figure(np.arange(144).reshape(12, 12), "small").axes[0]
    assert sorted(int(text.get_text()) for text in small.texts) == list(range(1, 144))
    assert not figure(np.ones((13, 12), dtype=np.int64), "large").axes[0].texts


def test_figure_has_clients_to_the_right_and_classes_upwards():
    axes = figure(np.array([[1, 2, 3], [4, 5, 6]]), "who has what").axes[0]
    assert (axes.get_title(), axes.get_xlabel(), axes.get_ylabel()) == (
        "who has what",
        "client",
        "class",
    )
    assert {text.get_text(): text.get_position() for text in axes.texts}["6"] == (1, 2)
    assert axes.images[0].get_array().tolist() == [[1, 4], [2, 5], [3, 6]]
    assert (axes.get_xlim(), axes.get_ylim()) == ((-0.5, 1.5), (-0.5, 2.5))


def test_every_client_and_class_has_a_tick_while_there_is_room():
    few = figure(np.ones((20, 10), dtype=np.int64), "few").axes[0]
    assert few.get_xticks().tolist() == list(range(20))
    assert few.get_yticks().tolist() == list(range(10))
    many = figure(np.ones((500, 100), dtype=np.int64), "many").axes[0]
    assert len(many.get_xticks()) <= 20
    assert len(many.get_yticks()) <= 20


def test_colour_bar_has_round_numbers_and_the_largest():  # from 4536 / 50 up to 0.8 * 4536
    bar = figure(np.array([[0, 4536]]), "bar").axes[1]
    assert bar.get_yticks().tolist() == [0, 100, 200, 500, 1000, 2000, 4536]


@pytest.mark.parametrize("shape", [(10, 10), (100, 10), (500, 100)])
def test_png_has_at_least_two_pixels_for_a_client(shape, tmp_path):
    save_png(np.arange(np.prod(shape)).reshape(shape), tmp_path / "a.png", "title")
    data = (tmp_path / "a.png").read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = (int.from_bytes(data[i : i + 4], "big") for i in (16, 20))
    assert width > 2.5 * shape[0]
    assert height > 2.5 * shape[1]


def test_png_of_no_samples(tmp_path):
    save_png(np.zeros((2, 2), dtype=np.int64), tmp_path / "a.png", "nothing")
    assert (tmp_path / "a.png").stat().st_size > 0


def test_figures_are_not_left_with_pyplot():
    figure(np.ones((2, 2), dtype=np.int64), "t")
    assert not plt.get_fignums()
