"""How unlike the clients' updates are."""

import pandas as pd

from fedgps_ray.analysis.figures.chart import Axis, Chart, Guide, Panel
from fedgps_ray.analysis.figures.frames import (
    LOWEST_TO_HIGHEST,
    curves,
    measured,
    over_rounds,
    tested,
)

SMOOTHED = 20  # a running mean takes one in so many of the rounds


def update_diversity(rounds: pd.DataFrame, top: int = 5) -> Chart:
    """Return the mean squared norm of the updates over the squared norm of their mean, by round."""
    problem = "no round has an update_diversity; results of older versions lack it"
    frame = tested(measured(rounds, "update_diversity", problem))
    window = max(1, int(frame["round"].max()) // SMOOTHED)
    series = curves(frame, "update_diversity", top, window)
    y = Axis(f"update diversity (1: all updates agree){over_rounds(window)}")
    guide = Guide("y", 1.0, "")
    return Chart(
        "lines",
        (Panel("", series),),
        Axis("round", whole=True),
        y,
        LOWEST_TO_HIGHEST,
        guides=(guide,),
    )
