"""Runs of Weights & Biases: the trial's id is the run's id, so a resumed trial goes on there."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedgps_ray.loggers.base import Curve, figures, package
from fedgps_ray.results import files
from fedgps_ray.results.read import Row


class WeightsAndBiases:
    """Logs to wandb; which rounds it was given is kept in logs/wandb.json.

    wandb cannot be asked when it is offline. The file is written before the rounds are logged:
    after a crash in between some may be missing there, but none is there twice.
    """

    def __init__(self, root: Path) -> None:
        self.root = root / "logs"
        self.wandb = package("wandb", "wandb")
        self.group = root.resolve().name
        self.path = self.root / "wandb.json"
        self.known: dict[str, int] = _read(self.path)
        self.open: dict[str, Any] = {}

    def last_round(self, curve: Curve) -> int:
        """Return the last round that wandb was given."""
        return self.known.get(curve.trial_id, 0)

    def write(self, curve: Curve, rows: Sequence[Row]) -> None:
        """Log rounds as steps."""
        if curve.trial_id not in self.open:
            self.open[curve.trial_id] = self._opened(curve)
        self.known[curve.trial_id] = rows[-1]["round"]
        files.write_json(self.path, self.known)
        for row in rows:
            self.open[curve.trial_id].log(figures(row), step=row["round"])

    def _opened(self, curve: Curve) -> Any:
        self.root.mkdir(parents=True, exist_ok=True)
        return self.wandb.init(
            project=os.environ.get("WANDB_PROJECT", "fedgps-ray"),
            id=curve.trial_id,
            name=curve.name,
            group=self.group,
            tags=curve.tags,
            config=dict(curve.settings),
            dir=str(self.root),
            resume="allow",
            reinit="create_new",  # several trials at the same time
            settings=self.wandb.Settings(silent=True, console="off"),
        )

    def end(self, curve: Curve) -> None:
        """Add the summary and finish the run."""
        if (run := self.open.pop(curve.trial_id, None)) is not None:
            run.summary.update({**curve.summary, "status": curve.status})
            run.finish()

    def close(self) -> None:
        """Finish all runs; those of trials that have not ended are resumed later."""
        for run in self.open.values():
            run.finish()
        self.open.clear()


def _read(path: Path) -> dict[str, int]:
    try:
        known: dict[str, int] = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    return known
