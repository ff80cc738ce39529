"""resume: what a folder has begun is brought to its end."""

from pathlib import Path
from typing import Any

from fedgps_ray.cli.app import say
from fedgps_ray.cli.commands.trials import run_and_show
from fedgps_ray.cli.declared import Resume
from fedgps_ray.cli.options import use_token
from fedgps_ray.loading import load
from fedgps_ray.results.code import admit
from fedgps_ray.results.folders import no_results
from fedgps_ray.results.read import read_experiment, read_trial, trial_folders
from fedgps_ray.results.schema import ENDED
from fedgps_ray.results.store import spec_of
from fedgps_ray.spec import execution_spec
from fedgps_ray.sweep import ledger


def resume(options: Resume) -> None:
    """Continue a sweep, or every trial of a folder that was interrupted or failed."""
    if (options.folder / "experiment.json").exists():
        _resume_sweep(options)
    else:
        _resume_trials(options, trial_folders(options.folder))


def _resume_sweep(options: Resume) -> None:
    _admit_sweep(options)
    known, facts = ledger.read(options.folder)
    other = {} if options.address is None else {"address": options.address}
    execution = execution_spec(**{**facts.pop("execution"), "out": options.folder, **other})
    use_token(execution.address)
    resume_sweep = load("fedgps_ray.cli.commands.sweep:resume_sweep")
    resume_sweep(known, facts, execution, options.failed, options.as_json)


def _admit_sweep(options: Resume) -> None:
    """Allow the code of all cells to be imported, or refuse before anything is."""
    facts, folders = read_experiment(options.folder), [options.folder]
    folders += trial_folders(options.folder)
    for cell in facts["cells"]:
        _admit(cell["spec"], folders, facts.get("execution", {}), options.trust_code)


_TOLD: set[str] = set()


def _admit(
    settings: dict[str, Any], folders: list[Path], execution: dict[str, Any], trust: bool
) -> None:
    """Allow the code of a trial to be imported, and say once from where."""
    for line in admit(settings, folders, execution.get("files", {}), trust):
        if line not in _TOLD:
            say(line)
        _TOLD.add(line)


def _resume_trials(options: Resume, folders: list[Path]) -> None:
    if not folders:
        raise no_results(options.folder)
    infos = {trial: read_trial(trial) for trial in folders}
    open_trials = {trial: info for trial, info in infos.items() if info["status"] not in ENDED}
    if not open_trials:
        say(f"all {len(folders)} trials of {options.folder} have ended; nothing to do")
    other = {} if options.address is None else {"address": options.address}
    for trial, info in open_trials.items():
        _admit(info["spec"], [trial, trial.parent.parent], info["execution"], options.trust_code)
        spec, out = spec_of(trial, info), trial.parent.parent
        execution = execution_spec(**{**info["execution"], "out": out, **other})
        use_token(execution.address)
        run_and_show(spec, execution, False, options.as_json)
