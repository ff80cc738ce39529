"""verify: the methods compute what they should."""

import json
from collections.abc import Iterator, Sequence

import typer
from rich.markup import escape
from rich.table import Table

from fedgps_ray.cli.app import err, out
from fedgps_ray.cli.declared import Verify
from fedgps_ray.experiment.files import named_method
from fedgps_ray.methods import METHODS
from fedgps_ray.methods.outside import make
from fedgps_ray.tools.verify import Proof, run_checks, run_laws


def verify(options: Verify) -> None:
    """Check the methods that are named, or all; exit 1 if a claim does not hold."""
    proofs = []
    with err.status("checking") as status:
        for proof in _proofs(options.names or [], options.ray):
            status.update(f"{proof.method}: {escape(proof.claim)}")
            proofs.append(proof)
    if options.as_json:
        print(json.dumps([proof._asdict() for proof in proofs]))
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
