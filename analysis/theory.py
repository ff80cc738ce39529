"""The measured theory of trials: terms of the bound and curvature, as frames and figures."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedgps_ray.analysis import load
from fedgps_ray.analysis.figures.style import (
    COLOURS,
    INK,
    legend_below,
    line,
    looks,
    panels,
    styled,
)
from fedgps_ray.analysis.metrics import labels, order
from fedgps_ray.errors import UserError

TERMS = {
    "local_surrogate": "local to local surrogate",
    "surrogate_global": "local to global surrogate",
    "global_surrogate": "global surrogate to global",
}
FILE = "theory.json"
SETTINGS = ["label", "dataset", "method", "scenario", "seed"]


class Theory(NamedTuple):
    """One row a measured client, and one row a trial."""

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
        content = json.loads(file.read_text())
        return {"clients": content["clients"], "curvature": content["curvature"]}
    except (ValueError, LookupError, TypeError) as problem:
        raise UserError(f"{file} is damaged ({problem!r}); delete it and measure again") from None


@styled
def bound_terms(clients: pd.DataFrame) -> Figure:
    """Draw the three distances a method, and which part of its bound each client's gap takes up."""
    labels = order(clients)
    figure, (left, right) = panels(2, (4.4, 1.6 + 0.45 * len(labels)), sharey=True)
    _distances(left, clients.groupby("label")[list(TERMS)].mean().loc[labels])
    _shares(right, clients, labels)
    legend_below(figure, left)
    return figure


def _distances(axes: Axes, means: pd.DataFrame) -> None:
    places = np.arange(len(means))
    for number, (term, name) in enumerate(TERMS.items()):
        shifted = places + 0.26 * (number - 1)
        axes.barh(shifted, means[term], 0.24, color=COLOURS[number], label=name)
    axes.set_yticks(places, means.index)
    axes.set_ylim(len(means) - 0.5, -0.5)
    axes.grid(False, axis="y")
    axes.set_xlabel("Wasserstein-1 distance of features")


def _shares(axes: Axes, clients: pd.DataFrame, labels: Sequence[str]) -> None:
    drawn = looks(labels)
    for place, label in enumerate(labels):
        rows = clients[clients["label"] == label]
        look = drawn[label]
        shares = rows["gap"] / rows["bound"]
        axes.plot(shares, [place] * len(rows), look.marker, color=look.color, ms=5, alpha=0.6)
    axes.axvline(1, color=INK, lw=1, ls="--")
    axes.set_xscale("symlog", linthresh=0.01)
    axes.set_xlim(right=2)
    held, count = int(clients["held"].sum()), len(clients)
    axes.set_title(f"the bound held for {held} of {count} clients")
    axes.set_xlabel("(global risk - local risk) / bound")


@styled
def path_condition(curvature: pd.DataFrame) -> Figure:
    """Draw |I - lambda H| against lambda, a line a method; the path asks for less than 1."""
    figure = Figure(figsize=(6.4, 3.6), layout="constrained")
    axes = figure.add_subplot(xlabel="lambda", ylabel="norm of I - lambda H (below 1?)")
    labels = order(curvature)
    drawn, lengths = looks(labels), np.geomspace(1e-3, 10, 200)
    for label in labels:
        ends = curvature.loc[curvature["label"] == label, ["largest", "smallest"]].mean()
        norms = np.abs(1 - np.outer(lengths, ends)).max(axis=1)
        axes.plot(lengths, norms, label=label, **line(drawn[label]))
    axes.axhline(1, color=INK, lw=0.8, ls=":")
    for used in sorted(set(curvature["lambda_g"]) - {0.0}):
        axes.axvline(used, color=INK, lw=0.8, ls="--")
        note = f"lambda_g = {used:g}"
        axes.annotate(note, (used, 1), (4, -11), textcoords="offset points", size=8)
    axes.set(xscale="log", yscale="log")
    axes.set_ylim(bottom=0.5)
    legend_below(figure, axes)
    return figure
