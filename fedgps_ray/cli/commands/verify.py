"""verify: the methods compute what they should, and results are what their settings give."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import typer
from rich.markup import escape
from rich.table import Table

from fedgps_ray.cli.app import err, out, show_json
from fedgps_ray.cli.commands.resume import admit_code
from fedgps_ray.cli.declared import Verify
from fedgps_ray.errors import UserError
from fedgps_ray.experiment.files import named_method
from fedgps_ray.methods import METHODS
from fedgps_ray.methods.outside import make
from fedgps_ray.results.folders import check_folder, no_results
from fedgps_ray.results.named import known_files
from fedgps_ray.results.read import read_trial, trial_folders
from fedgps_ray.tools.replay import Replay, replay
from fedgps_ray.tools.verify import Proof, run_checks, run_laws
from fedgps_ray.units import printable

OWN_CODE = re.compile(r":|\.py$")


def verify(options: Verify) -> None:
    """Check the methods that are named, or all, or a folder; exit 1 if a claim does not hold."""
    folder = _folder(options)
    if folder is None:
        _verify_methods(options)
    else:
        _verify_folder(folder, options)


def _folder(options: Verify) -> Path | None:
    """Return the results folder to verify, if one is named."""
    names = options.names or []
    for name in names:
        if "/" in name and not OWN_CODE.search(name):
            check_folder(Path(name))
    folders = [Path(name) for name in names if name not in METHODS and Path(name).is_dir()]
    if not folders:
        _refuse_options_of_folders(options)
        return None
    if len(names) > 1:
        raise UserError("verify takes one results folder, or names of methods")
    if options.ray:
        raise UserError("--ray is for methods of your own, not for a results folder")
    return folders[0]


def _refuse_options_of_folders(options: Verify) -> None:
    wanted = options.rounds is not None or options.full or options.data_dir is not None
    if wanted or options.trust_code:
        raise UserError(
            "--rounds, --full, --data-dir and --trust-code are for a results folder; name one"
        )


def _verify_folder(folder: Path, options: Verify) -> None:
    trials = trial_folders(folder)
    if not trials:
        raise no_results(folder)
    replays = []
    with err.status("training again") as status:
        for trial in trials:
            status.update(f"training {escape(printable(trial.name))} again")
            replays.append(_replay(trial, options))
    if options.as_json:
        show_json([each._asdict() for each in replays])
    else:
        for each in replays:
            out.print(escape(str(each)), soft_wrap=True, highlight=False)
        out.print(f"{sum(each.holds for each in replays)} of {len(replays)} trials hold")
    if not all(each.holds for each in replays):
        raise typer.Exit(1)


def _replay(trial: Path, options: Verify) -> Replay:
    """Train a trial again; its files and its code are checked by their content."""
    try:
        info = read_trial(trial)
        files = known_files(info["execution"].get("files", {}))
        admit_code(info["spec"], [trial, trial.parent.parent], options.trust_code)
    except UserError as problem:
        return Replay(trial.name, 0, 0, str(problem))
    sources = {"data_dir": options.data_dir, "files": files}
    return replay(trial, options.rounds, options.full, sources)


def _verify_methods(options: Verify) -> None:
    proofs = []
    with err.status("checking") as status:
        for proof in _proofs(options.names or [], options.ray):
            status.update(escape(printable(f"{proof.method}: {proof.claim}")))
            proofs.append(proof)
    if options.as_json:
        show_json([proof._asdict() for proof in proofs])
    else:
        out.print(_table(proofs))
        out.print(f"{sum(proof.holds for proof in proofs)} of {len(proofs)} claims hold")
    if not all(proof.holds for proof in proofs):
        raise typer.Exit(1)


def _proofs(names: Sequence[str], on_ray: bool) -> Iterator[Proof]:
    """Yield what is known about the built-in methods, and the laws for those from outside."""
    named = {name: named_method(name) for name in names}  # first: a wrong name ends it at once
    built_in = [name for name in names if name in METHODS]
    if built_in or not names:
        yield from run_checks(built_in)
    for kind, code in named.values():
        if code is not None:
            yield from run_laws(make(kind, code.name, {}), on_ray)


def _table(proofs: Sequence[Proof]) -> Table:
    table = Table("method", "claim", "expected", "got", "holds")
    for proof in proofs:
        table.add_row(*map(escape, proof[:4]), "yes" if proof.holds else "[bold red]NO[/]")
    return table
