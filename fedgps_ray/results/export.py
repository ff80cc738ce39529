"""Frames of results to files that other programs read."""

import json
from functools import partial
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from fedgps_ray.identity import Table
from fedgps_ray.results import files


def write_table(frame: pd.DataFrame, path: Path) -> None:
    """Write a frame as CSV or Parquet, by the ending of the path; complete or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    files.write(path, partial(_as_parquet if path.suffix == ".parquet" else _as_csv, frame))


def _as_parquet(frame: pd.DataFrame, path: Path) -> None:
    table = pa.Table.from_pandas(frame, preserve_index=False)
    pq.write_table(table.replace_schema_metadata(None), path)  # pandas cannot read its own


def _as_csv(frame: pd.DataFrame, path: Path) -> None:
    frame.assign(**_maps_as_json(frame)).to_csv(path, index=False)


def _maps_as_json(frame: pd.DataFrame) -> Table:
    """Return the columns that hold a map in each row, as JSON: a method's own figures."""
    return {
        str(name): [json.dumps(dict(p)) if isinstance(p, list) else None for p in frame[name]]
        for name, kind in frame.dtypes.items()
        if isinstance(kind, pd.ArrowDtype) and pa.types.is_map(kind.pyarrow_dtype)
    }
