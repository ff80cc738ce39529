"""Who holds which classes."""

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fedgps_ray.analysis.figures.chart import Axis, Chart, Panel
from fedgps_ray.errors import UserError

Counts = NDArray[np.int64]


def partitions(frame: pd.DataFrame) -> Chart:
    """Return the samples of each class and client, a panel per scenario, on one colour scale."""
    counts = {str(number): _counts(rows) for number, rows in frame.groupby("scenario")}
    if not counts:
        raise UserError("no partition to draw: no trial has a partition.parquet yet")
    panels = [
        Panel(f"scenario {number}", cells=table.T.tolist()) for number, table in counts.items()
    ]
    clients, classes = next(iter(counts.values())).shape
    return Chart(
        "heat",
        tuple(panels),
        Axis("client", tuple(map(str, range(clients)))),
        Axis("class", tuple(map(str, range(classes)))),
        "The stronger the colour, the more training samples, on the scale of a square root.",
        Axis("training samples", scale="sqrt"),
    )


def _counts(rows: pd.DataFrame) -> Counts:
    """Return clients x classes; all trials of a scenario hold the same."""
    one = rows[rows["trial_id"] == rows["trial_id"].iloc[0]]
    counts: Counts = one.pivot(index="client", columns="class", values="count").to_numpy()
    return counts
