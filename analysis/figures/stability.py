"""Whether the order of the methods holds from scenario to scenario."""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedgps_ray.analysis.figures.frames import scored
from fedgps_ray.analysis.figures.style import INK, looks, styled
from fedgps_ray.errors import UserError


@styled
def rank_stability(runs: pd.DataFrame) -> Figure:
    """Draw each method's rank by best accuracy in each scenario; ties share a rank."""
    scores = scored(runs).groupby(["scenario", "label"])["accuracy"].mean().unstack()
    if min(scores.shape) < 2:
        raise UserError("no order to compare: it needs two methods and two scenarios")
    ranks = scores.rank(axis=1, ascending=False)
    labels = [str(label) for label in ranks]
    drawn, longest = looks(labels), max(map(len, labels))
    size = (1.6 + 0.9 * len(ranks) + 0.09 * longest, 0.8 + 0.27 * ranks.shape[1])
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.add_subplot(xlabel="scenario", ylabel="rank (1 is best)")
    places = range(len(ranks))
    for label in labels:
        axes.plot(places, ranks[label], **drawn[label]._asdict(), ms=5)
    _names(axes, ranks)
    axes.set_xticks(places, [f"{scenario}" for scenario in ranks.index])
    axes.set_yticks(range(1, ranks.shape[1] + 1))
    axes.set_ylim(ranks.shape[1] + 0.6, 0.4)
    axes.grid(False, axis="x")
    return figure


def _names(axes: Axes, ranks: pd.DataFrame) -> None:
    """Name each line at its right end; tied ones one under the other."""
    last = ranks.apply(lambda column: column.dropna().iloc[-1]).sort_values()
    for place, label in enumerate(last.index, start=1):
        axes.text(len(ranks) - 0.78, place, str(label), va="center", size=8.5, color=INK)
