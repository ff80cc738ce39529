"""How far the clients' surrogate features lie from the prototypes, round by round."""

import pandas as pd

from fedgps_ray.analysis.figures.chart import Axis, Chart, Panel
from fedgps_ray.analysis.figures.frames import LOWEST_TO_HIGHEST, curves_of
from fedgps_ray.errors import UserError


def divergence(rounds: pd.DataFrame) -> Chart:
    """Return the divergence over the rounds, a line per sampling rate, a panel per method."""
    frame = rounds.dropna(subset=["divergence"])
    if frame.empty:
        raise UserError("no divergence was measured: run with --set method.divergence_every=5")
    rates = [f"{rate:.0%} of clients" for rate in sorted(frame["sampling_rate"].unique())]
    by_rate = frame.assign(
        method_label=frame["label"], label=frame["sampling_rate"].map("{:.0%} of clients".format)
    )
    panels = [
        Panel(str(label), curves_of(rows, "divergence", rates, [], 1))
        for label, rows in by_rate.groupby("method_label", observed=True)
    ]
    y = Axis("mean distance to the prototypes (in feature space)")
    return Chart("lines", tuple(panels), Axis("round", whole=True), y, LOWEST_TO_HIGHEST)
