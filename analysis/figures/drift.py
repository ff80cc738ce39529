"""How far apart the clients are."""

from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from fedgps_ray.analysis.figures.frames import leading_curves, tested
from fedgps_ray.analysis.figures.style import (
    legend_below,
    line,
    looks,
    over_rounds,
    smooth,
    styled,
    whole_rounds,
)
from fedgps_ray.errors import UserError

SMOOTHED = 20  # a running mean takes one in so many of the rounds


@styled
def client_drift(rounds: pd.DataFrame, clients: pd.DataFrame, top: int = 5) -> Figure:
    """Draw the drift that methods report, or else the relative spread of the clients' losses."""
    reported = drift_reported(rounds)
    measured = loss_spread(clients) if reported.empty else reported
    frame = tested(rounds)
    drawn, shown = looks(frame["label"]), set(measured["label"])
    figure = Figure(figsize=(6.4, 3.6), layout="constrained")
    axes = figure.add_subplot(xlabel="round")
    window = max(1, int(measured["round"].max()) // SMOOTHED)
    what = "deviation / mean of client losses" if reported.empty else "client drift"
    axes.set_ylabel(f"{what}{over_rounds(window)}")
    for label in (label for label in leading_curves(frame, top) if label in shown):
        means = measured[measured["label"] == label].groupby("round")["drift"].mean()
        axes.plot(means.index, smooth(means, window), label=label, **line(drawn[label]))
    whole_rounds(axes)
    legend_below(figure, axes)
    return figure


def drift_reported(rounds: pd.DataFrame) -> pd.DataFrame:
    """Return the rounds whose metrics hold a drift, with it as a column."""
    found = pd.Series([_drift(told) for told in rounds["metrics"]], rounds.index, dtype=float)
    return rounds.assign(drift=found).dropna(subset=["drift"])


def _drift(metrics: Any) -> float | None:
    """Return the drift among a round's metrics, which come as pairs."""
    return dict(metrics).get("drift") if isinstance(metrics, list) else None


def loss_spread(clients: pd.DataFrame) -> pd.DataFrame:
    """Return how much the clients' losses of a round differ, in units of their mean."""
    keys = ["trial_id", "label", "round"]
    losses = clients.groupby(keys, observed=True)["loss"]
    spread = (losses.std() / losses.mean()).rename("drift").dropna().reset_index()
    if spread.empty:
        raise UserError("no client drift to draw: a round needs two clients with a loss")
    return spread
