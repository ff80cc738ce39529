"""The measured theory of trials: terms of the bound and curvature, as frames and figures."""

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from fedgps_ray.analysis import load
from fedgps_ray.analysis.figures.chart import Axis, Chart, Guide, Panel, Series
from fedgps_ray.analysis.figures.looks import looks, plain_looks
from fedgps_ray.analysis.metrics import labels, order
from fedgps_ray.errors import UserError
from fedgps_ray.results import files

TERMS = {
    "local_surrogate": "local to local surrogate",
    "surrogate_global": "local to global surrogate",
    "global_surrogate": "global surrogate to global",
}
FILE = "theory.json"
SETTINGS = ["label", "dataset", "method", "scenario", "seed"]


class Theory(NamedTuple):
    """One row per measured client, and one row per trial."""

    clients: pd.DataFrame
    curvature: pd.DataFrame


def read(*folders: Path) -> Theory:
    """Return what `theory.json` of the trials in these folders says, with their settings."""
    trials = load.trials(*folders)
    files = {str(row.trial_id): Path(str(row.folder)) / FILE for row in trials.itertuples()}
    told = {name: _content(file) for name, file in files.items() if file.exists()}
    if not told:
        raise UserError(f"nothing was measured: no theory.json in {', '.join(map(str, folders))}")
    settings = trials.assign(label=labels(trials)).set_index("trial_id")[SETTINGS]
    clients = [{"trial_id": t, **row} for t, info in told.items() for row in info["clients"]]
    curved = [{"trial_id": t, **info["curvature"]} for t, info in told.items()]
    return Theory(
        pd.DataFrame(clients).join(settings, on="trial_id"),
        pd.DataFrame(curved).join(settings, on="trial_id"),
    )


def _content(file: Path) -> Any:
    try:
        content = json.loads(files.read_bytes(file))
        return {"clients": content["clients"], "curvature": content["curvature"]}
    except (ValueError, LookupError, TypeError, OSError) as problem:
        raise UserError(f"{file} is damaged ({problem!r}); delete it and measure again") from None


def bound_terms(clients: pd.DataFrame) -> Chart:
    """Return the three distances of each method: means over its clients, lowest to highest."""
    names = order(clients)
    grouped, drawn = clients.groupby("label"), plain_looks(TERMS.values())
    series = [
        Series(name, drawn[name], *_spread(grouped[term].agg(["mean", "min", "max"]).loc[names]))
        for term, name in TERMS.items()
    ]
    note = "Dots are means over the clients; bars reach from the lowest to the highest."
    x = Axis("Wasserstein-1 distance of features (in feature space)")
    return Chart("dots", (Panel("", tuple(series)),), x, Axis("method", tuple(names)), note)


def _spread(stats: pd.DataFrame) -> tuple[list[float], list[float], list[float], list[float]]:
    """Return values, rows, lowest and highest."""
    rows = [float(row) for row in range(len(stats))]
    return list(stats["mean"]), rows, list(stats["min"]), list(stats["max"])


def bound_shares(clients: pd.DataFrame) -> Chart:
    """Return which part of its bound each client's gap takes up; above 1 the bound fails."""
    names = order(clients)
    drawn, shares = looks(names), clients["gap"] / clients["bound"]
    series = []
    for place, name in enumerate(names):
        mine = list(shares[clients["label"] == name])
        series.append(Series(name, drawn[name], mine, [place] * len(mine)))
    held, count = int(clients["held"].sum()), len(clients)
    title = f"the bound held for {held} of {count} clients"
    x = Axis("(global risk - local risk) / bound")
    guide = Guide("x", 1.0, "bound")
    panel = Panel(title, tuple(series))
    axis = Axis("method", tuple(names))
    return Chart("dots", (panel,), x, axis, "A dot is a client.", guides=(guide,))


def path_condition(curvature: pd.DataFrame) -> Chart:
    """Return |I - lambda H| against lambda, a line per method; the path asks for less than 1."""
    names = order(curvature)
    drawn, lengths = looks(names), np.geomspace(1e-3, 10, 200)
    series = []
    for name in names:
        ends = curvature.loc[curvature["label"] == name, ["largest", "smallest"]].mean()
        norms = np.abs(1 - np.outer(lengths, ends)).max(axis=1)
        series.append(Series(name, drawn[name], list(lengths), list(norms)))
    used = sorted(set(curvature["lambda_g"]) - {0.0})
    return Chart(
        "lines",
        (Panel("", tuple(series)),),
        Axis("lambda", scale="log"),
        Axis("norm of I - lambda H", scale="log"),
        "The path asks for a norm below 1 (dotted).",
        guides=(Guide("y", 1.0, ""), *(Guide("x", one, f"lambda_g = {one:g}") for one in used)),
    )
