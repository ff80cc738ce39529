"""All that a report knows about some results folders."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd

from fedgps_ray.analysis import figures, load, metrics
from fedgps_ray.results.folders import PLAN, has_lost_plan
from fedgps_ray.results.read import OPEN_PLAN, Row, has_open_plan, read_experiment

FIGURES = (  # all that the tables and figures of a report need of a round
    *("round", "accuracy", "class_accuracy", "divergence", "update_diversity"),
    *("worst_client_accuracy", "p10_client_accuracy", "median_client_accuracy"),
    *("bytes_up", "bytes_down"),
)


@dataclass(frozen=True)
class Frames:
    """Rows per trial, round, client and class; and what was planned."""

    runs: pd.DataFrame
    rounds: pd.DataFrame
    partitions: pd.DataFrame  # of one trial in each setting and scenario
    planned: pd.DataFrame  # the cells of experiment.json and its file, if there is one
    infos: Mapping[str, Row]  # trial.json of each run, by its folder
    problems: tuple[str, ...]  # files that could not be read

    def of(self, runs: pd.DataFrame) -> "Frames":
        """Return the part that belongs to these runs."""
        names = set(runs["trial_id"])
        rounds, partitions = (
            frame[frame["trial_id"].isin(names)] for frame in (self.rounds, self.partitions)
        )
        return replace(self, runs=runs, rounds=rounds, partitions=partitions)

    def settings(self) -> Iterator[tuple[str, "Frames"]]:
        """Yield each setting in words with its part, in the order of their values."""
        for setting, runs in metrics.settings(self.runs.sort_values(metrics.SETTING)):
            yield setting, self.of(runs)


def read(folders: Sequence[Path], tell: load.Tell = load.silent) -> Frames:
    """Read all trials of some folders."""
    source = load.Source(folders, tell)
    trials, rounds = source.trials(), source.rounds(FIGURES)
    runs = metrics.runs(trials, rounds)
    partitions = source.partitions(_examples(runs))
    unread = [text for frame in (trials, rounds, partitions) for text in frame.attrs["problems"]]
    problems = dict.fromkeys([*unread, *_doubtful_plans(folders)])
    runs.attrs["problems"] = list(problems)  # whoever shows the runs tells all that was left out
    return Frames(
        runs,
        figures.labelled(rounds, runs),
        partitions,
        pd.DataFrame(_planned(folders)),
        source.infos(),
        tuple(problems),
    )


def _examples(runs: pd.DataFrame) -> set[str]:
    """Return a trial of each setting and scenario: all others have the same partition."""
    has_one = runs[[(Path(folder) / "partition.parquet").exists() for folder in runs["folder"]]]
    return set(has_one.drop_duplicates(["setting", "scenario"])["trial_id"])


def _doubtful_plans(folders: Sequence[Path]) -> Iterator[str]:
    """Say which sweeps do not tell any more, or not for certain, what they were to run."""
    for place in (place for folder in folders for place in (folder, *sorted(folder.glob("*/")))):
        if has_lost_plan(place):
            yield f"{place / PLAN} is gone: planned trials that have not begun are not known"
        elif has_open_plan(place):
            yield f"{place}/{OPEN_PLAN}"


def _planned(folders: Sequence[Path]) -> list[Row]:
    """Return the cells that sweeps were to run, each with its folder and experiment file."""
    paths = [
        path
        for folder in folders
        for place in (PLAN, f"*/{PLAN}")
        for path in sorted(folder.glob(place))
    ]
    return [cell for path in paths for cell in _cells(path.parent)]


def _cells(folder: Path) -> list[Row]:
    told = read_experiment(folder)
    known = {"folder": str(folder), "file": told.get("file")}
    return [{**cell, **known} for cell in told["cells"]]
