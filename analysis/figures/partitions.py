"""Who holds which classes."""

import numpy as np
import pandas as pd
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure

from fedgps_ray.analysis.figures.heatmap import MAX_TICKS, Counts
from fedgps_ray.analysis.figures.style import label_outside, panels, styled
from fedgps_ray.errors import UserError


@styled
def partitions(frame: pd.DataFrame) -> Figure:
    """Draw the samples of each class and client, a panel a scenario, on one colour scale."""
    counts = {str(number): _counts(rows) for number, rows in frame.groupby("scenario")}
    if not counts:
        raise UserError("no partition to draw: no trial has a partition.parquet yet")
    norm = PowerNorm(0.5, 0, max(int(table.max()) for table in counts.values()))
    clients, classes = next(iter(counts.values())).shape
    width = float(np.interp(clients, [10, 100], [2.6, 4.2]))
    height = float(np.interp(classes, [10, 100], [2.4, 4.2]))
    figure, grid = panels(len(counts), (width, height), sharey=True)
    for axes, (number, table) in zip(grid, counts.items(), strict=True):
        image = axes.imshow(table.T, "Blues", norm, aspect="auto", origin="lower")
        axes.set_title(f"scenario {number}")
        axes.grid(False)
        axes.set_xticks(_ticks(clients))
        axes.set_yticks(_ticks(classes))
    label_outside(grid, "client", "class")
    figure.colorbar(image, ax=grid, label="samples", shrink=0.8)
    return figure


def _counts(rows: pd.DataFrame) -> Counts:
    """Return clients x classes; all trials of a scenario hold the same."""
    one = rows[rows["trial_id"] == rows["trial_id"].iloc[0]]
    counts: Counts = one.pivot(index="client", columns="class", values="count").to_numpy()
    return counts


def _ticks(number: int) -> list[int]:
    step = 1 if number <= MAX_TICKS // 2 else max(2, number // 5)
    return list(range(0, number, step))
