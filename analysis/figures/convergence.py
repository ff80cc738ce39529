"""Test accuracy round by round."""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedgps_ray.analysis.figures.frames import leading_curves, tested
from fedgps_ray.analysis.figures.style import (
    Look,
    label_outside,
    legend_below,
    line,
    looks,
    over_rounds,
    panels,
    smooth,
    styled,
    whole_rounds,
)

SMOOTHED = 50  # a running mean takes one in so many of the rounds


@styled
def convergence(rounds: pd.DataFrame, top: int = 5) -> Figure:
    """Draw the best methods, FedAvg and ours, a panel a scenario; the band spans the seeds."""
    frame = tested(rounds)
    drawn = looks(frame["label"])
    window = max(1, int(frame["round"].max()) // SMOOTHED)
    scenarios = sorted(frame["scenario"].unique())
    figure, grid = panels(len(scenarios), (3.3, 2.5), sharex=True, sharey=True)
    for axes, scenario in zip(grid, scenarios, strict=True):
        rows = frame[frame["scenario"] == scenario]
        for label in leading_curves(frame, top):
            _curve(axes, rows[rows["label"] == label], window, drawn[label])
        axes.set_title(f"scenario {scenario}")
        whole_rounds(axes)
    label_outside(grid, "round", f"test accuracy (%){over_rounds(window)}")
    legend_below(figure, grid[0])
    return figure


def _curve(axes: Axes, rows: pd.DataFrame, window: int, look: Look) -> None:
    """Draw the mean over the seeds, and the lowest and highest of them."""
    seeds = rows.pivot_table(index="round", columns="seed", values="accuracy") * 100
    seeds = smooth(seeds, window)
    label = str(rows["label"].iloc[0]) if len(rows) else None
    axes.plot(seeds.index, seeds.mean(axis=1), label=label, **line(look))
    if seeds.shape[1] > 1:
        low, high = seeds.min(axis=1), seeds.max(axis=1)
        axes.fill_between(seeds.index, low, high, color=look.color, alpha=0.15, linewidth=0)
