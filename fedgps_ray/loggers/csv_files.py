"""One CSV file per trial; it only grows, so that it can be followed while the trial runs."""

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path

from fedgps_ray.loggers.base import FIGURES, Curve
from fedgps_ray.results import files
from fedgps_ray.results.read import Row
from fedgps_ray.units import cell


class CsvFiles:
    """Writes logs/csv/NAME.csv."""

    def __init__(self, root: Path) -> None:
        self.folder = root / "logs" / "csv"
        self.folder.mkdir(parents=True, exist_ok=True)

    def _path(self, curve: Curve) -> Path:
        return self.folder / f"{curve.name}.csv"

    def last_round(self, curve: Curve) -> int:
        """Return the round of the last whole line; a line that was cut short is removed."""
        path = self._path(curve)
        if not path.exists():
            return 0
        content = files.read_bytes(path)
        whole = content[: content.rfind(b"\n") + 1]
        if whole != content:
            path.write_bytes(whole)
        rows = list(csv.DictReader(io.StringIO(whole.decode())))
        return int(rows[-1]["round"]) if rows else 0

    def write(self, curve: Curve, rows: Sequence[Row]) -> None:
        """Append one line per round, with the settings of the trial in each."""
        path = self._path(curve)
        is_new = not path.exists() or path.stat().st_size == 0
        with path.open("a", newline="") as file:
            lines = csv.writer(file, lineterminator="\n")
            if is_new:
                lines.writerow([*map(cell, curve.columns), "round", *FIGURES, "metrics"])
            for row in rows:
                own = json.dumps(dict(row.get("metrics") or {}))
                values = [row.get(name) for name in FIGURES]
                settings = map(cell, curve.columns.values())
                lines.writerow([*settings, row["round"], *values, own])

    def end(self, curve: Curve) -> None:
        """Do nothing: the file is complete."""

    def close(self) -> None:
        """Do nothing: no file is kept open."""
