"""chaos: whether results survive the loss of any process."""

from collections import defaultdict

import typer
from rich.markup import escape
from rich.table import Table

from fedgps_ray.cli.app import out, say, show_json
from fedgps_ray.cli.declared import Chaos
from fedgps_ray.tools import chaos as tool


def chaos(options: Chaos) -> None:
    """Kill and stop processes of small sweeps; exit 1 unless every trial ends as undisturbed."""
    if options.address is None:
        verdict = tool.chaos(options.kills, options.seed, say)
    else:
        assert options.folder is not None  # checked with the options
        kills, seed = options.kills, options.seed
        verdict = tool.chaos_on_cluster(options.address, options.folder, kills, seed, say)
    if options.as_json:
        blows = [{"kind": b.kind, "way": b.way, "seconds": b.seconds} for b in verdict.blows]
        show_json({**verdict._asdict(), "blows": blows, "holds": verdict.holds})
    else:
        out.print(_table(verdict.blows))
        out.print(escape(_words(verdict)), soft_wrap=True)
    if not verdict.holds:
        raise typer.Exit(1)


def _table(blows: list[tool.Blow]) -> Table:
    groups: dict[tuple[str, str], list[tool.Blow]] = defaultdict(list)
    for blow in blows:
        groups[blow.kind, blow.way].append(blow)
    table = Table("process", "how", "times", "replaced", "after (median)", "longest")
    for (kind, way), same in sorted(groups.items()):
        seconds = sorted(blow.seconds for blow in same if blow.seconds is not None)
        times = [seconds[len(seconds) // 2], seconds[-1]] if seconds else []
        told = [f"{number:.1f} s" for number in times] or ["-", "-"]
        table.add_row(kind, way, str(len(same)), str(len(seconds)), *told)
    return table


def _words(verdict: tool.Verdict) -> str:
    lines = [
        f"{len(verdict.blows)} of {verdict.kills} kills and stops in {verdict.seconds:.0f} s, the"
        f" driver started {verdict.starts} times: {verdict.same} of {verdict.trials} trials have"
        " the weights of an undisturbed run in every round"
    ]
    for name in ("failed", "different", "missing", "hung", "crashed", "left_over"):
        if listed := getattr(verdict, name):
            lines.append(f"{name.replace('_', ' ')}: {', '.join(listed)}")
    return "\n".join([*lines, "nothing was lost" if verdict.holds else "this must not happen"])
