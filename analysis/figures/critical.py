"""Average ranks, and which of them a test can tell apart."""

from collections.abc import Mapping

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedgps_ray.analysis import published
from fedgps_ray.analysis.figures.chart import Axis, Chart, Panel, Series
from fedgps_ray.analysis.figures.looks import OURS, OWN_COLOURS, Look, looks, method_of
from fedgps_ray.analysis.figures.paint import INK, plain, room_for, styled
from fedgps_ray.analysis.statistics import Ranking, ranking, scores

GROUP_STEP, NAME_STEP = 0.5, 0.9  # in units of a name's height
ABOVE, BELOW = 2.6, 0.6
UNIT = 0.27  # inches
FIGURE_1 = {"SVHN": "SVHN_10_5_1", "CIFAR-10": "CIFAR10_10_5_1"}


@styled
def critical_difference(rankings: Mapping[str, Ranking]) -> Figure:
    """Draw each ranking on a line: the critical distance above, a bar for each group below."""
    heights = [_height(one) + (1.2 if title else 0) for title, one in rankings.items()]
    room = max(room_for([*map(str, one.average_ranks.index)]) for one in rankings.values())
    figure = Figure(figsize=(8 + 2 * room, UNIT * sum(heights)), layout="constrained")
    grid = figure.subplots(len(heights), squeeze=False, height_ratios=heights).ravel()
    for axes, (title, one) in zip(grid, rankings.items(), strict=True):
        axes.set_title(plain(title), loc="left")
        _draw(axes, one)
    return figure


def average_ranks(rankings: Mapping[str, Ranking]) -> Chart:
    """Return the same as a chart: two methods whose bars do not overlap are told apart."""
    names = tuple(str(name) for name in next(iter(rankings.values())).average_ranks.index)
    drawn = looks(names)
    panels = [
        Panel(
            title,
            tuple(_rank(one, name, place, drawn[name]) for place, name in enumerate(names)),
        )
        for title, one in rankings.items()
    ]
    note = (
        "Bars are half the critical distance each way: methods whose bars do not overlap are told"
        " apart by Nemenyi's test at 0.05."
    )
    x = Axis("average rank over the scenarios (1 is best)", whole=True)
    return Chart("dots", tuple(panels), x, Axis("method", names), note)


def _rank(one: Ranking, name: str, place: int, look: Look) -> Series:
    rank, half = float(one.average_ranks[name]), one.critical_distance / 2
    return Series(name, look, [rank], [place], [rank - half], [rank + half])


def figure_1() -> Figure:
    """Draw the ranks of the paper's two main tables, from its printed accuracies."""
    return critical_difference(printed_rankings())


def printed_rankings() -> dict[str, Ranking]:
    """Return the rankings of the paper's two main tables."""
    tables = {title: published.runs(name) for title, name in FIGURE_1.items()}
    return {title: ranking(scores(runs)) for title, runs in tables.items()}


def _height(one: Ranking) -> float:
    """Return how many units a diagram is high."""
    names = NAME_STEP * -(-one.num_methods // 2)
    return ABOVE + 0.9 + GROUP_STEP * len(one.groups) + names - NAME_STEP + BELOW


def _draw(axes: Axes, one: Ranking) -> None:
    """Draw one diagram; the best rank is on the left."""
    ranks, last = one.average_ranks, one.num_methods
    margin = 0.06 * (last - 1)
    axes.set_axis_off()
    axes.set_xlim(1 - 5 * margin, last + 5 * margin)
    axes.set_ylim(_height(one) - ABOVE, -ABOVE)
    _scale(axes, last)
    _distance(axes, one.critical_distance, last)
    for number, group in enumerate(one.groups):
        ends = [ranks[group].min() - 0.05, ranks[group].max() + 0.05]
        axes.plot(ends, [0.55 + GROUP_STEP * number] * 2, color=INK, lw=3.5)
    first, half = 0.9 + GROUP_STEP * len(one.groups), -(-last // 2)
    names = [str(name) for name in ranks.index]
    for level, name in enumerate(names[:half]):
        _name(axes, name, ranks[name], 1 - margin, first + NAME_STEP * level)
    for level, name in enumerate(reversed(names[half:])):
        _name(axes, name, ranks[name], last + margin, first + NAME_STEP * level)


def _scale(axes: Axes, last: int) -> None:
    axes.plot([1, last], [0, 0], color=INK, lw=1)
    for place in range(1, last + 1):
        axes.plot([place, place], [0, -0.25], color=INK, lw=1)
        axes.text(place, -0.4, str(place), ha="center", va="bottom", size=8)


def _distance(axes: Axes, distance: float, last: int) -> None:
    """Draw the critical distance as a bar; one that is longer than the scale only in words."""
    longer = distance > last - 1
    text = f"critical distance {distance:.2f}{', longer than the scale' if longer else ''}"
    axes.text(1, -1.8, text, ha="left", va="bottom", size=8)
    if not longer:
        axes.plot([1, 1 + distance], [-1.6, -1.6], color=INK, lw=1.5, marker="|", ms=7)


def _name(axes: Axes, name: str, rank: float, edge: float, y: float) -> None:
    """Lead from the rank down and to the side, to the name and its rank."""
    ours = method_of(name) in OURS
    colour = OWN_COLOURS.get(name, INK) if ours else INK
    axes.plot([rank, rank, edge], [0, y, y], color=colour, lw=1.4 if ours else 0.8)
    side = "right" if edge < 1 else "left"
    shown = plain(name)
    text = f"{shown}  {rank:.2f} " if edge < 1 else f" {rank:.2f}  {shown}"
    weight = "bold" if ours else "normal"
    axes.text(edge, y, text, ha=side, va="center", size=8.5, color=colour, weight=weight)
