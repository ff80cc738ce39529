"""Event files of TensorBoard: a folder per trial, and its hyperparameters for the HPARAMS tab."""

import struct
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from fedgps_ray.loggers.base import Curve, figures, package
from fedgps_ray.results import files
from fedgps_ray.results.read import Row

HEADER, CHECK = 12, 4  # bytes of a record before and after its content
FLUSH_SECONDS = 5


class TensorBoard:
    """Writes logs/tensorboard/NAME/events.*: one event per round, complete or absent."""

    def __init__(self, root: Path) -> None:
        self.folder = root / "logs" / "tensorboard"
        self.writer = package("tensorboardX.writer", "tensorboard")
        self.summary = package("tensorboardX.summary", "tensorboard")
        self.events = package("tensorboardX.proto.event_pb2", "tensorboard")
        self.open: dict[str, Any] = {}

    def last_round(self, curve: Curve) -> int:
        """Return the highest step in the trial's files."""
        return max(self._steps(self.folder / curve.name), default=0)

    def _steps(self, folder: Path) -> Iterator[int]:
        for path in folder.glob("events.*"):
            for record in _records(files.read_bytes(path)):
                yield self.events.Event.FromString(record).step

    def write(self, curve: Curve, rows: Sequence[Row]) -> None:
        """Add one event per round, which holds all its figures."""
        if curve.trial_id not in self.open:
            self.open[curve.trial_id] = self._opened(curve)
        writer = self.open[curve.trial_id]
        summaries = self.summary.Summary
        for row in rows:
            values = [
                summaries.Value(tag=name, simple_value=value)
                for name, value in figures(row).items()
            ]
            writer.add_summary(summaries(value=values), row["round"])
        writer.flush()

    def _opened(self, curve: Curve) -> Any:
        folder = self.folder / curve.name
        is_new = not folder.exists()
        ending = f".{time.time_ns()}"  # else two files of the same second would have one name
        writer = self.writer.FileWriter(
            str(folder), flush_secs=FLUSH_SECONDS, filename_suffix=ending
        )
        if is_new:
            settings = {key: _hyperparameter(value) for key, value in curve.settings.items()}
            for part in self.summary.hparams(settings, {"accuracy": None}):
                writer.add_summary(part, 0)
        return writer

    def end(self, curve: Curve) -> None:
        """Close the trial's file."""
        if (writer := self.open.pop(curve.trial_id, None)) is not None:
            writer.close()

    def close(self) -> None:
        """Close all files."""
        for writer in self.open.values():
            writer.close()
        self.open.clear()


def _records(content: bytes) -> Iterator[bytes]:
    """Yield the whole records of an event file; the last one may have been cut short."""
    place = 0
    while place + HEADER <= len(content):
        (size,) = struct.unpack_from("<Q", content, place)
        end = place + HEADER + size
        if end + CHECK > len(content):
            return
        yield content[place + HEADER : end]
        place = end + CHECK


def _hyperparameter(value: object) -> object:
    return value if isinstance(value, bool | int | float | str) else str(value)
