"""resume: finishes what a folder has begun.

A folder may come from anyone. It says what to compute; only the user says where that runs, where
data is read and where results are stored.
"""

import shlex
from pathlib import Path
from typing import NamedTuple

from fedgps_ray.cli.app import say
from fedgps_ray.cli.commands.trials import run_and_show
from fedgps_ray.cli.declared import Resume
from fedgps_ray.cli.options import use_token
from fedgps_ray.errors import ClientFailed, InUse, Lost, UserError
from fedgps_ray.identity import ID, Table
from fedgps_ray.loading import load
from fedgps_ray.results.code import admit
from fedgps_ray.results.folders import no_results
from fedgps_ray.results.moves import QUARANTINE, aside
from fedgps_ray.results.named import known_files
from fedgps_ray.results.read import (
    check,
    headless,
    is_sealed,
    read_experiment,
    read_trial,
    trial_folders,
)
from fedgps_ray.results.schema import DONE, ENDED
from fedgps_ray.results.store import spec_of
from fedgps_ray.spec import ExecutionSpec, TrialSpec, execution_spec
from fedgps_ray.sweep import ledger

KEPT = ("actors", "client_cpus", "client_gpus", "device", "hang_seconds", "checkpoint_seconds")
LOCAL_LOGS = ("csv", "tensorboard")  # write to the results folder and send nothing
ASKED = {"address": "--address", "storage": "--storage", "data_dir": "--data-dir"}


def resume(options: Resume) -> None:
    """Continue a sweep, or every trial of a folder that was interrupted or failed."""
    if (options.folder / "experiment.json").exists():
        _resume_sweep(options)
    else:
        _resume_trials(options, [*trial_folders(options.folder), *headless(options.folder)])


def _resume_sweep(options: Resume) -> None:
    _admit_sweep(options)
    known, facts = ledger.read(options.folder)
    told = facts.pop("execution")
    if told.get("actors") == 0:  # of a sweep that Python code ran in its own process
        del told["actors"]
    execution = _execution(told, options, options.folder)
    if execution.actors == 0:
        raise UserError("--actors 0: a sweep runs on Ray; use 1 or more, or auto")
    resume_sweep = load("fedgps_ray.cli.commands.sweep:resume_sweep")
    resume_sweep(known, facts, execution, options.failed, options.as_json)


def _admit_sweep(options: Resume) -> None:
    """Allow the code of all cells to be imported, or refuse before anything is."""
    facts, folders = read_experiment(options.folder), [options.folder]
    folders += trial_folders(options.folder)
    for cell in facts["cells"]:
        admit_code(cell["spec"], folders, options.trust_code)


_TOLD: set[str] = set()


def admit_code(settings: Table, folders: list[Path], trust: bool) -> None:
    """Allow the code of a trial to be imported, and say once from where."""
    for line in admit(settings, folders, trust):
        if line not in _TOLD:
            say(line)
        _TOLD.add(line)


def _execution(told: Table, options: Resume, out: Path) -> ExecutionSpec:
    """Return how to run: as the user says, and as the folder says where that is harmless."""
    harmless = _harmless(told, out)
    for line in _ignored(told, options):
        say(line)
    use_token(options.address)
    return execution_spec(**{**harmless, **options.wanted, "out": out})


def _harmless(told: Table, folder: Path) -> Table:
    """Return what is taken over of how a folder was run; refuse what cannot be."""
    harmless = {key: told[key] for key in KEPT if key in told}
    try:
        harmless["log"] = [name for name in _logs(told) if name in LOCAL_LOGS]
        harmless["files"] = known_files(told.get("files", {}))
        execution_spec(**harmless)
    except UserError as problem:
        raise UserError(f"{folder} says how to run, and that cannot be: {problem}") from None
    return harmless


def _logs(told: Table) -> list[str]:
    """Return where else the rounds went."""
    names = told.get("log", [])
    if not isinstance(names, list):
        raise UserError(f"execution.log: must be a list, got {names!r}")
    return [str(name) for name in names]


def _ignored(told: Table, options: Resume) -> list[str]:
    """Return what the folder says about where to run and store, and the user did not repeat."""
    lines = []
    for key, option in ASKED.items():
        value, wanted = told.get(key), options.wanted.get(key)
        if value is not None and wanted is None:
            again = f"{option} {shlex.quote(str(value))}"
            lines.append(f"this folder was run with {again}; pass {again} to use it again")
    for name in _logs(told):
        if name not in (*LOCAL_LOGS, *(options.log or [])):
            again = f"--log {shlex.quote(name)}"
            lines.append(f"this folder was run with {again}; pass {again} to use it again")
    if told.get("download") and not options.download:
        lines.append("this folder was run with --download; pass --download to use it again")
    return lines


# --- single runs ----------------------------------------------------------------------------------


class Rest(NamedTuple):
    """What is left to do of a trial: where, its spec, and how it ran."""

    out: Path
    spec: TrialSpec
    execution: Table


def _resume_trials(options: Resume, folders: list[Path]) -> None:
    if not folders:
        raise no_results(options.folder)
    unreadable: list[str] = []
    candidates = [_to_do(trial, options.trust_code, unreadable) for trial in folders]
    to_do = [rest for rest in candidates if rest is not None]
    if not to_do and not unreadable:
        say(f"all {len(folders)} trials of {options.folder} have ended; nothing to do")
    failed = [rest.spec.trial_id for rest in to_do if not _goes_on(rest, options, len(to_do) == 1)]
    if unreadable:
        raise UserError("\n".join(unreadable))
    if failed:
        raise ClientFailed(f"{len(failed)} of {len(to_do)} trials failed: {', '.join(failed)}")


def _goes_on(rest: Rest, options: Resume, is_alone: bool) -> bool:
    """Run a trial to its end; one that fails does not keep the others from going on."""
    try:
        execution = _execution(rest.execution, options, rest.out)
        run_and_show(rest.spec, execution, False, options.as_json)
    except (UserError, ClientFailed) as problem:
        is_lost = isinstance(problem, Lost) and not isinstance(problem, InUse)
        if is_alone or is_lost:  # what is lost, such as a cluster or the disk, is so for all
            raise
        say(f"{rest.spec.trial_id} failed: {problem}")
        return False
    return True


def _to_do(trial: Path, trust: bool, unreadable: list[str]) -> Rest | None:
    """Return what is left to do for a trial; one that is damaged is put aside and run again."""
    if not ID.fullmatch(trial.resolve().name):
        say(f"{trial} is not a trial's folder, which is named after its id; left as it is")
        return None
    out = trial.parent.parent
    problems = check(trial)
    try:
        info = read_trial(trial, sealed=False)  # what is changed is among the problems
        if info["status"] in ENDED and not problems:
            _note_unsealed(trial, info)
            return None
        admit_code(info["spec"], [trial, out], trust)
        spec = spec_of(trial, info)
        _harmless(info["execution"], trial)
    except UserError as problem:  # it cannot be run; the other trials go on
        unreadable.append(str(problem))
        return None
    if problems and (info["status"] in DONE or not _has_own_seal(trial)):
        # the rows of others are checked when they go on
        _put_aside(trial, out, problems)
    return Rest(out, spec, info["execution"])


def _has_own_seal(trial: Path) -> bool:
    """Say whether trial.json is as it was written."""
    try:
        read_trial(trial)
    except UserError:
        return False
    return True


def _note_unsealed(trial: Path, info: Table) -> None:
    if not is_sealed(info):
        say(f"{trial.name} is not sealed: changes to its files cannot be noticed")


def _put_aside(trial: Path, out: Path, problems: list[str]) -> None:
    moved = aside(trial, out / QUARANTINE)
    say(f"{trial.name} was damaged and is moved to {moved}: {'; '.join(problems)}")
