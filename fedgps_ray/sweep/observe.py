"""The progress of a results folder, seen from another process, without PyTorch and Ray."""

import time
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from fedgps_ray.errors import UserError
from fedgps_ray.identity import Label
from fedgps_ray.results import files, schema
from fedgps_ray.results.read import (
    UNREADABLE,
    check,
    columns,
    has_readable_clients,
    headless,
    is_sealed,
    read_experiment,
    read_rows,
    read_trial,
    trial_folders,
    work_seconds,
)
from fedgps_ray.sweep import state as states
from fedgps_ray.sweep.state import Running, State, running
from fedgps_ray.units import printable


class Seen(NamedTuple):
    """A state, and whether a process is working on it right now."""

    state: State
    is_driven: bool


def observe(folder: Path) -> Seen:
    """Return the state of a folder, not more than a second old."""
    if not folder.is_dir():
        raise UserError(f"there is no folder {folder}")
    known = states.load(folder)
    if known is not None:
        return Seen(known, states.is_driven(folder))
    trials = _trials(folder)
    state = _from_trials(folder, trials)
    if note := _live_note(folder):
        state.tell(note)
    return Seen(state, any(files.is_locked(trial) for trial in trials))


def _live_note(folder: Path) -> str | None:
    """Return what to say about a state that is there and could not be read."""
    if states.load(folder) is not None:
        return None
    if (folder / states.FILE).exists():
        return f"{states.FILE} is damaged; what is shown comes from the trials"
    if (folder / "experiment.json").exists():
        return f"there is no {states.FILE}; what is shown comes from the trials"
    return None


def _trials(folder: Path) -> list[Path]:
    trials = [*trial_folders(folder), *headless(folder)]
    if not trials:
        raise UserError(f"no trials in {folder}: expected trials/*/trial.json there")
    return trials


def _from_trials(folder: Path, trials: list[Path]) -> State:
    """Return the state of a folder with single runs."""
    infos = {trial: read_trial(trial) for trial in trials}
    statuses = Counter(info["status"] for info in infos.values())
    state = State(
        folder.name,
        total=len(infos),
        rounds_total=sum(info["spec"]["rounds"] for info in infos.values()),
        finished=statuses[schema.FINISHED],
        diverged=statuses[schema.DIVERGED],
        failed=statuses[schema.FAILED],
    )
    for trial, info in infos.items():
        if info["status"] in schema.ENDED:
            state.rounds_before += info["spec"]["rounds"]
        elif files.is_locked(trial):
            state.running[trial.name] = _running(trial, info)
    return state


def _running(folder: Path, info: dict[str, Any]) -> Running:
    trial = running(columns(folder, info), Label(info["spec"]["method"]["name"]))
    try:
        table = read_rows(folder / "rounds.parquet", schema.ROUNDS)
    except UNREADABLE:
        return trial
    rows = table.select(["round", "accuracy", "train_seconds"]).to_pylist()
    scores = [row["accuracy"] for row in rows if row["accuracy"] is not None]
    trial.rounds_done = rows[-1]["round"] if rows else 0
    trial.accuracy, trial.best = (scores[-1], max(scores)) if scores else (None, None)
    trial.what = "training"
    if rows:
        trial.seconds_a_round = sum(row["train_seconds"] for row in rows) / len(rows)
    return trial


def standing(folder: Path, timing: bool, verify: bool = False) -> dict[str, Any]:
    """Return counts of statuses, why trials failed, what is missing or damaged, and the timing.

    verify: compare every file of the trials that have ended with its hash.
    """
    places = _places(folder)
    infos, problems = _read(places)
    if verify:
        problems |= _changed({key: places[key] for key in infos})
    driven = states.is_driven(folder)
    statuses = {key: _status(info, driven, places[key]) for key, info in infos.items()}
    answer: dict[str, Any] = {
        "folder": str(folder),
        "driven": driven,
        "counts": dict(Counter(statuses.values())),
        "failures": {
            key: printable(str(info.get("error", "")))
            for key, info in infos.items()
            if info["status"] == schema.FAILED
        },
        "damaged": list(problems),
        "problems": problems,
        "not_sealed": [key for key, info in infos.items() if not _is_sealed(info)],
        "trials": statuses,
    }
    if verify:
        answer["verified"] = sum(map(_has_files, infos.values())) - len(set(problems) & set(infos))
    if timing:
        answer["timing"] = _timing(folder, places)
    return answer


def _is_sealed(info: Mapping[str, Any]) -> bool:
    return info["status"] == schema.MISSING or is_sealed(dict(info))


def _has_files(info: Mapping[str, Any]) -> bool:
    """Say whether a trial has hashes of its files."""
    return info["status"] in schema.DONE and "files" in info


def _changed(places: Mapping[str, Path]) -> dict[str, str]:
    """Return what is wrong with the files of trials, by their ids."""
    there = {key: place for key, place in places.items() if place.exists()}
    with ThreadPoolExecutor() as pool:
        found = pool.map(lambda place: check(place, full=True), there.values())
        return {key: "; ".join(each) for key, each in zip(there, found, strict=True) if each}


def _places(folder: Path) -> dict[str, Path]:
    """Return where each trial is, or will be, by its id."""
    if (folder / "experiment.json").exists():
        cells = read_experiment(folder)["cells"]
        return {cell["trial_id"]: folder / "trials" / cell["trial_id"] for cell in cells}
    return {trial.resolve().name: trial for trial in _trials(folder)}


def _read(places: Mapping[str, Path]) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """Return what the trials say, and what is wrong with those that cannot be read."""
    infos: dict[str, dict[str, Any]] = {}
    damaged = {}
    for trial_id, place in places.items():
        try:
            infos[trial_id] = read_trial(place) if place.exists() else {"status": schema.MISSING}
        except UserError as problem:
            damaged[trial_id] = printable(str(problem))
    return infos, damaged


def _status(info: dict[str, Any], driven: bool, folder: Path) -> str:
    """Return a trial's status; if no process works on it any more, it was interrupted."""
    status = str(info["status"])
    if status in (schema.RUNNING, schema.NEW) and not driven and not files.is_locked(folder):
        return schema.INTERRUPTED
    return status


def _timing(folder: Path, places: Mapping[str, Path]) -> dict[str, Any]:
    """Return how much of the last launch's wall-clock its actors spent training."""
    known = states.load(folder)
    if note := _live_note(folder):
        return {"note": note}
    if unreadable := [place for place in places.values() if not has_readable_clients(place)]:
        return {"note": f"{unreadable[0] / 'clients.parquet'} is damaged"}
    if known is None or not known.slots:
        return {"note": "only a sweep that ran something has a timing"}
    seconds = (known.ended or time.time()) - known.began
    trained = sum(work_seconds(places.values())) - known.work_before
    return {
        "wall_clock_seconds": round(seconds, 1),
        "client_actors": known.slots,
        "training_seconds": round(trained, 3),
        "training_share": f"{trained / (seconds * known.slots):.1%}",
    }
