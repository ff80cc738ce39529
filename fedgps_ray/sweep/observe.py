"""A folder seen from outside: how its run or sweep stands, whoever drives it."""

import time
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from fedgps_ray.errors import UserError
from fedgps_ray.results import files
from fedgps_ray.results.store import ENDED, read_trial, trial_folders
from fedgps_ray.spec import method_name, trial_spec
from fedgps_ray.sweep import state as states
from fedgps_ray.sweep.drive import work_seconds
from fedgps_ray.sweep.ledger import Ledger, read
from fedgps_ray.sweep.state import Running, State, running


class Seen(NamedTuple):
    """A state, and whether somebody is at work on it right now."""

    state: State
    is_driven: bool


def observe(folder: Path) -> Seen:
    """Return how a folder stands, not more than a second old."""
    if not folder.is_dir():
        raise UserError(f"there is no folder {folder}")
    known = states.load(folder)
    if known is not None:
        return Seen(known, states.is_driven(folder))
    trials = trial_folders(folder)
    if not trials:
        raise UserError(f"no trials in {folder}: expected trials/*/trial.json there")
    state = _from_trials(folder, trials)
    return Seen(state, any(files.is_locked(trial) for trial in trials))


def _from_trials(folder: Path, trials: list[Path]) -> State:
    """Return the state of a folder with single runs."""
    found = [(trial, read_trial(trial)) for trial in trials]
    statuses = Counter(info["status"] for _, info in found)
    state = State(
        folder.name,
        total=len(found),
        rounds_total=sum(info["spec"]["rounds"] for _, info in found),
        finished=statuses["finished"],
        diverged=statuses["diverged"],
        failed=statuses["failed"],
    )
    for trial, info in found:
        if info["status"] in ENDED:
            state.rounds_before += info["spec"]["rounds"]
        elif files.is_locked(trial):
            state.running[trial.name] = _running(trial, info)
    return state


def _running(folder: Path, info: dict[str, Any]) -> Running:
    spec = trial_spec(**info["spec"])
    trial = running(spec, method_name(spec.method))
    try:
        rows = pq.read_table(
            folder / "rounds.parquet", columns=["round", "accuracy", "train_seconds"]
        ).to_pylist()
    except (pa.ArrowException, OSError):
        return trial
    scores = [row["accuracy"] for row in rows if row["accuracy"] is not None]
    trial.rounds_done = rows[-1]["round"] if rows else 0
    trial.accuracy, trial.best = (scores[-1], max(scores)) if scores else (None, None)
    trial.what = "training"
    if rows:
        trial.seconds_a_round = sum(row["train_seconds"] for row in rows) / len(rows)
    return trial


def standing(folder: Path, timing: bool) -> dict[str, Any]:
    """Return counts of statuses, why trials failed, what is missing and, if wanted, the timing."""
    ledger = _ledger(folder)
    known = states.load(folder)
    places = {spec.trial_id: ledger.place(spec) for spec in ledger.specs}
    infos, damaged = {}, []
    for trial_id, place in places.items():
        try:
            infos[trial_id] = read_trial(place) if place.exists() else {"status": "missing"}
        except UserError:
            damaged.append(trial_id)
    driven = states.is_driven(folder)
    statuses = {key: _status(info, driven, places[key]) for key, info in infos.items()}
    found: dict[str, Any] = {
        "folder": str(folder),
        "driven": driven,
        "counts": dict(Counter(statuses.values())),
        "failures": {
            k: str(i.get("error", "")) for k, i in infos.items() if i["status"] == "failed"
        },
        "damaged": damaged,
        "trials": statuses,
    }
    if timing:
        found["timing"] = _timing(ledger, known)
    return found


def _status(info: dict[str, Any], driven: bool, folder: Path) -> str:
    """Return a trial's status; one that nobody works on any more was interrupted."""
    status = str(info["status"])
    if status in ("running", "new") and not driven and not files.is_locked(folder):
        return "interrupted"
    return status


def _ledger(folder: Path) -> Ledger:
    if (folder / "experiment.json").exists():
        return read(folder)[0]
    trials = trial_folders(folder)
    if not trials:
        raise UserError(f"no trials in {folder}: expected trials/*/trial.json there")
    where = trials[0].parent.parent
    return Ledger(where, [trial_spec(**read_trial(trial)["spec"]) for trial in trials])


def _timing(ledger: Ledger, known: State | None) -> dict[str, Any]:
    """Return how much of the last launch's wall-clock its actors spent training."""
    if known is None or not known.slots:
        return {"note": "only a sweep that ran something has a timing"}
    seconds = (known.ended or time.time()) - known.began
    trained = sum(work_seconds(ledger)) - known.work_before
    return {
        "wall_clock_seconds": round(seconds, 1),
        "client_actors": known.slots,
        "training_seconds": round(trained, 3),
        "training_share": f"{trained / (seconds * known.slots):.1%}",
    }
