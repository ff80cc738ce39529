"""How far the clients' surrogate features lie from the prototypes, round by round."""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedgps_ray.analysis.figures.style import (
    Look,
    legend_below,
    line,
    looks,
    panels,
    styled,
    whole_rounds,
)
from fedgps_ray.errors import UserError


@styled
def divergence(rounds: pd.DataFrame) -> Figure:
    """Draw the divergence over the rounds, a line a sampling rate, a panel a method."""
    frame = rounds.dropna(subset=["divergence"])
    if frame.empty:
        raise UserError("no divergence was measured: run with --set method.divergence_every=5")
    rates = sorted(frame["sampling_rate"].unique())
    drawn = dict(zip(rates, looks(f"{rate:09.4f}" for rate in rates).values(), strict=True))
    labels = sorted(frame["label"].unique())
    figure, grid = panels(len(labels), (4.2, 3.0), sharey=True)
    for axes, label in zip(grid, labels, strict=True):
        _panel(axes, frame[frame["label"] == label], drawn)
        axes.set_title(label)
    grid[0].set_ylabel("mean distance to the prototypes")
    legend_below(figure, grid[0])
    return figure


def _panel(axes: Axes, rows: pd.DataFrame, drawn: dict[float, Look]) -> None:
    for rate, look in drawn.items():
        mean = rows[rows["sampling_rate"] == rate].groupby("round")["divergence"].mean()
        axes.plot(mean.index, mean, label=f"{rate:.0%} of clients", **line(look))
    axes.set_xlabel("round")
    whole_rounds(axes)
