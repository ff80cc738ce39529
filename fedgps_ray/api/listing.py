"""methods, models and datasets: what there is."""

import dataclasses
from typing import Any

import pandas as pd

from fedgps_ray.data.datasets import DATASETS
from fedgps_ray.identity import Table
from fedgps_ray.methods import METHODS, Method, about, title
from fedgps_ray.models import MODELS


def facts(kind: type[Method]) -> Table:
    """Return all there is to say about a method."""
    method: Any = kind
    return {
        "title": title(kind),
        "idea": (kind.__doc__ or "").split("\n")[0],
        **about(kind)._asdict(),
        "method": dataclasses.asdict(method()),
        "optimizer": dataclasses.asdict(method.optimizer),
        "presets": list(method.presets),
    }


def methods() -> pd.DataFrame:
    """Return one row per method: its published name, its idea and its options with defaults."""
    known = {name: facts(kind) for name, kind in METHODS.items()}
    frame = pd.DataFrame.from_dict(known, orient="index")[["title", "idea", "method"]]
    return frame.rename(columns={"method": "options"})


def models() -> pd.DataFrame:
    """Return one row per model."""
    told = {name: kind.explanation for name, kind in MODELS.items()}
    return pd.DataFrame({"explanation": told})


def datasets() -> pd.DataFrame:
    """Return one row per data set."""
    return pd.DataFrame({"explanation": DATASETS})
