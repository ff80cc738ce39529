"""What a results folder says about the cells of an experiment: done, failed, or still to do."""

import json
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fedgps_ray.errors import UserError
from fedgps_ray.results import files
from fedgps_ray.results.mirror import Mirror
from fedgps_ray.results.store import ENDED, read_trial
from fedgps_ray.spec import TrialSpec, columns, method_name, trial_spec

STOPPED = "stopped"  # by the scheduler of a search: an end, though not of the rounds
Facts = dict[str, Any]


class Cell(NamedTuple):
    """A trial of an experiment, and how it stands."""

    spec: TrialSpec
    status: str  # of trial.json, or "missing"
    rounds_done: int

    @property
    def is_done(self) -> bool:
        """Whether there is nothing left to do."""
        return self.status in (*ENDED, STOPPED)


class Ledger:
    """The cells of an experiment in a results folder."""

    def __init__(
        self, folder: Path, specs: Sequence[TrialSpec], labels: Mapping[str, str] | None = None
    ) -> None:
        self.folder, self.specs = folder, specs
        self.labels = labels or {spec.trial_id: method_name(spec.method) for spec in specs}
        self.notes: list[str] = []
        self.mirror: Mirror | None = None

    def cells(self) -> list[Cell]:
        """Return all cells as they stand now."""
        return [self._cell(spec) for spec in self.specs]

    def to_do(self, again: bool = False) -> list[TrialSpec]:
        """Return what has to be run, in order; again: also what failed."""
        wanted = [cell for cell in self.cells() if not cell.is_done]
        return [cell.spec for cell in wanted if again or cell.status != "failed"]

    def _cell(self, spec: TrialSpec) -> Cell:
        folder = self.place(spec)
        if not (folder / "trial.json").exists():
            return Cell(spec, "missing", 0)
        info = read_trial(folder)
        done = info.get("summary", {}).get("rounds_done", 0)
        return Cell(spec, info["status"], done)

    def rounds_done(self, spec: TrialSpec) -> int:
        """Return how many rounds of a trial are on disk."""
        return self._cell(spec).rounds_done

    def place(self, spec: TrialSpec) -> Path:
        """Return a trial's folder."""
        return self.folder / "trials" / spec.trial_id

    # --- a copy elsewhere ----------------------------------------------------------------------

    def keep_at(self, mirror: Mirror) -> None:
        """Take over how the cells stand at a URI, where the trials are kept from now on."""
        self.mirror = mirror
        there = set(mirror.names("trials"))
        for spec in self.specs:
            if spec.trial_id in there:
                self.fetch(spec)

    def fetch(self, spec: TrialSpec) -> None:
        """Bring a trial here if its results are kept elsewhere."""
        if self.mirror is not None:
            self.mirror.fetch(self.folder, f"trials/{spec.trial_id}")

    def put(self, spec: TrialSpec) -> None:
        """Send a trial to where its results are kept."""
        if self.mirror is not None:
            self.mirror.put(self.folder, f"trials/{spec.trial_id}")

    # --- before a launch ------------------------------------------------------------------------

    def quarantine(self) -> list[Path]:
        """Put damaged trials aside, so that they are run again; return where they are now."""
        moved = []
        for spec in self.specs:
            folder = self.place(spec)
            try:
                self._cell(spec)
            except UserError as problem:
                moved.append(_aside(folder, self.folder / "quarantine"))
                self.notes.append(f"{spec.trial_id} was damaged, put aside: {problem}")
        return moved

    def borrow(self, others: Iterable[Path]) -> list[str]:
        """Copy finished trials of other folders instead of running them; return their ids."""
        found = []
        for spec in self.to_do(again=True):
            for other in others:
                theirs = other / "trials" / spec.trial_id
                if _has_ended(theirs):
                    _copy(theirs, self.place(spec))
                    found.append(spec.trial_id)
                    break
        return found

    def write(self, facts: Facts) -> None:
        """Write experiment.json: the whole grid, and who is finished."""
        cells = [self._described(spec) for spec in self.specs]
        done = [cell.spec.trial_id for cell in self.cells() if cell.is_done]
        content = {**facts, "cells": cells, "finished": done}
        files.write_json(self.folder / "experiment.json", content)
        if self.mirror is not None:
            self.mirror.put_file(self.folder, "experiment.json")

    def _described(self, spec: TrialSpec) -> Facts:
        label = self.labels[spec.trial_id]
        return {**columns(spec), "label": label, "spec": spec.model_dump(mode="json")}


def read(folder: Path) -> tuple[Ledger, Facts]:
    """Return an experiment as its folder describes it, and what else experiment.json says."""
    path = folder / "experiment.json"
    try:
        facts: Facts = json.loads(path.read_text())
        cells = facts.pop("cells")
        specs = [trial_spec(**cell["spec"]) for cell in cells]
        labels = {cell["trial_id"]: str(cell["label"]) for cell in cells}
    except FileNotFoundError:
        raise UserError(f"{folder} has no experiment.json: it is not a sweep's folder") from None
    except (ValueError, TypeError, LookupError) as problem:
        raise UserError(
            f"{path} is damaged ({problem}); start the sweep again with its experiment file"
        ) from None
    return Ledger(folder, specs, labels), facts


def _has_ended(folder: Path) -> bool:
    return (folder / "trial.json").exists() and read_trial(folder)["status"] in ENDED


def _copy(source: Path, target: Path) -> None:
    """Copy a trial beside its place first, so that it is there whole or not at all."""
    beside = target.with_name(f".{target.name}.copy")
    shutil.rmtree(beside, ignore_errors=True)
    shutil.copytree(source, beside, ignore=shutil.ignore_patterns(".lock", "*.part"))
    shutil.rmtree(target, ignore_errors=True)
    beside.rename(target)


def _aside(folder: Path, where: Path) -> Path:
    where.mkdir(parents=True, exist_ok=True)
    number = sum(1 for _ in where.glob(f"{folder.name}-*")) + 1
    return folder.rename(where / f"{folder.name}-{number}")
