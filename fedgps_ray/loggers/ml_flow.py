"""Runs of MLflow: found again by their tag trial_id, so a resumed trial goes on there."""

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedgps_ray.loggers.base import Curve, figures, package
from fedgps_ray.results.read import Row

TAG = "fedgps_ray.trial_id"
ROUND = "round"  # logged before the other figures of a round: what has begun is not repeated
BATCH = 100  # parameters that MLflow takes at a time


class MlFlow:
    """Logs to where MLFLOW_TRACKING_URI says, or else to the database logs/mlflow.db."""

    def __init__(self, root: Path) -> None:
        self.entities = package("mlflow.entities", "mlflow")
        (root / "logs").mkdir(parents=True, exist_ok=True)
        own = f"sqlite:///{(root / 'logs' / 'mlflow.db').resolve()}"
        uri = os.environ.get("MLFLOW_TRACKING_URI") or own
        self.client = package("mlflow.tracking", "mlflow").MlflowClient(tracking_uri=uri)
        self.experiment = self._experiment(root.resolve().name)
        self.runs: dict[str, str] = {}

    def _experiment(self, name: str) -> str:
        known = self.client.get_experiment_by_name(name)
        experiment_id: str = (
            self.client.create_experiment(name) if known is None else known.experiment_id
        )
        return experiment_id

    def _run(self, curve: Curve) -> str:
        """Return the id of a trial's run, which is made if there is none."""
        if curve.trial_id not in self.runs:
            wanted = f"tags.`{TAG}` = '{curve.trial_id}'"
            runs = self.client.search_runs([self.experiment], filter_string=wanted)
            run = runs[0] if runs else self._created(curve)
            self.runs[curve.trial_id] = run.info.run_id
        return self.runs[curve.trial_id]

    def _created(self, curve: Curve) -> Any:
        names = ("method", "dataset", "model", "partition")
        tags = {TAG: curve.trial_id, **{name: str(curve.columns[name]) for name in names}}
        run = self.client.create_run(self.experiment, tags=tags, run_name=curve.name)
        settings = [self.entities.Param(key, str(value)) for key, value in curve.settings.items()]
        for first in range(0, len(settings), BATCH):
            self.client.log_batch(run.info.run_id, params=settings[first : first + BATCH])
        return run

    def last_round(self, curve: Curve) -> int:
        """Return the last round that MLflow has."""
        history = self.client.get_metric_history(self._run(curve), ROUND)
        return max((point.step for point in history), default=0)

    def write(self, curve: Curve, rows: Sequence[Row]) -> None:
        """Log the figures of each round in one call."""
        for row in rows:
            named = {ROUND: row["round"], **figures(row)}
            self.client.log_batch(self._run(curve), metrics=self._metrics(named, row["round"]))

    def _metrics(self, named: Mapping[str, float], step: int) -> list[Any]:
        now = int(time.time() * 1000)
        return [self.entities.Metric(key, value, now, step) for key, value in named.items()]

    def end(self, curve: Curve) -> None:
        """Mark the run as finished."""
        run = self._run(curve)
        self.client.set_tag(run, "status", curve.status)
        self.client.set_terminated(run)

    def close(self) -> None:
        """Do nothing: each call is written at once."""
