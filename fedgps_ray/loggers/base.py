"""What a logger is, and the trial it is told about."""

import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from fedgps_ray.errors import UserError
from fedgps_ray.identity import Settings, Table
from fedgps_ray.results import schema
from fedgps_ray.results.read import Row, columns

FIGURES = (  # the columns of a round that are worth a curve
    "accuracy",
    "loss",
    "train_loss",
    "divergence",
    "bytes_up",
    "bytes_down",
    "train_seconds",
    "evaluate_seconds",
)


class Curve(NamedTuple):
    """A trial as loggers see it."""

    trial_id: str
    columns: Mapping[str, Any]  # the settings that identify it, as in its rows
    settings: Mapping[str, Any]  # all of them, by dotted names
    status: str
    summary: Mapping[str, Any]

    @property
    def name(self) -> str:
        """Return a name for people that is also fit for a file."""
        known = self.columns
        seed = f"scenario{known['scenario']}-seed{known['seed']}"
        return f"{_plain(known['method'])}-{_plain(known['dataset'])}-{seed}-{self.trial_id}"

    @property
    def tags(self) -> list[str]:
        """Return what curves are grouped by."""
        return [str(self.columns[key]) for key in ("method", "dataset", "model", "partition")]

    @property
    def has_ended(self) -> bool:
        """Say whether no more rounds will come."""
        return self.status in schema.DONE


class Logger(Protocol):
    """Writes the rounds of trials somewhere; knows what it has written, also after a crash."""

    def last_round(self, curve: Curve) -> int:
        """Return the last round of a trial that is written, 0 if there is none."""
        ...

    def write(self, curve: Curve, rows: Sequence[Row]) -> None:
        """Write rounds that follow the last one."""
        ...

    def end(self, curve: Curve) -> None:
        """Note that a trial has ended."""
        ...

    def close(self) -> None:
        """Write all that is still in memory."""
        ...


def curve_of(folder: Path, info: Row) -> Curve:
    """Return what loggers need to know about a trial."""
    known, summary = columns(folder, info), info.get("summary", {})
    return Curve(known["trial_id"], known, _flat(info["spec"]), info["status"], summary)


def figures(row: Row) -> dict[str, float]:
    """Return the numbers of a round, with what only this method reports."""
    own = {f"metrics/{name}": value for name, value in dict(row.get("metrics") or {}).items()}
    named = {name: row.get(name) for name in FIGURES} | own
    return {name: float(value) for name, value in named.items() if value is not None}


def package(name: str, extra: str) -> Any:
    """Import a package that only one logger needs."""
    try:
        return importlib.import_module(name)
    except ImportError as problem:
        raise UserError(
            f"log {extra}: {problem}; install it with: pip install 'fedgps-ray[{extra}]'"
        ) from None


def _flat(settings: Settings, prefix: str = "") -> Table:
    flat: dict[str, Any] = {}
    for key, value in settings.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def _plain(name: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "-_." else "_" for letter in name)
