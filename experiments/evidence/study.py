"""The published results of the study as frames: one row per trial, one row per round."""

import json
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from fedgps_ray.analysis import load
from fedgps_ray.analysis.names import published_name
from fedgps_ray.errors import UserError
from fedgps_ray.experiments.evidence.collect import published
from fedgps_ray.experiments.evidence.sweeps import SWEEPS, place
from fedgps_ray.results import files

WITH_NOISE = ("vhl", "fedgps", "fedgps_cf")
WORDS: dict[tuple[str, object], str] = {
    ("align_labels", "matched"): "matched",
    ("rho", 0.0): "no path",
    ("weighting", "uniform"): "uniform",
    ("weighting", "samples"): "by samples",
    ("compare", "head_updates"): "",  # the default of NUCFL
    ("perturb_norm", "sum"): "sum of norms",
    ("perturb_norm", "global"): "global norm",
}
THEORY = "theory.json"
MATCHED, NO_PATH = "FedGPS, matched", "FedGPS, matched, no path"
RELATIVE = "FedGPS, matched, rho_relative 0.0015"
UNIFORM = "FedAvg, uniform"


class Study(NamedTuple):
    """Trials with sweep, variant, score and best (in points); their rounds; measured theory."""

    trials: pd.DataFrame
    rounds: pd.DataFrame
    theory: Mapping[str, Any]

    def of(self, *sweeps: str) -> pd.DataFrame:
        """Return the trials of some sweeps."""
        return self.trials[self.trials["sweep"].isin(sweeps)]

    def rounds_of(self, trials: pd.DataFrame) -> pd.DataFrame:
        """Return the rounds of some trials."""
        return self.rounds[self.rounds["trial_id"].isin(trials["trial_id"])]

    def counts(self) -> dict[str, int]:
        """Return how many trials of each sweep there are."""
        found = self.trials["sweep"].value_counts()
        return {name: int(found.get(name, 0)) for name in SWEEPS}

    def is_complete(self, sweep: str) -> bool:
        """Say whether all trials of a sweep have finished."""
        return self.counts()[sweep] == SWEEPS[sweep].trials


def read(results: Path) -> Study:
    """Read what was collected; anything damaged is an error."""
    sweeps = published(results)
    if not sweeps:
        raise UserError(f"no results in {results}: run the sweeps of README.md, then collect.py")
    folders = [place(results, name) for name in dict.fromkeys(sweeps.values())]
    trials, rounds = load.trials(*folders), load.rounds(*folders)
    if problems := [*trials.attrs["problems"], *rounds.attrs["problems"]]:
        raise UserError("\n".join(problems))
    trials = scored(trials.assign(sweep=trials["trial_id"].map(sweeps)))
    known = trials.set_index("trial_id")
    names = rounds["trial_id"].astype(str)
    rounds = rounds.assign(trial_id=names, label=names.map(known["variant"]))
    path = results / THEORY
    return Study(trials, rounds, files.read_json(path) if path.exists() else {})


def scored(trials: pd.DataFrame) -> pd.DataFrame:
    """Return the trials, their variant in words, and their score in points.

    A trial that diverged counts with the tests it had, and with 0 if it had none.
    """
    done = trials[trials["status"].isin(["finished", "diverged"])].copy()
    done["settings"] = done["variant"]
    done["variant"] = [variant(row) for row in done.to_dict("records")]
    done["score"] = 100 * done["last_ten_accuracy"].astype(float).fillna(0.0)
    done["best"] = 100 * done["best_accuracy"].astype(float).fillna(0.0)
    return done


def variant(row: Mapping[Hashable, Any]) -> str:
    """Return the method and all in which a trial departs from the study's setting."""
    settings, options = json.loads(row["settings"]), json.loads(row["method_options"])
    parts = [published_name(row["method"]), *_options(options)]
    noise = settings.get("surrogate.batch_size", row["batch_size"])
    if row["method"] in WITH_NOISE and noise != row["batch_size"]:
        parts.append(f"noise {noise}")
    if settings.get("eval_logits", "all") != "all":
        parts.append(f"eval_logits {settings['eval_logits']}")
    return ", ".join(parts)


def _options(options: Mapping[str, Any]) -> list[str]:
    if options.get("proto_source") == "final_pass":
        return ["paper preset"]
    words = [WORDS.get((key, value), f"{key} {_short(value)}") for key, value in options.items()]
    return [word for word in words if word]


def _short(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
