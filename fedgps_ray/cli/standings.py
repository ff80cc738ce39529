"""The result of a folder in a terminal: methods by settings, and what failed."""

from collections.abc import Sequence
from itertools import chain

from rich.console import Console
from rich.text import Text

from fedgps_ray.results import schema
from fedgps_ray.sweep.board import Record, Standing, leaderboard
from fedgps_ray.sweep.drawing import Column, table

FAILURES_SHOWN = 10
LONG = (
    Column("method", cut=True),
    Column("setting", cut=True, rank=2),
    Column("mean of best accuracies", right=True),
    Column("highest", right=True, rank=1),
    Column("finished", right=True),
)


def result(console: Console, records: Sequence[Record]) -> None:
    """Print the accuracies by method and setting, and the failures with their first line."""
    show_accuracies(console, leaderboard(records))
    failed = [record for record in records if record.status == schema.FAILED]
    for record in failed[:FAILURES_SHOWN]:
        console.print(Text(f"failed: {record.words}: {record.error}"), soft_wrap=True)
    if len(failed) > FAILURES_SHOWN:
        console.print(f"and {len(failed) - FAILURES_SHOWN} more failed")


def show_accuracies(console: Console, standings: Sequence[Standing]) -> None:
    """Print a table of methods and settings, if anything was tested."""
    if all(standing.best is None for standing in standings):
        return
    for line in _crossed(standings, console.width) or _listed(standings, console.width):
        console.print(line, soft_wrap=True)


def _crossed(standings: Sequence[Standing], width: int) -> list[Text]:
    """Return methods down and settings across; nothing if that is not a table or too wide."""
    settings = list(dict.fromkeys(standing.setting for standing in standings))
    if len(settings) < 2:
        return []
    by_method: dict[str, dict[str, Standing]] = {}
    for standing in standings:
        by_method.setdefault(standing.method, {})[standing.setting] = standing
    columns = [Column("method"), *(Column(setting or "-", right=True) for setting in settings)]
    rows = [
        [method, *(_cell(own[setting]) if setting in own else "" for setting in settings)]
        for method, own in by_method.items()
    ]
    lines = table(columns, rows, width)
    if any(line.cell_len > width for line in lines):
        return []
    note = "mean of the best accuracies ± standard deviation (finished trials)"
    return [Text(note, "dim"), *lines]


def _listed(standings: Sequence[Standing], width: int) -> list[Text]:
    rows = [
        (
            standing.method,
            standing.setting,
            _mean(standing) or "-",
            "" if standing.best is None else f"{standing.best:.2%}",
            f"{len(standing.scores)}/{standing.planned}",
        )
        for standing in standings
    ]
    lines = table(LONG, rows, width)
    if all(row[1] in line.plain for row, line in zip(rows, lines[1:], strict=True)):
        return lines
    return _below([LONG[0], *LONG[2:]], rows, width)


def _below(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int) -> list[Text]:
    """Return a table with each setting on a line of its own, where beside it would be cut."""
    heading, *lines = table(columns, [[row[0], *row[2:]] for row in rows], width)
    settings = [Text(f"  {row[1]}", "dim") for row in rows]
    return [heading, *chain.from_iterable(zip(lines, settings, strict=True))]


def _cell(standing: Standing) -> str:
    told = _mean(standing)
    return f"{told} ({len(standing.scores)})" if told else "-"


def _mean(standing: Standing) -> str:
    if standing.mean is None:
        return ""
    spread = "" if standing.deviation is None else f" ± {100 * standing.deviation:.2f}"
    return f"{100 * standing.mean:.2f}{spread} %"
