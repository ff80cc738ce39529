"""Our results beside the numbers printed in the FedGPS paper.

Cells are compared only where dataset, model, partition, clients, sampling rate, rounds, local
epochs, scenario, seed, method and every hyperparameter that the paper prints are the same. The
paper prints no batch size, and does not say how a scenario's partition was drawn.
"""

import json
from collections.abc import Mapping
from functools import cache
from math import isnan, nan
from typing import Any, Literal

import pandas as pd

from fedgps_ray.analysis import metrics, published
from fedgps_ray.analysis.names import published_name
from fedgps_ray.analysis.tables import ABSENT, Cell, Column, Table, assemble, mean_cell

Flag = Literal["within", "outside", ""]
SAME = [name for name in metrics.SETTING if name != "batch_size"]
CELL = ["scenario", "seed"]
STDS = 2
WITHIN = (
    f"within: over two or more cells, the means differ by at most {STDS} standard deviations of"
    " the printed cells; for one cell, our value lies between the lowest and the highest that the"
    " paper prints for this method and setting. Means are over the same cells on both sides."
)


def against_paper(trials: pd.DataFrame, rounds: pd.DataFrame) -> Table:
    """Return our means beside the paper's; `compare` says what is compared and what within means.

    Rows of other settings are shown beside the nearest printed setting, and name what differs.
    """
    rows = compare(metrics.runs(trials, rounds)).to_dict("records")
    several = len({row["setting"] for row in rows}) > 1
    names = [f"{row['label']}, {row['setting']}" if several else row["label"] for row in rows]
    columns = [
        Column(("ours",), [mean_cell(row["ours"], row["ours_std"]) for row in rows]),
        Column(("paper",), [mean_cell(row["published"], row["published_std"]) for row in rows]),
        Column(("difference",), [_difference(row["difference"]) for row in rows]),
        Column(("cells",), [Cell(str(row["cells"]), row["cells"]) for row in rows]),
        Column(("",), [Cell(row["within"] or ABSENT) for row in rows]),
        Column(("differs from the paper in",), [Cell(row["differs"]) for row in rows]),
    ]
    return assemble("against the paper", names, columns, [WITHIN])


def _difference(value: float) -> Cell:
    return Cell(ABSENT, mark="missing") if isnan(value) else Cell(f"{value:+.2f}", round(value, 2))


def compare(runs: pd.DataFrame) -> pd.DataFrame:
    """Return one row per (setting, label) of our runs.

    Columns: ours, ours_std, published, published_std (percent, ddof 1), cells (how many scenarios
    and seeds both have; 0 where settings differ, and then the means are over all of either side),
    difference (ours - published), within (see WITHIN; empty where nothing can be said), differs
    (in words).
    """
    grouped = runs.groupby(["setting", "label"], sort=False, observed=True)
    return pd.DataFrame(
        {"setting": setting, "label": label, **_row(rows)} for (setting, label), rows in grouped
    )


@cache
def _printed() -> Mapping[str, list[pd.DataFrame]]:
    """Return the printed runs of each method, one frame per setting, as far as that is known.

    A run that several tables print is taken from the first of them.
    """
    frame = published.runs().dropna(subset=["clients"])
    frame = frame.drop_duplicates([*SAME, *CELL, "method"])
    by_method: dict[str, list[pd.DataFrame]] = {}
    for (method, _), rows in frame.groupby(["method", "setting"], sort=False):
        by_method.setdefault(str(method), []).append(rows)
    return by_method


def _row(ours: pd.DataFrame) -> dict[str, Any]:
    differs, nearest = _nearest(ours.iloc[0])
    pairs = ours.merge(nearest, on=CELL, suffixes=("", "_printed"))
    pairs = pairs.dropna(subset=["accuracy", "accuracy_printed"])
    if not differs and pairs.empty:
        differs = [_no_cell(ours, nearest)]
    if differs:
        pairs = pairs.iloc[:0]
    mine = ours["accuracy"] if differs else pairs["accuracy"]
    other = nearest["accuracy"] if differs else pairs["accuracy_printed"]
    return {
        "ours": mine.mean(),
        "ours_std": mine.std(),
        "published": other.mean(),
        "published_std": other.std(),
        "cells": len(pairs),
        "difference": nan if differs else mine.mean() - other.mean(),
        "within": "" if differs else _within(mine, other, nearest["accuracy"].dropna()),
        "differs": "; ".join(differs),
    }


def _nearest(run: "pd.Series[Any]") -> tuple[list[str], pd.DataFrame]:
    """Return in what the nearest printed setting differs, and its cells."""
    if run["method"] not in _printed():
        nothing = pd.DataFrame({name: [] for name in [*CELL, "accuracy"]})
        return [f"the paper has no {published_name(run['method'])}"], nothing
    options = [(_differences(run, rows.iloc[0]), rows) for rows in _printed()[run["method"]]]
    differs, rows = min(options, key=lambda option: len(option[0]))
    return differs + _other_hyperparameters(run), rows


def _differences(run: "pd.Series[Any]", printed: "pd.Series[Any]") -> list[str]:
    return [
        f"{name.replace('_', ' ')} {_text(run[name])} instead of {_text(printed[name])}"
        for name in SAME
        if _text(run[name]) != _text(printed[name])
    ]


def _text(value: Any) -> str:
    if pd.isna(value):
        return "none"
    return f"{value:g}" if isinstance(value, int | float) else str(value)


def _other_hyperparameters(run: "pd.Series[Any]") -> list[str]:
    """Return which hyperparameters are not the paper's; FedGPS-CF has those of FedGPS."""
    method = "fedgps" if run["method"] == "fedgps_cf" else run["method"]
    wanted: Mapping[str, Any] = published.hyperparameters().get(method, {})
    ours = json.loads(run["variant"])
    return [
        f"{name.rpartition('.')[2]} {ours.get(name)} instead of {value}"
        for name, value in wanted.items()
        if ours.get(name) != value
    ]


def _no_cell(ours: pd.DataFrame, nearest: pd.DataFrame) -> str:
    """Return why no scenario and seed has a number on both sides."""
    if ours["accuracy"].isna().all():
        return "no run of ours has a result"
    if nearest["accuracy"].isna().all():
        return "the paper prints no result (-)"
    return "no scenario and seed in common that has a number on both sides"


def _within(
    ours: "pd.Series[float]", paper: "pd.Series[float]", printed: "pd.Series[float]"
) -> Flag:
    if len(ours) > 1:
        near = abs(ours.mean() - paper.mean()) <= STDS * paper.std()
    elif len(printed) > 1:
        near = printed.min() <= ours.iloc[0] <= printed.max()
    else:
        return ""
    return "within" if near else "outside"
