"""The tables of the page, each a function from trials to a frame of texts and numbers."""

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd

from fedgps_ray.analysis import published
from fedgps_ray.analysis.statistics import Ranking, holm, ranking
from fedgps_ray.errors import UserError
from fedgps_ray.experiments.evidence.effects import DRAW, Difference, Question, difference, paired

TIMES = ("a third", "published rate", "three times")
LAST = 10  # tests or rounds that a mean at the end is over
TABLE = "CIFAR10_10_5_1"
REFERENCES = ("FedAvg", "VHL")


# --- accuracy -------------------------------------------------------------------------------------


def accuracies(done: pd.DataFrame) -> pd.DataFrame:
    """Return both measures of each variant and its difference to FedAvg and VHL, best first."""
    order = list(done.groupby("variant")["score"].mean().sort_values(ascending=False).index)
    groups = {name: done[done["variant"] == name] for name in order}
    found = pd.DataFrame(
        {
            "method": order,
            "draws": [len(groups[name]) for name in order],
            "last ten tests": [mean_text(groups[name]["score"]) for name in order],
            "best test": [mean_text(groups[name]["best"]) for name in order],
        }
    )
    for reference in REFERENCES:
        if reference in groups:
            found[f"minus {reference}"] = _differences(done, order, reference)
    return found


def mean_text(values: "pd.Series[float]") -> str:
    """Return a mean with its interval, if there are two values or more."""
    if len(values) < 2:
        return f"{values.mean():.1f}"
    found = difference(np.asarray(values, dtype=np.float64))
    return f"{found.mean:.1f} ({found.low:.1f} to {found.high:.1f})"


def _differences(done: pd.DataFrame, order: Sequence[str], reference: str) -> list[str]:
    """Return the paired difference of each variant, p-values corrected for all of them."""
    found = {name: against(done, name, reference) for name in order if name != reference}
    known = {name: each for name, each in found.items() if each is not None}
    corrected = holm(np.array([each.p for each in known.values()]))
    p_values = dict(zip(known, corrected.tolist(), strict=True))
    return [
        f"{difference_text(known[name])}, p {p_text(p_values[name])}" if name in known else "-"
        for name in order
    ]


def against(done: pd.DataFrame, first: str, second: str) -> Difference | None:
    """Return the paired difference, or None with fewer than two draws in common."""
    try:
        return paired(done, first, second)
    except UserError:
        return None


def difference_text(found: Difference) -> str:
    """Return a difference in points with its interval."""
    return f"{found.mean:+.1f} ({found.low:+.1f} to {found.high:+.1f})"


def p_text(value: float) -> str:
    """Return a p-value with as many digits as one can use."""
    return "< 0.001" if value < 0.001 else f"{value:.3f}" if value < 0.1 else f"{value:.2f}"


def over_time(
    done: pd.DataFrame, rounds: pd.DataFrame, questions: Sequence[Question]
) -> pd.DataFrame:
    """Return paired differences of means over ten rounds, at four times of the training."""
    rows: list[dict[str, str]] = [
        {"difference": f"{question.first} minus {question.second}"} for question in questions
    ]
    for last in (20, 40, 60, 80):
        window = rounds[rounds["round"].between(last - LAST + 1, last)]
        means = 100 * window.groupby("trial_id")["accuracy"].mean()
        then = done.assign(score=done["trial_id"].map(means))
        for row, question in zip(rows, questions, strict=True):
            found = against(then, question.first, question.second)
            row[f"rounds {last - LAST + 1} to {last}"] = (
                "-" if found is None else difference_text(found)
            )
    return pd.DataFrame(rows)


# --- cost, drift and the worst client -------------------------------------------------------------


def behaviour(done: pd.DataFrame, rounds: pd.DataFrame) -> pd.DataFrame:
    """Return bytes, the worst client, and how unlike updates are; means at the end of training."""
    ordered = rounds.sort_values(["trial_id", "round"])
    sent = (ordered["bytes_up"] + ordered["bytes_down"]).groupby(ordered["trial_id"]).sum() / 1e6
    columns = ["worst_client_accuracy", "update_diversity", "update_norm"]
    tail = ordered.groupby("trial_id").tail(LAST).groupby("trial_id")[columns].mean()
    table = done.set_index("trial_id")[["variant", "score"]].join(tail).join(sent.rename("sent"))
    means = table.groupby("variant").mean().sort_values("score", ascending=False)
    return pd.DataFrame(
        {
            "method": list(means.index),
            "MB exchanged": [f"{value:.0f}" for value in means["sent"]],
            "worst client (%)": [_number(100 * value) for value in means[columns[0]]],
            "update diversity": [_number(value) for value in means["update_diversity"]],
            "norm of an update": [_number(value, 2) for value in means["update_norm"]],
        }
    )


def _number(value: float, digits: int = 1) -> str:
    return "-" if math.isnan(value) else f"{value:.{digits}f}"


# --- ranks ----------------------------------------------------------------------------------------


def ranks(done: pd.DataFrame, by: Sequence[str] = DRAW) -> Ranking:
    """Return the ranking of the methods as published, over the draws that all of them have."""
    plain = done[~done["variant"].str.contains(",")]
    table = plain.pivot_table(index=list(by), columns="variant", values="score")
    return ranking(table.dropna())


# --- the paper ------------------------------------------------------------------------------------


def printed(table: str = TABLE) -> "pd.Series[float]":
    """Return the mean of the printed accuracies of each method in one table of the paper."""
    runs = published.runs(table)
    means: pd.Series[float] = runs.groupby("label")["accuracy"].mean()
    return means.sort_values(ascending=False)


def beside(done: pd.DataFrame, table: str = TABLE) -> pd.DataFrame:
    """Return the printed means and our best tests, in the order of the paper."""
    means, paper = done.groupby("variant")["best"].mean(), printed(table)
    both = pd.DataFrame({"paper": paper, "here": means}).dropna()
    both = both.sort_values("paper", ascending=False)
    return pd.DataFrame(
        {
            "method": list(both.index),
            "paper": [f"{value:.1f}" for value in both["paper"]],
            "here": [f"{value:.1f}" for value in both["here"]],
            "minus FedAvg, paper": [f"{value:+.1f}" for value in _over(both["paper"])],
            "minus FedAvg, here": [f"{value:+.1f}" for value in _over(both["here"])],
        }
    )


def _over(values: "pd.Series[float]") -> list[float]:
    return list(values - values["FedAvg"]) if "FedAvg" in values else [math.nan] * len(values)


def correlation(done: pd.DataFrame, table: str = TABLE) -> tuple[float, int]:
    """Return Spearman's correlation of the printed means with ours, and of how many methods."""
    both = pd.DataFrame(
        {"paper": printed(table), "here": done.groupby("variant")["best"].mean()}
    ).dropna()
    return float(both["paper"].corr(both["here"], method="spearman")), len(both)


def orderings(done: pd.DataFrame, table: str = TABLE) -> pd.DataFrame:
    """Return the pairs of the paper: reproduced, reversed, or not told apart by an interval."""
    means = printed(table)
    names = [str(name) for name in means.index if name in set(done["variant"])]
    pairs = [(better, worse) for place, better in enumerate(names) for worse in names[place + 1 :]]
    rows = [
        {
            "paper's order": f"{better} over {worse}",
            "paper": f"{means[better] - means[worse]:+.1f}",
            "here": difference_text(found),
            "draws": found.draws,
            "here it is": _verdict(found),
        }
        for better, worse in pairs
        if (found := against(done, better, worse)) is not None
    ]
    return pd.DataFrame(rows)


def _verdict(found: Difference) -> str:
    if found.low > 0:
        return "reproduced"
    return "reversed" if found.high < 0 else "not told apart"


# --- look-ahead and learning rates ----------------------------------------------------------------


def metric(rounds: pd.DataFrame, name: str) -> "pd.Series[float]":
    """Return the mean of a method's metric over the rounds of each trial that have it."""
    values = [dict(each).get(name) if each is not None else None for each in _maps(rounds)]
    frame = pd.DataFrame({"trial_id": list(rounds["trial_id"]), "value": values}).dropna()
    means: pd.Series[float] = frame.astype({"value": float}).groupby("trial_id")["value"].mean()
    return means


def _maps(rounds: pd.DataFrame) -> list[list[tuple[str, float]] | None]:
    return [each if isinstance(each, list) else None for each in rounds["metrics"]]


def lengths(done: pd.DataFrame, rounds: pd.DataFrame) -> pd.DataFrame:
    """Return how far each variant of FedGPS and FedLESAM looked ahead, and what it reached.

    Trials of different lengths are compared over the rounds that all of them have.
    """
    chosen = done[done["method"].isin(["fedgps", "fedgps_cf", "fedlesam"])].set_index("trial_id")
    last = int(chosen["rounds"].min())
    rounds = rounds[rounds["round"] <= last]
    weights, update = (metric(rounds, f"ahead_to_{name}") for name in ("weights", "update"))
    tests = 100 * rounds.set_index("trial_id")["accuracy"]
    end = tests[(rounds["round"] > last - LAST).to_numpy()].groupby("trial_id").mean()
    best = tests.groupby("trial_id").max()
    chosen = chosen.assign(weights=weights, update=update, score=end, best=best)
    means = chosen.groupby("variant")[["weights", "update", "score", "best"]].mean()
    means = means.sort_values(["weights", "score"], na_position="first")
    return pd.DataFrame(
        {
            "method": list(means.index),
            "step / weights (%)": [_number(100 * value, 2) for value in means["weights"]],
            "step / update (%)": [_number(100 * value) for value in means["update"]],
            f"rounds {max(1, last - LAST + 1)} to {last}": [_number(v) for v in means["score"]],
            f"best of {last}": [_number(v) for v in means["best"]],
        }
    )


def rates(tuning: pd.DataFrame, used: pd.DataFrame, margin: float) -> pd.DataFrame:
    """Return the last ten tests at a third, once and three times the rate, and what was chosen."""
    rows = []
    for name, part in tuning.groupby("variant"):
        scores = part.sort_values("lr").set_index("lr")["score"]
        row: dict[str, object] = {"method": name}
        row |= dict(zip(TIMES, _scores(scores), strict=False))
        row["by the rule"] = _chosen(scores, margin)
        row["in the sweeps"] = _listed(used.loc[used["variant"] == name, "lr"])
        rows.append(row)
    return pd.DataFrame(rows).fillna("-")


def _scores(scores: "pd.Series[float]") -> list[str]:
    return [f"{value:.1f} ({rate:g})" for rate, value in scores.items()]


def _chosen(scores: "pd.Series[float]", margin: float) -> str:
    """Return the published rate, unless another is better by more than the margin."""
    if len(scores) < len(TIMES):
        return "-"
    values, rates_ = scores.to_list(), scores.index.to_list()
    best = values.index(max(values))
    return f"{rates_[best] if values[best] - values[1] > margin else rates_[1]:g}"


def _listed(rates_: "pd.Series[float]") -> str:
    return ", ".join(f"{rate:g}" for rate in sorted(set(rates_))) or "-"
