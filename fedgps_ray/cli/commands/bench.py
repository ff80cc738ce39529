"""Commands that check this machine: doctor, verify, bench, soak."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from fedgps_ray.cli.app import Json, app, err, out
from fedgps_ray.cli.options import DataDir
from fedgps_ray.errors import unknown


@app.command(epilog="Example: fedgps-ray doctor")
def doctor(
    folder: Annotated[Path, typer.Option("--out", help="Where results would go.")] = Path("runs"),
    data_dir: DataDir = None,
    no_ray: Annotated[bool, typer.Option("--no-ray", help="Do not try to start Ray.")] = False,
    as_json: Json = False,
) -> None:
    """Examine this machine: what it has, what is wrong, and what to type."""
    from fedgps_ray.tools.doctor import examine

    findings = []
    with err.status("examining") as status:
        for finding in examine(folder, data_dir, not no_ray):
            status.update(f"{finding.what}: {escape(finding.found)}")
            findings.append(finding)
    problems = sum(finding.verdict == "problem" for finding in findings)
    if as_json:
        print(json.dumps([finding._asdict() for finding in findings]))
    else:
        table = Table("", "found", "", "what to do")
        for what, found, verdict, advice in findings:
            table.add_row(what, escape(found), VERDICTS[verdict], escape(advice))
        out.print(table)
        out.print("no problems found" if not problems else f"{problems} problems found")
    if problems:
        raise typer.Exit(1)


VERDICTS = {"ok": "[green]ok[/]", "note": "[yellow]note[/]", "problem": "[bold red]problem[/]"}


@app.command(epilog="Example: fedgps-ray verify fedgps scaffold")
def verify(
    names: Annotated[list[str] | None, typer.Argument(help="Methods; default: all.")] = None,
    as_json: Json = False,
) -> None:
    """Prove here, without Ray, that the methods compute what they should."""
    from fedgps_ray.methods import METHODS
    from fedgps_ray.tools.verify import run_checks

    for name in names or []:
        if name not in METHODS:
            raise unknown("method", name, METHODS)
    proofs = []
    with err.status("checking") as status:
        for proof in run_checks(names or ()):
            status.update(f"{proof.method}: {escape(proof.claim)}")
            proofs.append(proof)
    if as_json:
        print(json.dumps([proof._asdict() for proof in proofs]))
    else:
        out.print(_proof_table(proofs))
        out.print(f"{sum(proof.holds for proof in proofs)} of {len(proofs)} claims hold")
    if not all(proof.holds for proof in proofs):
        raise typer.Exit(1)


def _proof_table(proofs: Sequence[Any]) -> Table:
    table = Table("method", "claim", "expected", "got", "holds")
    for proof in proofs:
        table.add_row(*map(escape, proof[:4]), "yes" if proof.holds else "[bold red]NO[/]")
    return table


@app.command(epilog="Example: fedgps-ray bench W1 W2 --repeats 5")
def bench(
    workloads: Annotated[
        list[str] | None,
        typer.Argument(help="step, W1, W2, W3 (against bare PyTorch), skew, start; default: all."),
    ] = None,
    repeats: Annotated[int, typer.Option(help="Counted turns of every contender.")] = 5,
    as_json: Json = False,
) -> None:
    """Measure our time against bare PyTorch on this machine, side by side."""
    from fedgps_ray.tools.bench import measure

    known = [*measure.WORKLOADS, *measure.EXTRAS]
    wanted = workloads or known
    for name in wanted:
        if name not in known:
            raise unknown("workload", name, known)
    races = [name for name in wanted if name in measure.WORKLOADS]
    with err.status("starting Ray") as status:
        results = list(measure.measure(races, repeats, status.update)) if races else []
        share = measure.training_share(status.update) if "skew" in wanted else None
        start, floor = measure.start_up(status.update) if "start" in wanted else (None, None)
    if as_json:
        extras = {"training_share": share, "start_seconds": start, "start_floor_seconds": floor}
        print(json.dumps({"results": [result._asdict() for result in results], **extras}))
        return
    if results:
        out.print(_bench_table(results))
    if share is not None:
        out.print(f"skew: training is {share:.1%} of the actors' time (Dirichlet 0.1)")
    if start is not None and floor is not None:
        out.print(
            f"start: first round after {start:.1f} s, {start / floor:.2f} times"
            f" ray.init() plus a torch import ({floor:.1f} s)"
        )


def _bench_table(results: Sequence[Any]) -> Table:
    table = Table("workload", "contender", "seconds", "ratio to the fastest bare loop")
    for result in results:
        seconds, ratio = f"{result.seconds:.4f}", f"{result.ratio:.3f}"
        table.add_row(result.workload, result.contender, seconds, ratio)
    return table


@app.command(epilog="Example: fedgps-ray soak --rounds 300")
def soak(
    rounds: Annotated[int, typer.Option(help="Tiny rounds to run.")] = 300,
    method: Annotated[str, typer.Option(help="See `fedgps-ray methods`.")] = "fedgps",
    as_json: Json = False,
) -> None:
    """Run many tiny rounds on Ray and show whether memory or open files grow."""
    from fedgps_ray.tools.soak import soak as watch

    with err.status("starting Ray") as status:
        found = watch(rounds, method, status.update)
    if as_json:
        print(json.dumps([growth._asdict() for growth in found]))
        return
    table = Table("process", "MB warm", "MB at the end", "ratio", "files warm", "files at the end")
    for growth in found:
        table.add_row(
            growth.name,
            f"{growth.megabytes_before:.1f}",
            f"{growth.megabytes_after:.1f}",
            f"{growth.ratio:.3f}",
            str(growth.files_before),
            str(growth.files_after),
        )
    out.print(table)
