"""doctor: what this machine has, what is wrong, and how to fix it."""

import typer
from rich.markup import escape
from rich.table import Table

from fedgps_ray.cli.app import err, out, show_json
from fedgps_ray.cli.declared import Doctor
from fedgps_ray.tools.doctor import examine

VERDICTS = {"ok": "[green]ok[/]", "note": "[yellow]note[/]", "problem": "[bold red]problem[/]"}


def doctor(options: Doctor) -> None:
    """Check this machine; exit 1 if something is wrong."""
    findings = []
    with err.status("examining") as status:
        for finding in examine(options.folder, options.data_dir, not options.no_ray):
            status.update(f"{finding.what}: {escape(finding.found)}")
            findings.append(finding)
    problems = sum(finding.verdict == "problem" for finding in findings)
    if options.as_json:
        show_json([finding._asdict() for finding in findings])
    else:
        table = Table("", "found", "", "what to do")
        for what, state, verdict, advice in findings:
            table.add_row(what, escape(state), VERDICTS[verdict], escape(advice))
        out.print(table)
        out.print("no problems found" if not problems else f"{problems} problems found")
    if problems:
        raise typer.Exit(1)
