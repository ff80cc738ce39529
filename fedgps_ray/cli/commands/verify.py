"""verify: the methods compute what they should, and results are what their settings give."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer
from rich.markup import escape
from rich.table import Table

from fedgps_ray.cli.app import err, out
from fedgps_ray.cli.commands.resume import known_files
from fedgps_ray.cli.declared import Verify
from fedgps_ray.cli.folders import no_results
from fedgps_ray.errors import UserError, unknown
from fedgps_ray.methods import METHODS
from fedgps_ray.results.read import read_trial, trial_folders
from fedgps_ray.tools.replay import replay
from fedgps_ray.tools.verify import Proof, run_checks


def verify(options: Verify) -> None:
    """Check the methods that are named, or all, or a folder; exit 1 if a claim does not hold."""
    folder = _folder(options)
    if folder is None:
        _verify_methods(options)
    else:
        _verify_folder(folder, options)


def _folder(options: Verify) -> Path | None:
    """Return the results folder to verify, if one is named."""
    folders = [Path(name) for name in options.names or [] if Path(name).is_dir()]
    if not folders:
        if options.rounds is not None or options.full or options.data_dir is not None:
            raise UserError("--rounds, --full and --data-dir are for a results folder; name one")
        return None
    if len(options.names or []) > 1:
        raise UserError("verify takes one results folder, or names of methods")
    return folders[0]


def _verify_folder(folder: Path, options: Verify) -> None:
    trials = trial_folders(folder)
    if not trials:
        raise no_results(folder)
    replays = []
    with err.status("training again") as status:
        for trial in trials:
            status.update(f"training {trial.name} again")
            replays.append(replay(trial, options.rounds, options.full, _sources(trial, options)))
    if options.as_json:
        print(json.dumps([each._asdict() for each in replays]))
    else:
        for each in replays:
            out.print(escape(str(each)), soft_wrap=True, highlight=False)
        out.print(f"{sum(each.holds for each in replays)} of {len(replays)} trials hold")
    if not all(each.holds for each in replays):
        raise typer.Exit(1)


def _sources(trial: Path, options: Verify) -> dict[str, Any]:
    """Return where the data of a trial may be; files are checked by their content."""
    try:
        files = known_files(read_trial(trial)["execution"].get("files", {}))
    except UserError:  # the replay says what is wrong
        files = {}
    return {"data_dir": options.data_dir, "files": files}


def _verify_methods(options: Verify) -> None:
    for name in options.names or []:
        if name not in METHODS:
            raise unknown("method", name, METHODS)
    proofs = []
    with err.status("checking") as status:
        for proof in run_checks(options.names or ()):
            status.update(f"{proof.method}: {escape(proof.claim)}")
            proofs.append(proof)
    if options.as_json:
        print(json.dumps([proof._asdict() for proof in proofs]))
    else:
        out.print(_table(proofs))
        out.print(f"{sum(proof.holds for proof in proofs)} of {len(proofs)} claims hold")
    if not all(proof.holds for proof in proofs):
        raise typer.Exit(1)


def _table(proofs: Sequence[Proof]) -> Table:
    table = Table("method", "claim", "expected", "got", "holds")
    for proof in proofs:
        table.add_row(*map(escape, proof[:4]), "yes" if proof.holds else "[bold red]NO[/]")
    return table
