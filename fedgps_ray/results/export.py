"""Frames of results to files that other programs read."""

import json
from functools import partial
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from pandas.api.types import is_numeric_dtype

from fedgps_ray.identity import Table
from fedgps_ray.results import files
from fedgps_ray.units import cell


def write_table(frame: pd.DataFrame, path: Path) -> None:
    """Write a frame as CSV or Parquet, by the ending of the path; complete or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    files.write(path, partial(_as_parquet if path.suffix == ".parquet" else _as_csv, frame))


def _as_parquet(frame: pd.DataFrame, path: Path) -> None:
    table = pa.Table.from_pandas(frame, preserve_index=False)
    pq.write_table(table.replace_schema_metadata(None), path)  # pandas cannot read its own


def _as_csv(frame: pd.DataFrame, path: Path) -> None:
    told = frame.assign(**_maps_as_json(frame))
    texts = {str(name): told[name].map(cell) for name in told if not is_numeric_dtype(told[name])}
    told.assign(**texts).rename(columns=cell).to_csv(path, index=False)


def _maps_as_json(frame: pd.DataFrame) -> Table:
    """Return the columns that hold a map in each row, as JSON: a method's own figures."""
    return {
        str(name): [json.dumps(dict(p)) if isinstance(p, list) else None for p in frame[name]]
        for name, kind in frame.dtypes.items()
        if isinstance(kind, pd.ArrowDtype) and pa.types.is_map(kind.pyarrow_dtype)
    }
