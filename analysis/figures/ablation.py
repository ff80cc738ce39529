"""What each half of FedGPS adds."""

import json

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedgps_ray.analysis.figures.frames import scored
from fedgps_ray.analysis.figures.style import COLOURS, INK, OWN_COLOURS, REFERENCE, styled
from fedgps_ray.errors import UserError

MEASURING = ("divergence_every", "divergence_scale")
VARIANTS = {
    (True, True): "FedGPS",
    (True, False): "without path\n(rho = 0)",
    (False, True): "without goal\n(goal = false)",
    (False, False): "without both",
}


@styled
def ablation(runs: pd.DataFrame) -> Figure:
    """Draw how much more accurate than FedAvg each variant is; a dot is a scenario and seed."""
    gains = _gains(runs)
    shown = [name for name in VARIANTS.values() if name in set(gains["variant"])]
    figure = Figure(figsize=(1.2 + 1.35 * len(shown), 3.2), layout="constrained")
    axes = figure.add_subplot()
    colours = (OWN_COLOURS["fedgps"], *COLOURS)
    for place, name in enumerate(shown):
        points = gains.loc[gains["variant"] == name, "gain"]
        axes.bar(place, points.mean(), 0.6, color=colours[place], alpha=0.75)
        _dots(axes, place, points)
    axes.axhline(0, color=INK, lw=1)
    axes.margins(y=0.15)
    axes.set_xticks(range(len(shown)), shown)
    axes.grid(False, axis="x")
    axes.set_ylabel("best accuracy, percentage points\nabove FedAvg (mean, each trial)")
    return figure


def _dots(axes: Axes, place: int, points: "pd.Series[float]") -> None:
    spread = [place + 0.05 * (number - (len(points) - 1) / 2) for number in range(len(points))]
    axes.plot(spread, points, "o", ms=3.5, color=INK, mfc="white", mew=0.8)


def _gains(runs: pd.DataFrame) -> pd.DataFrame:
    """Return each FedGPS trial's variant, and its gain over FedAvg in the same place."""
    frame = scored(runs)
    where = ["scenario", "seed"]
    base = frame[frame["method"] == REFERENCE].groupby(where)["accuracy"].mean()
    ours = frame[frame["method"] == "fedgps"].copy()
    ours["variant"] = [variant(str(options)) for options in ours["method_options"]]
    gains = ours.dropna(subset=["variant"]).join(base.rename("base"), on=where)
    gains["gain"] = gains["accuracy"] - gains["base"]
    gains = gains.dropna(subset=["gain"])
    if gains["variant"].nunique() < 2:
        raise UserError("no ablation: it needs FedAvg, FedGPS, and FedGPS with rho=0 or goal=false")
    return gains


def variant(options: str) -> str | None:
    """Return which halves these options of FedGPS leave in; None if they change anything else."""
    chosen = json.loads(options)
    if set(chosen) - {"rho", "goal", *MEASURING} or chosen.get("rho", 0) != 0:
        return None
    return VARIANTS[chosen.get("goal", True), "rho" not in chosen]
