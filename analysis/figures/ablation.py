"""What each half of FedGPS adds."""

import json

import pandas as pd

from fedgps_ray.analysis.figures.chart import Axis, Chart, Guide, Panel, Series
from fedgps_ray.analysis.figures.frames import scored
from fedgps_ray.analysis.figures.looks import OURS, OWN_COLOURS, Look
from fedgps_ray.errors import UserError

MEASURING = ("divergence_every", "divergence_scale")
VARIANTS = {
    (True, True): "FedGPS",
    (True, False): "without path (rho = 0)",
    (False, True): "without goal (goal = false)",
    (False, False): "without both",
}
MEAN = Look(OWN_COLOURS[OURS[0]], "-", "o", 2.2)
TRIAL = Look("#777777", "-", "x", 1.0)


def ablation(runs: pd.DataFrame) -> Chart:
    """Return how much more accurate than FedAvg each variant is, means and single trials."""
    gains = _gains(runs)
    names = [name for name in VARIANTS.values() if name in set(gains["variant"])]
    places = {name: place for place, name in enumerate(names)}
    grouped = gains.groupby("variant")["gain"].agg(["mean", "min", "max"]).loc[names]
    ends = (list(grouped["min"]), list(grouped["max"]))
    mean = Series("mean", MEAN, list(grouped["mean"]), list(places.values()), *ends)
    each = Series("each trial", TRIAL, list(gains["gain"]), list(gains["variant"].map(places)))
    return Chart(
        "dots",
        (Panel("", (mean, each)),),
        Axis("best accuracy above FedAvg's (percentage points)"),
        Axis("variant", tuple(names)),
        "Bars reach from the lowest to the highest trial.",
        guides=(Guide("x", 0.0, "FedAvg"),),
    )


def _gains(runs: pd.DataFrame) -> pd.DataFrame:
    """Return each FedGPS trial's variant, and its gain over FedAvg in the same place."""
    frame = scored(runs)
    where = ["scenario", "seed"]
    base = frame[frame["method"] == "fedavg"].groupby(where)["accuracy"].mean()
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
