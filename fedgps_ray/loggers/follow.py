"""Follows a results folder and tells loggers what is new in it.

Loggers read the files that a trial leaves anyway, so the trial knows nothing of them, and it does
not matter which process dies when: what a logger lacks is written the next time.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from fedgps_ray.errors import UserError, first_line
from fedgps_ray.loggers.base import Curve, Logger, curve_of
from fedgps_ray.loggers.csv_files import CsvFiles
from fedgps_ray.loggers.ml_flow import MlFlow
from fedgps_ray.loggers.tensorboard import TensorBoard
from fedgps_ray.loggers.weights_and_biases import WeightsAndBiases
from fedgps_ray.results import files, schema
from fedgps_ray.results.read import (
    UNREADABLE,
    Row,
    claim_of,
    read_rows,
    read_trial,
    trial_folders,
)

SECONDS = 2.0
LOGGERS: dict[str, Callable[[Path], Logger]] = {
    "csv": CsvFiles,
    "tensorboard": TensorBoard,
    "wandb": WeightsAndBiases,
    "mlflow": MlFlow,
}

Say = Callable[[str], None]
Stamp = tuple[int, int]


class Follower:
    """Copies new rounds of a results folder, or of one trial in it, to loggers."""

    def __init__(self, names: Sequence[str], root: Path, say: Say, trial_id: str | None) -> None:
        _refuse_links(root / "logs")
        self.loggers = {name: _made(name, root) for name in names}
        self.folder = root if trial_id is None else root / "trials" / trial_id
        self.say = say
        self.stamps: dict[Path, Stamp] = {}
        self.last: dict[tuple[str, str], int] = {}

    def sync(self) -> None:
        """Write the rounds that are new since the last time."""
        for folder in trial_folders(self.folder):
            stamp = _stamp(folder)
            if stamp != self.stamps.get(folder) and self._sync(folder):
                self.stamps[folder] = stamp

    def _sync(self, folder: Path) -> bool:
        """Write the new rounds of a trial; say whether its files could be read."""
        try:
            info = read_trial(folder)
            curve = curve_of(folder, info)
            claim = claim_of("rounds.parquet", info)
            rows = read_rows(folder / "rounds.parquet", schema.ROUNDS, claim).to_pylist()
        except (UserError, *UNREADABLE):  # none yet, or damaged: whoever runs it says so
            return False
        for name in list(self.loggers):
            try:
                self._write(name, curve, rows)
            except Exception as problem:  # of whatever kind: a logger must not end a trial
                self._drop(name, problem)
        return True

    def _write(self, name: str, curve: Curve, rows: Sequence[Row]) -> None:
        logger, key = self.loggers[name], (name, curve.trial_id)
        if key not in self.last:
            self.last[key] = logger.last_round(curve)
        new = [row for row in rows if row["round"] > self.last[key]]
        if new:
            logger.write(curve, new)
            self.last[key] = new[-1]["round"]
        if curve.has_ended:
            logger.end(curve)

    def _drop(self, name: str, problem: Exception) -> None:
        self.loggers.pop(name)
        reason = first_line(problem)
        self.say(f"log {name} stops ({reason}); the results are not affected")

    def close(self) -> None:
        """Write the rest and close the loggers."""
        self.sync()
        for name, logger in list(self.loggers.items()):
            try:
                logger.close()
            except Exception as problem:  # of whatever kind: a logger must not end a trial
                self._drop(name, problem)


def _refuse_links(logs: Path) -> None:
    """Refuse logs that would be written elsewhere: a stranger may have put links there."""
    for path in (logs, *logs.rglob("*")):
        if logs / "wandb" not in path.parents:  # which makes links of its own
            files.refuse_link(path)
            files.refuse_second_name(path)


def _made(name: str, root: Path) -> Logger:
    """Return a logger; problems with it are reported before anything runs."""
    try:
        return LOGGERS[name](root)
    except UserError:
        raise
    except Exception as problem:  # of whatever kind: it comes from the other package
        raise UserError(f"log {name}: {problem}") from None


def _stamp(folder: Path) -> Stamp:
    paths = (folder / "rounds.parquet", folder / "trial.json")
    rows, info = (path.stat().st_mtime_ns if path.exists() else 0 for path in paths)
    return rows, info


@contextmanager
def following(
    names: Sequence[str], root: Path, say: Say, trial_id: str | None = None
) -> Iterator[None]:
    """Keep loggers up to date while something runs in a results folder, and at its end.

    trial_id: of the only trial to follow; by default all that the folder has.
    """
    if not names:
        yield
        return
    follower, over = Follower(names, root, say, trial_id), threading.Event()
    thread = threading.Thread(target=_follow, args=(follower, over), daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        follower.close()


def _follow(follower: Follower, over: threading.Event) -> None:
    while not over.wait(SECONDS):
        follower.sync()
