"""A results folder to tidy frames."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq

from fedgps_ray.errors import UserError


def trials(folder: Path) -> pd.DataFrame:
    """Return one row a trial: its id, status, settings and summary."""
    paths = sorted(folder.glob("trials/*/trial.json")) or sorted(folder.glob("trial.json"))
    if not paths:
        raise UserError(f"no trials in {folder}: expected trials/*/trial.json there")
    return pd.DataFrame([_trial(json.loads(path.read_text())) for path in paths])


def _trial(info: dict[str, Any]) -> dict[str, Any]:
    spec = info["spec"]
    return {
        "trial_id": info["trial_id"],
        "status": info["status"],
        "method": spec["method"]["name"],
        "dataset": spec["dataset"].get("file") or spec["dataset"]["name"],
        **{key: spec[key] for key in ("model", "clients", "scenario", "seed", "rounds")},
        **info.get("summary", {}),
    }


def rounds(folder: Path) -> pd.DataFrame:
    """Return one row a (trial, round), with the settings in every row."""
    paths = sorted(map(str, folder.glob("trials/*/rounds.parquet")))
    frame: pd.DataFrame = pq.read_table(paths).to_pandas()
    return frame
