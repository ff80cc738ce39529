"""What a run achieved and what it cost, as the paper counts it.

A frame of runs has one row per trial. Its columns: those of the spec, `label` (the method, with
whatever tells apart its variants), `setting` (text), `status`, `accuracy` (best, percent), `last`,
`last_ten`, `target` (percent), `cost` (to the target; empty if not reached), `cost_of` (what is
counted), `spent` (the whole run's cost) and `speedup` (FedAvg's cost over the run's).
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd

from fedgps_ray.analysis.names import published_name
from fedgps_ray.errors import UserError, unknown
from fedgps_ray.titles import TITLES

Cost = Literal["rounds", "bytes", "bytes_up", "bytes_down", "gradient_evaluations", "seconds"]
Target = Literal["floor", "exact"] | float
Over = Literal["scenarios", "seeds", "all"]

SETTING = [
    *("dataset", "model", "partition", "alpha", "classes_per_client", "clients"),
    *("sampling_rate", "rounds", "local_epochs", "batch_size"),
]
CASE = ["setting", "scenario", "seed"]  # what all methods of a comparison share
FAILED = ("diverged", "failed")  # the paper's "-"
REFERENCE = "fedavg"
ORDER = ("centralized", *(name for name in TITLES if name != "centralized"))
UNITS = {
    "classes_per_client": ("class per client", "classes per client"),
    "clients": ("client", "clients"),
    "rounds": ("round", "rounds"),
    "local_epochs": ("local epoch", "local epochs"),
}
MANY = 4  # values that a label names without asking whether they are usual
OF_METHOD = "method."
DIGITS = 9  # 100 * 0.57 is a little less than 57


def runs(
    trials: pd.DataFrame, rounds: pd.DataFrame, target: Target = "floor", cost: Cost = "rounds"
) -> pd.DataFrame:
    """Return one row per trial with its accuracies, its cost to the target and its speed-up."""
    if cost not in get_args(Cost):
        raise unknown("cost", str(cost), get_args(Cost))
    frame = trials.reset_index(drop=True)
    frame["label"] = labels(frame)
    frame["setting"] = setting_texts(frame)
    finished = frame["status"] == "finished"
    for name, source in {"accuracy": "best", "last": "last", "last_ten": "last_ten"}.items():
        frame[name] = percent(frame[f"{source}_accuracy"]).where(finished)
    spent = _spent(rounds, cost)
    frame["cost_of"] = cost
    frame["spent"] = frame["trial_id"].map(spent.groupby("trial_id").last())
    frame["target"] = targets(frame, target).where(frame["spent"].notna())
    hits = spent[_hits(rounds, frame)]
    frame["cost"] = frame["trial_id"].map(hits.groupby("trial_id").first())
    frame["speedup"] = speedups(frame)
    frame.attrs["problems"] = [
        p for part in (trials, rounds) for p in part.attrs.get("problems", [])
    ]
    return frame


def percent(shares: "pd.Series[Any]") -> "pd.Series[float]":
    """Return shares of 1 in percent, free of the last bits that would spoil a floor."""
    return (100 * shares.astype(float)).round(DIGITS)


# --- names ----------------------------------------------------------------------------------------


def labels(frame: pd.DataFrame, within: Sequence[str] = SETTING) -> "pd.Series[str]":
    """Return the published name of each row's method, with the values that set its variants apart.

    What differs only from setting to setting, such as options of the partition, is not shown. Of
    more than MANY values, those of the method that are neutral and others that are the usual ones
    are left out.
    """
    parsed = {text: json.loads(text) for text in frame["variant"].unique()}
    names: dict[str, set[str]] = {}
    rows = frame.reset_index(drop=True)
    groups = rows.groupby(["method", *within], observed=True, dropna=False)["variant"]
    for (method, *_), texts in groups:
        names.setdefault(str(method), set()).update(_differing([parsed[t] for t in texts.unique()]))
    made = [""] * len(frame)
    for (method, *_), texts in groups:
        shown = sorted(names[str(method)])
        own = [(int(place), parsed[text]) for place, text in zip(texts.index, texts, strict=True)]
        usual = _usual([variant for _, variant in own], shown if len(shown) > MANY else [])
        for place, variant in own:
            options = json.loads(str(rows["method_options"].iat[place])) if usual else {}
            kept = _unusual(variant, shown, usual, options) if usual else shown
            made[place] = _label(str(method), variant, kept)
    return pd.Series(made, index=frame.index, dtype="str")


def _usual(variants: Sequence[Mapping[str, Any]], names: Sequence[str]) -> dict[str, str]:
    """Return the value that each setting has most often."""
    counts = {name: Counter(_shown(variant, name) for variant in variants) for name in names}
    return {name: each.most_common(1)[0][0] for name, each in counts.items()}


def _unusual(
    variant: Mapping[str, Any],
    names: Sequence[str],
    usual: Mapping[str, str],
    options: Mapping[str, Any],
) -> list[str]:
    """Return the settings that say what is special in a variant; options: not neutral ones."""
    return [
        name
        for name in names
        if (
            name.removeprefix(OF_METHOD) in options
            if name.startswith(OF_METHOD)
            else _shown(variant, name) != usual[name]
        )
    ]


def _differing(variants: Sequence[Mapping[str, Any]]) -> set[str]:
    names = {name for variant in variants for name in variant}
    return {name for name in names if len({_shown(variant, name) for variant in variants}) > 1}


def _label(method: str, variant: Mapping[str, Any], names: list[str]) -> str:
    values = ", ".join(f"{name.rpartition('.')[2]}={_shown(variant, name)}" for name in names)
    name = published_name(method)
    return f"{name} ({values})" if names else name


def _shown(variant: Mapping[str, Any], name: str) -> str:
    value = variant.get(name)
    return value if isinstance(value, str) else json.dumps(value)


def order(frame: pd.DataFrame) -> list[str]:
    """Return the labels in the order of the paper; methods it does not have come last."""
    pairs = frame[["method", "label"]].astype(str).drop_duplicates()

    def place(pair: tuple[str, str]) -> tuple[int, str, str]:
        return ORDER.index(pair[0]) if pair[0] in ORDER else len(ORDER), *pair

    known = zip(pairs["method"], pairs["label"], strict=True)
    return [label for _, label in sorted(known, key=place)]


# --- settings -------------------------------------------------------------------------------------


def setting_texts(frame: pd.DataFrame) -> "pd.Series[str]":
    """Return each row's setting as text: equal texts are equal settings."""
    rows = frame[SETTING].to_dict("records")
    return pd.Series([describe(row) for row in rows], index=frame.index, dtype="str")


def describe(setting: Mapping[Any, Any]) -> str:
    """Return a setting in words; what is not known is left out."""
    texts = (text(name, setting[name]) for name in SETTING if pd.notna(setting[name]))
    return ", ".join(texts)


def text(column: str, value: Any) -> str:
    """Return one value of a setting in words."""
    if column == "sampling_rate":
        return f"{100 * value:g}% of clients per round"
    if column in UNITS:
        one, several = UNITS[column]
        return f"{value:g} {one if value == 1 else several}"
    return {"alpha": "alpha {:g}", "batch_size": "batch size {:g}"}.get(column, "{}").format(value)


def settings(frame: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield each setting in words with its runs."""
    for setting, rows in frame.groupby("setting", sort=False, observed=True):
        yield str(setting), rows


# --- cost to target -------------------------------------------------------------------------------


def targets(frame: pd.DataFrame, target: Target = "floor") -> "pd.Series[float]":
    """Return the accuracy that each run should reach: FedAvg's best in the same case, or a number.

    "floor" rounds it down to a whole percent, as the paper prints it. Of several variants of
    FedAvg the most accurate one counts.
    """
    if isinstance(target, int | float):
        return pd.Series(float(target), index=frame.index)
    if target not in ("floor", "exact"):
        raise UserError(f"target {target!r}: must be floor, exact or a number in percent")
    best = frame[frame["method"] == REFERENCE].groupby(CASE)["accuracy"].max()
    exact = _of_case(frame, best)
    return exact if target == "exact" else exact.map(np.floor)


def speedups(frame: pd.DataFrame) -> "pd.Series[float]":
    """Return FedAvg's cost over each run's cost, in the same case."""
    reference = frame[frame["method"] == REFERENCE].sort_values("accuracy", ascending=False)
    return _of_case(frame, reference.groupby(CASE)["cost"].first()) / frame["cost"]


def _of_case(frame: pd.DataFrame, values: "pd.Series[Any]") -> "pd.Series[float]":
    merged = frame[CASE].merge(values.rename("value"), how="left", left_on=CASE, right_index=True)
    return merged["value"].astype(float)


def _spent(rounds: pd.DataFrame, cost: Cost) -> "pd.Series[float]":
    """Return what each trial has spent by the end of each round; index: trial and round."""
    parts: dict[str, list[str]] = {
        "bytes": ["bytes_up", "bytes_down"],
        "seconds": ["train_seconds", "aggregate_seconds"],
    }
    keyed = _keyed(rounds)
    if cost == "rounds":
        return pd.Series(keyed.index.get_level_values("round"), index=keyed.index, dtype=float)
    amounts = keyed[parts.get(cost, [cost])].sum(axis=1)
    return amounts.groupby("trial_id").cumsum().astype(float)


def _keyed(rounds: pd.DataFrame) -> pd.DataFrame:
    plain = rounds.assign(trial_id=rounds["trial_id"].astype(str))
    return plain.set_index(["trial_id", "round"]).sort_index()


def _hits(rounds: pd.DataFrame, frame: pd.DataFrame) -> Any:
    """Return for each round of the finished trials whether it is at the target or above."""
    goal = frame[frame["status"] == "finished"].set_index("trial_id")["target"]
    accuracy = percent(_keyed(rounds)["accuracy"])
    wanted = accuracy.index.get_level_values("trial_id").to_series().map(goal)
    return accuracy.to_numpy() >= wanted.to_numpy(dtype=float)


# --- mean and deviation ---------------------------------------------------------------------------


def average_seeds(frame: pd.DataFrame) -> pd.DataFrame:
    """Return one row per (setting, scenario, label).

    A seed that failed, has not finished, or is missing though other labels have it leaves the
    accuracy empty.
    """
    keys = ["setting", "scenario"]
    grouped = frame.groupby([*keys, "label"], sort=False, observed=True)
    averages = grouped.agg(
        method=("method", "first"),
        status=("status", _worst),
        accuracy=("accuracy", lambda values: values.mean(skipna=False)),
        seeds=("seed", "nunique"),
    ).reset_index()
    wanted = averages.groupby(keys, observed=True)["seeds"].transform("max")
    return averages.assign(accuracy=averages["accuracy"].where(averages["seeds"] == wanted))


def _worst(statuses: "pd.Series[str]") -> str:
    return str(max(statuses, key=lambda status: (status != "finished", status in FAILED)))


def mean_std(frame: pd.DataFrame, over: Over = "scenarios") -> pd.DataFrame:
    """Return mean, std (ddof 1) and n of the accuracies.

    Over scenarios (seeds averaged first) and over all runs: one row per (setting, label). Over
    seeds: one row per (setting, scenario, label).
    """
    source = average_seeds(frame) if over == "scenarios" else frame
    keys = ["setting", "scenario", "label"] if over == "seeds" else ["setting", "label"]
    grouped = source.groupby(keys, sort=False, observed=True)["accuracy"]
    return grouped.agg(["mean", "std", "count"]).rename(columns={"count": "n"}).reset_index()
