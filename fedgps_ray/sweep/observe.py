"""The progress of a results folder, seen from another process, without PyTorch and Ray."""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fedgps_ray.errors import UserError
from fedgps_ray.identity import Label, Settings, Table
from fedgps_ray.results import files, schema
from fedgps_ray.results.folders import has_lost_plan
from fedgps_ray.results.index import Index, in_short
from fedgps_ray.results.read import (
    DAMAGED,
    OPEN_PLAN,
    UNREADABLE,
    check_files,
    has_open_plan,
    has_readable_clients,
    headless,
    read_experiment,
    read_rows,
    read_trial,
    trial_folders,
    work_seconds,
)
from fedgps_ray.sweep import state as states
from fedgps_ray.sweep.board import Record, as_json, label_of, leaderboard, planned, told
from fedgps_ray.sweep.state import Running, State, running
from fedgps_ray.units import printable


class Seen(NamedTuple):
    """A state, and whether a process is working on it right now."""

    state: State
    is_driven: bool


Stamp = tuple[int, int]  # when a file was changed, and its size
TOLD_APART = (
    *("dataset", "model", "partition", "alpha", "classes_per_client", "clients", "sampling_rate"),
    *("rounds", "local_epochs", "batch_size", "lr", "method_options"),
)


class Observer:
    """Looks at a folder again and again, and reads only the files that have changed."""

    def __init__(self, folder: Path) -> None:
        if not folder.is_dir():
            raise UserError(f"there is no folder {folder}")
        self.folder = folder
        self.known: dict[Path, tuple[Stamp, Any]] = {}
        self.index = Index(folder)

    def look(self) -> Seen:
        """Return the state of the folder, not more than a second old."""
        state = self._read(self.folder / states.FILE, lambda: states.load(self.folder))
        if state is not None:
            driven = states.is_driven(self.folder)
            return Seen(state if driven else _left(state), driven)
        trials = _trials(self.folder)
        infos = {trial: self.index.gist(trial) for trial in trials}
        self.index.save()
        locked = {trial for trial in trials if _may_run(infos[trial]) and files.is_locked(trial)}
        state = _from_trials(self.folder, infos)
        if note := _live_note(self.folder, None):
            state.tell(note)
        for trial in locked:
            trial_id = infos[trial]["columns"]["trial_id"]
            state.running[trial_id] = self._running(trial, trial_id, state.records[trial_id])
        return Seen(state, bool(locked))

    def _read(self, path: Path, read: Callable[[], Any]) -> Any:
        """Return what is in a file, read again only if the file is another."""
        stamp = _stamp(path)
        if stamp is None:
            return None
        if path not in self.known or self.known[path][0] != stamp:
            self.known[path] = (stamp, read())
        return self.known[path][1]

    def _running(self, trial: Path, trial_id: str, record: Record) -> Running:
        path = trial / "rounds.parquet"
        rows = self._read(path, lambda: _rows(path)) or []
        return _running(trial_id, record, rows)


def _stamp(path: Path) -> Stamp | None:
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size


def _left(state: State) -> State:
    """Return the state of a sweep whose driver has gone: nothing runs."""
    for trial_id in state.running:
        if (record := state.records.get(trial_id)) is not None:
            state.records[trial_id] = record._replace(status=schema.INTERRUPTED)
    state.leave_all()
    return state


def _live_note(folder: Path, known: State | None) -> str | None:
    """Return what to say about a state that is there and could not be read."""
    if known is not None:
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


def _may_run(info: Settings) -> bool:
    return info["status"] not in schema.ENDED


def _from_trials(folder: Path, infos: Mapping[Path, Table]) -> State:
    """Return the state of a folder with single runs."""
    statuses = Counter(info["status"] for info in infos.values())
    return State(
        folder.name,
        total=len(infos),
        rounds_total=sum(info["columns"]["rounds"] for info in infos.values()),
        finished=statuses[schema.FINISHED] + statuses[schema.STOPPED],
        diverged=statuses[schema.DIVERGED],
        failed=statuses[schema.FAILED],
        rounds_before=sum(map(_rounds_before, infos.values())),
        records=single_records(infos),
    )


def _rounds_before(info: Settings) -> int:
    """Return the rounds that count as done: all of a trial that has ended, or those on record."""
    if info["status"] in schema.DONE:
        return int(info["columns"]["rounds"])
    return int(info["summary"].get("rounds_done", 0))


def single_records(infos: Mapping[Path, Table]) -> dict[str, Record]:
    """Return the trials of a folder without an experiment; what differs tells them apart."""
    rows = {trial: info["columns"] for trial, info in infos.items()}
    differ = [key for key in TOLD_APART if _differs(key, list(rows.values()))]
    records = {}
    for trial, each in rows.items():
        own = {key: str(each[key]) for key in differ if each[key] is not None}
        record = planned(each, Label(each["method"], own))
        records[each["trial_id"]] = told(record, infos[trial])
    return records


def _differs(key: str, trials: Sequence[Settings]) -> bool:
    """Say whether trials differ in a column; a learning rate that comes with a method does not."""
    of_method = key == "lr"
    seen: dict[str, set[str]] = {}
    for each in trials:
        seen.setdefault(each["method"] if of_method else "", set()).add(str(each[key]))
    return any(len(values) > 1 for values in seen.values())


def _rows(path: Path) -> list[Table]:
    """Return what is shown of the rows of a trial; none if they cannot be read."""
    try:
        table = read_rows(path, schema.ROUNDS)
    except UNREADABLE:
        return []
    rows: list[dict[str, Any]] = table.select(["round", "accuracy", "train_seconds"]).to_pylist()
    return rows


def _running(trial_id: str, record: Record, rows: Sequence[Settings]) -> Running:
    trial = running(trial_id, record)
    trial.first = trial.rounds_done = record.rounds_done
    for row in rows:
        if row["accuracy"] is not None:
            trial.score(row["accuracy"])
    if rows:
        trial.what = "training"
        trial.rounds_done = rows[-1]["round"]
        trial.seconds_a_round = sum(row["train_seconds"] for row in rows) / len(rows)
    return trial


def standing(folder: Path, timing: bool, verify: bool = False) -> Table:
    """Return counts of statuses, why trials failed, what is missing or damaged, and the timing.

    verify: compare every file of the trials that have ended with its hash.
    """
    places = _places(folder)
    infos, problems = _read_whole(places) if verify else _read(folder, places)
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
        "not_sealed": [key for key, info in infos.items() if not info.get("is_sealed", True)],
        "trials": statuses,
        **_accuracies(folder, places, infos),
    }
    if has_lost_plan(folder):
        answer["note"] = "experiment.json is gone; what is shown comes from the trials"
    elif has_open_plan(folder):
        answer["note"] = OPEN_PLAN
    if verify:
        hashed = sum(bool(info.get("has_files")) for info in infos.values())
        answer["verified"] = hashed - len(set(problems) & set(infos))
    if timing:
        answer["timing"] = _timing(folder, places)
    return answer


def _accuracies(folder: Path, places: Mapping[str, Path], infos: Mapping[str, Table]) -> Table:
    """Return the accuracies of the trials, and summed up by method and setting."""
    begun = {key: info for key, info in infos.items() if info["status"] != schema.MISSING}
    if (folder / "experiment.json").exists():
        cells = read_experiment(folder)["cells"]
        records = {cell["trial_id"]: _planned(folder, cell) for cell in cells}
        records |= {key: told(records[key], info) for key, info in begun.items()}
    else:
        records = single_records({places[key]: info for key, info in begun.items()})
    return {
        "accuracies": {
            key: {"best": record.best, "last": record.last, "rounds_done": record.rounds_done}
            for key, record in records.items()
        },
        "leaderboard": [as_json(standing) for standing in leaderboard(records.values())],
    }


def _planned(folder: Path, cell: Settings) -> Record:
    try:
        return planned(cell, label_of(cell))
    except DAMAGED as problem:
        path = folder / "experiment.json"
        raise UserError(f"{path} is damaged ({printable(str(problem))})") from None


def _places(folder: Path) -> dict[str, Path]:
    """Return where each trial is, or will be, by its id."""
    if (folder / "experiment.json").exists():
        cells = read_experiment(folder)["cells"]
        return {cell["trial_id"]: folder / "trials" / cell["trial_id"] for cell in cells}
    return {trial.resolve().name: trial for trial in _trials(folder)}


def _read(folder: Path, places: Mapping[str, Path]) -> tuple[dict[str, Table], dict[str, str]]:
    """Return in short what the trials say, and what is wrong with those that cannot be read."""
    index = Index(folder)
    infos, damaged = _each(places, index.gist)
    index.save()
    return infos, damaged


def _read_whole(places: Mapping[str, Path]) -> tuple[dict[str, Table], dict[str, str]]:
    """Read the trials without an index, and compare all their files with their hashes."""
    changed: dict[str, str] = {}

    def gist(place: Path) -> Table:
        info = read_trial(place)
        if problems := check_files(place, info, full=True):
            changed[place.resolve().name] = "; ".join(problems)
        return in_short(place, info)

    infos, damaged = _each(places, gist)
    return infos, damaged | changed


def _each(
    places: Mapping[str, Path], read: Callable[[Path], Table]
) -> tuple[dict[str, Table], dict[str, str]]:
    infos: dict[str, dict[str, Any]] = {}
    damaged = {}
    for trial_id, place in places.items():
        try:
            infos[trial_id] = read(place) if place.exists() else {"status": schema.MISSING}
        except UserError as problem:
            damaged[trial_id] = printable(str(problem))
    return infos, damaged


def _status(info: Table, driven: bool, folder: Path) -> str:
    """Return a trial's status; if no process works on it any more, it was interrupted."""
    status = str(info["status"])
    if status in (schema.RUNNING, schema.NEW) and not driven and not files.is_locked(folder):
        return schema.INTERRUPTED
    return status


def _timing(folder: Path, places: Mapping[str, Path]) -> Table:
    """Return how much of the last launch's wall-clock its actors spent training."""
    known = states.load(folder)
    if note := _live_note(folder, known):
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
        "training_share": _share(trained, seconds * known.slots),
        **({"note": states.NOT_SEALED} if known.says(states.NOT_SEALED) else {}),
    }


def _share(part: float, whole: float) -> str:
    """Return a share in percent, and a dash where the whole is nothing."""
    return f"{part / whole:.1%}" if whole > 0 else "-"
