"""Which trials of an experiment are done, failed or still to do, according to its folder."""

import contextlib
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fedgps_ray.errors import InUse, UserError
from fedgps_ray.identity import Label
from fedgps_ray.results import files, moves, schema
from fedgps_ray.results.index import Index, stamp_of
from fedgps_ray.results.mirror import Mirror
from fedgps_ray.results.read import (
    DAMAGED,
    OPEN_PLAN,
    NewerLayout,
    check,
    check_files,
    is_older,
    read_experiment,
    read_trial,
    refuse_older,
    trial_folders,
)
from fedgps_ray.results.store import spec_of
from fedgps_ray.spec import TrialSpec, columns, method_name, stored_spec
from fedgps_ray.sweep.board import label_of
from fedgps_ray.units import printable

Facts = dict[str, Any]
NEEDED = ("name", "execution", "finished", "search")  # of an experiment.json, beside its cells


class Entry(NamedTuple):
    """A trial of an experiment, with its status and the rounds it has done."""

    spec: TrialSpec
    status: str  # of trial.json, or "missing"
    rounds_done: int

    @property
    def is_done(self) -> bool:
        """Whether there is nothing left to do."""
        return self.status in schema.DONE


class Ledger:
    """The trials of an experiment in a results folder."""

    def __init__(
        self, folder: Path, specs: Sequence[TrialSpec], labels: Mapping[str, Label] | None = None
    ) -> None:
        self.folder, self.specs = folder, specs
        self.labels = labels or {spec.trial_id: Label(method_name(spec.method)) for spec in specs}
        self.notes: list[str] = []
        self.mirror: Mirror | None = None
        self.index = Index(folder)
        self._columns: dict[str, Facts] = {}

    def entries(self) -> list[Entry]:
        """Return all trials with their current status."""
        entries = [self._entry(spec) for spec in self.specs]
        self.index.save()
        return entries

    def gist(self, spec: TrialSpec) -> Facts | None:
        """Return in short what is known of a trial; None if it has not begun."""
        folder = self.place(spec)
        return self.index.gist(folder) if (folder / "trial.json").exists() else None

    def columns(self, spec: TrialSpec) -> Facts:
        """Return the columns of a trial of this experiment."""
        if spec.trial_id not in self._columns:
            self._columns[spec.trial_id] = columns(spec)
        return self._columns[spec.trial_id]

    def to_do(self, again: bool = False) -> list[TrialSpec]:
        """Return what has to be run, in order; again: also what failed."""
        wanted = [entry for entry in self.entries() if not entry.is_done]
        return [entry.spec for entry in wanted if again or entry.status != schema.FAILED]

    def _entry(self, spec: TrialSpec) -> Entry:
        folder = self.place(spec)
        if not (folder / "trial.json").exists():
            return Entry(spec, schema.MISSING, 0)
        gist = self.index.gist(folder)
        return Entry(spec, gist["status"], gist["summary"].get("rounds_done", 0))

    def rounds_done(self, spec: TrialSpec) -> int:
        """Return how many rounds of a trial are on disk."""
        return self._entry(spec).rounds_done

    def place(self, spec: TrialSpec) -> Path:
        """Return a trial's folder."""
        return self.folder / "trials" / spec.trial_id

    # --- a copy elsewhere ----------------------------------------------------------------------

    def keep_at(self, mirror: Mirror) -> None:
        """Take over the trials that are further at a URI, where they are kept from now on."""
        self.mirror = mirror
        there = set(mirror.names("trials"))
        for spec in self.specs:
            if spec.trial_id in there:
                try:
                    self.fetch(spec)
                except InUse as problem:
                    self.notes.append(str(problem))
        self.notes += mirror.notes

    def catch_up(self) -> None:
        """Send the trials that have ended and are not whole where results are kept."""
        if self.mirror is None:
            return
        for entry in self.entries():
            name = f"trials/{entry.spec.trial_id}"
            if entry.is_done and self.mirror.lacks(self.folder, name):
                self.mirror.put(self.folder, name)

    def fetch(self, spec: TrialSpec) -> None:
        """Bring a trial here if it got further where results are kept."""
        if self.mirror is not None:
            self.mirror.fetch(self.folder, f"trials/{spec.trial_id}")

    def put(self, spec: TrialSpec) -> None:
        """Send a trial to where its results are kept."""
        if self.mirror is not None:
            self.mirror.put(self.folder, f"trials/{spec.trial_id}")

    # --- before a launch ------------------------------------------------------------------------

    def quarantine(self) -> list[Path]:
        """Move damaged trials away, so that they are run again; return where they are now."""
        self._note_older()
        begun = [spec for spec in self.specs if _has_begun(self.place(spec))]
        problems = [self._damage(spec) for spec in begun]
        self.index.save()
        moved = []
        for spec, problem in zip(begun, problems, strict=True):
            if problem is not None:
                moved.append(moves.aside(self.place(spec), self.folder / moves.QUARANTINE))
                self.notes.append(
                    f"{spec.trial_id} was damaged and is moved to quarantine: {problem}"
                )
                if self.mirror is not None:
                    self.mirror.drop(f"trials/{spec.trial_id}")
        self._note_unsealed([spec for spec in begun if self.place(spec) not in moved])
        return moved

    def _damage(self, spec: TrialSpec) -> str | None:
        """Return what is wrong with a trial, or None; it is read whole, whatever the index says."""
        folder = self.place(spec)
        stamp = stamp_of(folder)
        try:
            info = read_trial(folder)
            if info["spec"] != spec.model_dump(mode="json") or info["identity"] != spec.identity:
                spec_of(folder, info)
        except NewerLayout:  # not damaged: not to be run again
            raise
        except UserError as problem:
            return str(problem)
        self.index.note(folder, stamp, info)
        has_ended = info["status"] in schema.DONE  # else its rows are checked when it goes on
        return ("; ".join(check_files(folder, info)) or None) if has_ended else None

    def _note_unsealed(self, specs: Sequence[TrialSpec]) -> None:
        known = [self.gist(spec) for spec in specs]
        number = sum(not gist["is_sealed"] for gist in known if gist is not None)
        if number:
            self.notes.append(
                f"{number} trials are not sealed: an older version wrote them without hashes, so"
                " changes to their files cannot be noticed"
            )

    def _note_older(self) -> None:
        own = {spec.trial_id for spec in self.specs}
        others = [trial for trial in trial_folders(self.folder) if trial.name not in own]
        if older := sum(_is_older(trial) for trial in others):
            self.notes.append(
                f"{older} trials in {self.folder} were written by an older version: they can be"
                " read but not continued; new trials go beside them"
            )

    def borrow(self, others: Iterable[Path]) -> list[str]:
        """Copy finished trials of other folders instead of running them; return their ids."""
        borrowed = []
        for spec in self.to_do(again=True):
            for other in others:
                theirs = other / "trials" / spec.trial_id
                if _has_ended(theirs):
                    with contextlib.suppress(InUse):  # it runs here: whoever does it goes on
                        _copy(theirs, self.place(spec))
                        borrowed.append(spec.trial_id)
                    break
        return borrowed

    def write(self, facts: Facts) -> None:
        """Write experiment.json: the whole grid, and the trials that are done."""
        cells = [self._described(spec) for spec in self.specs]
        done = [entry.spec.trial_id for entry in self.entries() if entry.is_done]
        content = {**facts, "cells": cells, "finished": done}
        files.write_json(self.folder / "experiment.json", content)
        if self.mirror is not None:
            self.mirror.put_file(self.folder, "experiment.json")

    def _described(self, spec: TrialSpec) -> Facts:
        label = self.labels[spec.trial_id]._asdict()
        return {**self.columns(spec), "label": label, "spec": spec.model_dump(mode="json")}


def read(folder: Path) -> tuple[Ledger, Facts]:
    """Return the experiment of a folder, to continue it, and the other facts about it."""
    facts = read_experiment(folder)
    refuse_older(folder, facts)
    cells = facts.pop("cells")
    is_sealed = facts.pop(files.SEAL, None) is not None
    try:
        specs = [stored_spec(cell["spec"]) for cell in cells]
        _check_ids(specs, cells)
        labels = {cell["trial_id"]: label_of(cell) for cell in cells}
        _check_facts(facts)
    except DAMAGED as problem:
        raise UserError(
            f"{folder / 'experiment.json'} is damaged ({printable(str(problem))}); start the sweep"
            " again with its experiment file"
        ) from None
    ledger = Ledger(folder, specs, labels)
    if not is_sealed:
        ledger.notes.append(OPEN_PLAN)
    return ledger, facts


def _check_ids(specs: Sequence[TrialSpec], cells: Sequence[Facts]) -> None:
    for spec, cell in zip(specs, cells, strict=True):
        if spec.trial_id != cell["trial_id"]:
            raise ValueError(f"the settings of {cell['trial_id']} make trial {spec.trial_id}")


def _check_facts(facts: Facts) -> None:
    """Refuse what no version has written; the rest is left to those who use it."""
    if missing := [key for key in NEEDED if key not in facts]:
        raise ValueError(f"it lacks {', '.join(missing)}")
    kinds = {"name": str, "title": str, "execution": dict, "finished": list}
    for key, kind in kinds.items():
        if not isinstance(facts.get(key, kind()), kind):
            raise ValueError(f"{key} is {facts[key]!r}")
    search = facts.get("search")
    if search is not None and set(search) != {"scheduler", "metric"}:
        raise ValueError(f"search is {search!r}")


def _has_begun(folder: Path) -> bool:
    """Say whether a trial has left something, also if its trial.json is gone."""
    return any((folder / name).exists() for name in ("trial.json", "rounds.parquet"))


def _is_older(folder: Path) -> bool:
    try:
        return is_older(read_trial(folder))
    except UserError:  # damaged, but not one of this experiment
        return False


def _has_ended(folder: Path) -> bool:
    """Say whether a trial has ended and is as it was then."""
    if not (folder / "trial.json").exists() or check(folder):
        return False
    return read_trial(folder)["status"] in schema.ENDED


def _copy(source: Path, target: Path) -> None:
    """Copy a trial under a hidden name first, so that it is never there in part."""
    for path in (target.parent, target, *source.rglob("*")):
        files.refuse_link(path)
    with files.lock(target), moves.draft(target, "copy") as fresh:
        own = shutil.ignore_patterns(".lock", "*.part")
        try:
            shutil.copytree(source, fresh, ignore=own, dirs_exist_ok=True)
        except shutil.Error as several:
            path, _, problem = several.args[0][0]
            raise UserError(f"{path} cannot be copied: {problem}") from None
        moves.replace(target, fresh, keep=False)
