"""A results folder to tidy frames."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from fedgps_ray.errors import UserError
from fedgps_ray.results.summary import summary

NOTHING = summary([])  # of a trial that has not begun


def trials(folder: Path) -> pd.DataFrame:
    """Return one row a trial: its id, status, settings and summary."""
    return pd.DataFrame([_trial(path) for path in _paths(folder, "trial.json")])


def _trial(path: Path) -> dict[str, Any]:
    try:
        info = json.loads(path.read_text())
        spec = info["spec"]
        return {
            "trial_id": info["trial_id"],
            "status": info["status"],
            "method": spec["method"]["name"],
            "dataset": spec["dataset"].get("file") or spec["dataset"]["name"],
            **{key: spec[key] for key in ("model", "clients", "scenario", "seed", "rounds")},
            **NOTHING,
            **info.get("summary", {}),
        }
    except (ValueError, TypeError, LookupError, AttributeError) as problem:
        raise UserError(f"{path} is damaged ({problem!r}); move its folder away") from None


def rounds(folder: Path) -> pd.DataFrame:
    """Return one row a (trial, round), with the settings in every row."""
    frames = [_rows(path) for path in _paths(folder, "rounds.parquet")]
    frame: pd.DataFrame = pa.concat_tables(frames).unify_dictionaries().to_pandas()
    return frame


def _rows(path: Path) -> Any:
    try:
        return pq.ParquetFile(path).read()
    except (pa.ArrowException, OSError) as problem:
        raise UserError(f"{path} is damaged ({problem}); move its folder away") from None


def _paths(folder: Path, name: str) -> list[Path]:
    """Return the files of this name of all trials, or of the one trial whose folder it is."""
    paths = sorted(folder.glob(f"trials/*/{name}")) or sorted(folder.glob(name))
    if not paths:
        raise UserError(f"no trials in {folder}: expected trials/*/{name} there")
    return paths
