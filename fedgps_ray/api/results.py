"""Results as frames, of one trial or of a folder of them; reading them needs no PyTorch."""

import html
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from fedgps_ray.analysis import load as frames
from fedgps_ray.analysis.report import write
from fedgps_ray.errors import UserError, unknown
from fedgps_ray.identity import Table
from fedgps_ray.loading import load as load_code
from fedgps_ray.results.folders import check_folder, has_results, no_results
from fedgps_ray.results.read import read_trial
from fedgps_ray.units import percent

if TYPE_CHECKING:
    from torch import nn

__all__ = ["Result", "Results", "UserError", "load", "report"]

BRIEF = ("method", "dataset", "scenario", "seed", "status", "rounds_done", "best_accuracy")


class Result:
    """One trial: its curve, its clients, its final model and where they are."""

    def __init__(self, folder: Path, data_dir: Path | None = None) -> None:
        """Read a trial; data_dir: where data sets are, which its model needs to be built."""
        self.folder, self.data_dir = folder, data_dir
        self.info: dict[str, Any] = read_trial(folder)

    @property
    def trial_id(self) -> str:
        """Return the hash of the settings, which is the name of the folder."""
        return self.folder.resolve().name

    @property
    def status(self) -> str:
        """Return finished, diverged, or how far it came."""
        return str(self.info["status"])

    @property
    def settings(self) -> Table:
        """Return all settings of the trial as nested tables."""
        return dict(self.info["spec"])

    @property
    def summary(self) -> Table:
        """Return the figures that sum up the trial: accuracies, bytes, seconds, the hash."""
        return {**frames.NOTHING, **self.info.get("summary", {})}

    @property
    def best_accuracy(self) -> float | None:
        """Return the highest accuracy on the test set, 0 to 1; None before the first test."""
        best: float | None = self.summary["best_accuracy"]
        return best

    @cached_property
    def rounds(self) -> pd.DataFrame:
        """Return one row per round: the accuracy curve, losses, bytes, seconds."""
        return frames.rounds(self.folder)

    @cached_property
    def clients(self) -> pd.DataFrame:
        """Return one row per round and client."""
        return frames.clients(self.folder)

    @cached_property
    def partition(self) -> pd.DataFrame:
        """Return one row per client and class: how many samples there are."""
        return frames.partitions(self.folder)

    @cached_property
    def model(self) -> "nn.Module":
        """Return the last global model, in evaluation mode, on the CPU."""
        build = load_code("fedgps_ray.api.trials:model_of")
        model: nn.Module = build(self.folder, self.info, self.data_dir)
        return model

    def __repr__(self) -> str:
        done, planned = self.summary["rounds_done"], self.settings["rounds"]
        scores = f"best accuracy {percent(self.best_accuracy)}"
        name = self.settings["method"]["name"]
        return f"<Result {name}: {self.status}, {done}/{planned} rounds, {scores}, {self.folder}>"

    def _repr_html_(self) -> str:
        """Return what a notebook shows: a line about the trial and its last rounds."""
        shown = self.rounds[["round", "accuracy", "loss", "train_loss"]].tail()
        return f"<p>{html.escape(repr(self)[1:-1])}</p>{shown.to_html(index=False)}"


class Results:
    """All trials of a folder."""

    def __init__(self, folder: Path, data_dir: Path | None = None) -> None:
        check_folder(folder)
        if not has_results(folder):
            raise no_results(folder)
        self.folder, self.data_dir = folder, data_dir

    @cached_property
    def trials(self) -> pd.DataFrame:
        """Return one row per trial: settings, status and summary."""
        return frames.trials(self.folder)

    @cached_property
    def rounds(self) -> pd.DataFrame:
        """Return one row per trial and round, with the settings in each."""
        return frames.rounds(self.folder)

    @cached_property
    def clients(self) -> pd.DataFrame:
        """Return one row per trial, round and client."""
        return frames.clients(self.folder)

    @cached_property
    def partitions(self) -> pd.DataFrame:
        """Return one row per trial, client and class."""
        return frames.partitions(self.folder)

    def __len__(self) -> int:
        return len(self.trials)

    def __iter__(self) -> Iterator[Result]:
        return (Result(Path(folder), self.data_dir) for folder in self.trials["folder"])

    def __getitem__(self, trial_id: str) -> Result:
        """Return the trial with an id."""
        known = {str(row.trial_id): row.folder for row in self.trials.itertuples()}
        if trial_id not in known:
            raise unknown("trial", trial_id, known)
        return Result(Path(str(known[trial_id])), self.data_dir)

    def __repr__(self) -> str:
        counts = self.trials["status"].value_counts()
        told = ", ".join(f"{number} {status}" for status, number in counts.items())
        return f"<Results of {len(self)} trials: {told}, {self.folder}>"

    def _repr_html_(self) -> str:
        """Return what a notebook shows: one line per trial."""
        return self.trials[list(BRIEF)].to_html(index=False)


def load(folder: str | Path, data_dir: str | Path | None = None) -> Results:
    """Return the results in a folder: of a sweep, of single runs, or of one trial.

    data_dir: where data sets are, if the models of trials are wanted; a folder does not decide it.
    """
    return Results(Path(folder), None if data_dir is None else Path(data_dir))


def report(
    *folders: str | Path, out: str | Path | None = None, against_paper: bool = False
) -> Path:
    """Write tables, statistics and figures on results folders; return the path of report.html."""
    if not folders:
        raise UserError("name a results folder, such as runs/default")
    known = [load(folder).folder for folder in folders]
    target = known[0] / "report" if out is None else Path(out)
    return write(known, target, against=against_paper)
