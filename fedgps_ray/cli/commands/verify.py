"""verify: the methods compute what they should."""

import json
from collections.abc import Sequence

import typer
from rich.markup import escape
from rich.table import Table

from fedgps_ray.cli.app import err, out
from fedgps_ray.cli.declared import Verify
from fedgps_ray.errors import unknown
from fedgps_ray.methods import METHODS
from fedgps_ray.tools.verify import Proof, run_checks


def verify(options: Verify) -> None:
    """Check the methods that are named, or all; exit 1 if a claim does not hold."""
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
