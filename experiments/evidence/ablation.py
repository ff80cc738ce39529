"""The ablation: which trials belong to the design, and the main effect of each switch."""

import json

import pandas as pd

from fedgps_ray.errors import UserError
from fedgps_ray.experiments.evidence.effects import levels, main_effects

SWITCHES: dict[str, tuple[object, object]] = {
    "align_labels": ("distinct", "matched"),
    "w_align": (1.0, 0.1),
    "noise images per step": (32, 64),
    "look-ahead": ("rho 0.5", "rho_relative 0.0015"),
    "weighting": ("uniform", "samples"),
    "eval_logits": ("all", "real"),
    "bn_statistics": ("joint", "real"),
}
GENERATORS = {"weighting": (0, 1, 2), "eval_logits": (1, 2, 3), "bn_statistics": (0, 2, 3)}


def switches(done: pd.DataFrame) -> pd.DataFrame:
    """Return the seven switches of the ablation for each trial."""
    return pd.DataFrame([_switches(text) for text in done["settings"]], index=done.index)


def _switches(text: str) -> dict[str, object]:
    settings = json.loads(text)
    share = settings.get("method.rho_relative")
    ahead = f"rho {settings.get('method.rho')}" if share is None else f"rho_relative {share}"
    named = {name: settings.get(f"method.{name}") for name in SWITCHES}
    return {
        **named,
        "noise images per step": settings.get("surrogate.batch_size"),
        "look-ahead": ahead,
        "eval_logits": settings.get("eval_logits"),
    }


def designed(values: pd.DataFrame) -> pd.DataFrame:
    """Return the coded levels of the trials that belong to the fraction of the factorial."""
    known = pd.DataFrame({name: values[name].isin(pair) for name, pair in SWITCHES.items()})
    coded = levels(values[known.all(axis=1)], SWITCHES)
    kept = pd.Series(True, index=coded.index)
    for name, places in GENERATORS.items():
        kept &= coded[name] == coded.iloc[:, list(places)].prod(axis=1)
    return coded[kept]


def effects(done: pd.DataFrame) -> pd.DataFrame:
    """Return the main effects of the seven switches, with the partition as block."""
    if done.empty:
        raise UserError("no trial of the ablation has finished")
    coded = designed(switches(done))
    return main_effects(coded, done.loc[coded.index, "score"], done.loc[coded.index, "scenario"])
