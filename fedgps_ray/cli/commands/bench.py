"""bench: our time against plain PyTorch on this machine."""

from collections.abc import Sequence

from rich.table import Table

from fedgps_ray.cli.app import err, out, show_json
from fedgps_ray.cli.declared import Bench
from fedgps_ray.errors import unknown
from fedgps_ray.tools.bench import measure


def bench(options: Bench) -> None:
    """Measure the workloads that are named, or all."""
    known = [*measure.WORKLOADS, *measure.EXTRAS]
    wanted = options.workloads or (list(measure.COMMAND_ROUNDS) if options.only_command else known)
    for name in wanted:
        if name not in known:
            raise unknown("workload", name, known)
    runs = [name for name in wanted if name in measure.COMMAND_ROUNDS]
    raced = [] if options.only_command else [name for name in wanted if name in measure.WORKLOADS]
    with err.status("starting Ray") as status:
        results = list(measure.measure(raced, options.repeats, status.update)) if raced else []
        results += measure.measure_command(runs, options.repeats, status.update)
        share = measure.training_share(status.update) if "skew" in wanted else None
        start, floor = measure.start_up(status.update) if "start" in wanted else (None, None)
    if options.as_json:
        extras = {"training_share": share, "start_seconds": start, "start_floor_seconds": floor}
        show_json({"results": [result._asdict() for result in results], **extras})
        return
    if results:
        out.print(_table(results))
    if share is not None:
        out.print(f"skew: training is {share:.1%} of the actors' time (Dirichlet 0.1)")
    if start is not None and floor is not None:
        out.print(
            f"start: first round after {start:.1f} s, {start / floor:.2f} times"
            f" ray.init() plus a torch import ({floor:.1f} s)"
        )


def _table(results: Sequence[measure.Result]) -> Table:
    table = Table("workload", "contender", "seconds", "ratio to plain PyTorch", "lowest to highest")
    for result in results:
        spread = f"{result.lowest:.2f} to {result.highest:.2f}"
        seconds, ratio = f"{result.seconds:.4f}", f"{result.ratio:.3f}"
        table.add_row(result.workload, result.contender, seconds, ratio, spread)
    return table
