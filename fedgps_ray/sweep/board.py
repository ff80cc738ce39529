"""Who leads: the trials of a folder one by one, and summed up by method and setting."""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from fedgps_ray.identity import Label, Settings, Table
from fedgps_ray.results import schema
from fedgps_ray.titles import TITLES
from fedgps_ray.units import printable

ORDERS = ("mean", "best", "method", "setting")


class Record(NamedTuple):
    """A trial of a folder: what it is, and how far it has come."""

    method: str  # published name and hyperparameters
    setting: str  # other settings in which it differs from the rest, without scenario and seed
    scenario: int
    seed: int
    rounds: int
    status: str = schema.MISSING
    rounds_done: int = 0
    best: float | None = None
    last: float | None = None
    error: str = ""  # first line

    @property
    def is_waiting(self) -> bool:
        """Whether it has rounds left."""
        return self.status not in (*schema.DONE, schema.FAILED)

    @property
    def words(self) -> str:
        """The trial in words."""
        own = [self.setting] if self.setting else []
        return ", ".join([self.method, *own, f"scenario {self.scenario}", f"seed {self.seed}"])


def titled(method: str) -> str:
    """Return a method's label with its published name: FedGPS rho=0.3 for fedgps rho=0.3."""
    name, space, options = method.partition(" ")
    return TITLES.get(name, name) + space + options


def planned(settings: Settings, label: Label) -> Record:
    """Return a trial before it begins, from its settings and its label."""
    setting = ", ".join(label.parts("scenario", "seed"))
    return Record(
        titled(label.method), setting, settings["scenario"], settings["seed"], settings["rounds"]
    )


def label_of(cell: Settings) -> Label:
    """Return the label of a cell, fit for a terminal; older versions wrote it in another way."""
    label = cell.get("label")
    if not isinstance(label, dict):
        return Label(printable(cell["method"]))
    settings = {printable(key): printable(value) for key, value in label["settings"].items()}
    return Label(printable(label["method"]), settings)


def told(record: Record, info: Settings) -> Record:
    """Return a trial with what its trial.json says."""
    summary = info.get("summary", {})
    error = str(info.get("error", info.get("diverged", ""))).strip()
    return record._replace(
        status=info["status"],
        rounds_done=summary.get("rounds_done", 0),
        best=summary.get("best_accuracy"),
        last=summary.get("last_accuracy"),
        error=error.splitlines()[0] if error else "",
    )


class Standing(NamedTuple):
    """A method in a setting: its best accuracy so far, and those of its finished trials."""

    method: str
    setting: str
    planned: int
    scores: list[float]  # best accuracy of each finished trial
    best: float | None  # of all trials, also of those that run

    @property
    def mean(self) -> float | None:
        """The mean over the finished trials."""
        return sum(self.scores) / len(self.scores) if self.scores else None

    @property
    def deviation(self) -> float | None:
        """The standard deviation over the finished trials, if there are two or more."""
        if len(self.scores) < 2 or self.mean is None:
            return None
        squares = sum((score - self.mean) ** 2 for score in self.scores)
        return math.sqrt(squares / (len(self.scores) - 1))


def leaderboard(records: Iterable[Record], order: str = "mean") -> list[Standing]:
    """Return methods and settings; by mean and by best: the leader of each setting first."""
    groups: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        groups.setdefault((record.method, record.setting), []).append(record)
    standings = [_standing(*key, group) for key, group in groups.items()]
    settings = list(dict.fromkeys(standing.setting for standing in standings))
    return sorted(standings, key=lambda standing: _rank(standing, order, settings))


def _standing(method: str, setting: str, group: Sequence[Record]) -> Standing:
    scores = [r.best for r in group if r.status in schema.DONE and r.best is not None]
    bests = [record.best for record in group if record.best is not None]
    return Standing(method, setting, len(group), scores, max(bests, default=None))


def _rank(standing: Standing, order: str, settings: Sequence[str]) -> tuple[object, ...]:
    place = settings.index(standing.setting)
    if order == "method":
        return (standing.method.lower(), place)
    if order == "setting":
        return (place,)
    first, second = (standing.mean, standing.best)
    if order == "best":
        first, second = second, first
    return (place, -(first or -1.0), -(second or -1.0))


def as_json(standing: Standing) -> Table:
    """Return a standing for scripts."""
    return {
        "method": standing.method,
        "setting": standing.setting,
        "mean": standing.mean,
        "deviation": standing.deviation,
        "best": standing.best,
        "finished": len(standing.scores),
        "planned": standing.planned,
        "accuracies": standing.scores,
    }


def from_json(row: Settings) -> Standing:
    """Return the standing that was written for scripts."""
    method, setting, planned = row["method"], row["setting"], row["planned"]
    return Standing(method, setting, planned, list(row["accuracies"]), row["best"])
