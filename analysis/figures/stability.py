"""Whether the order of the methods holds from scenario to scenario."""

import pandas as pd

from fedgps_ray.analysis.figures.chart import Axis, Chart, Panel, Series
from fedgps_ray.analysis.figures.frames import scored
from fedgps_ray.analysis.figures.looks import looks
from fedgps_ray.errors import UserError


def rank_stability(runs: pd.DataFrame) -> Chart:
    """Return each method's rank by best accuracy in each scenario; ties share a rank."""
    scores = scored(runs).groupby(["scenario", "label"])["accuracy"].mean().unstack()
    if min(scores.shape) < 2:
        raise UserError("no order to compare: it needs two methods and two scenarios")
    ranks = scores.rank(axis=1, ascending=False)
    ranks = ranks[ranks.mean().sort_values(kind="stable").index]
    drawn, places = looks(map(str, ranks)), list(range(len(ranks)))
    series = [Series(str(label), drawn[str(label)], places, list(ranks[label])) for label in ranks]
    x = Axis("scenario", tuple(str(scenario) for scenario in ranks.index))
    y = Axis("rank (1 is best)", downwards=True, whole=True)
    return Chart("marks", (Panel("", tuple(series)),), x, y, "Methods that tie share a rank.")
