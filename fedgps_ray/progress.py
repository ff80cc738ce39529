"""What a person sees while a trial runs and when it ends; reads rows, changes nothing."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Column, Table

Row = dict[str, Any]
Show = Callable[[Row], None]


class Pace:
    """Best accuracy and seconds a round so far."""

    def __init__(self, rounds: int, rounds_done: int) -> None:
        self.rounds, self.first, self.began = rounds, rounds_done, time.monotonic()
        self.best = 0.0

    def line(self, row: Row) -> str:
        """Return accuracy so far, seconds a round and time left."""
        if row.get("accuracy") is None:
            return "diverged"
        self.best = max(self.best, row["accuracy"])
        seconds = (time.monotonic() - self.began) / max(1, row["round"] - self.first)
        left = duration(seconds * (self.rounds - row["round"]))
        return (
            f"accuracy {row['accuracy']:.2%}  best {self.best:.2%}"
            f"  {seconds:.2f} s a round  {left} left"
        )


@contextmanager
def waiting(console: Console, what: str) -> Iterator[None]:
    """Show a spinner that says what is waited for."""
    if not console.is_terminal:
        yield
        return
    with console.status(what):
        yield


@contextmanager
def following(console: Console, label: str, rounds: int, rounds_done: int) -> Iterator[Show]:
    """Show a bar of rounds in a terminal, one line a round elsewhere."""
    pace = Pace(rounds, rounds_done)
    if not console.is_terminal:
        yield lambda row: console.print(
            f"{label}  round {row['round']}/{rounds}  {pace.line(row)}", soft_wrap=True
        )
        return
    with _bar(console) as bar:
        task = bar.add_task(label, total=rounds, completed=rounds_done, said="first round")
        yield lambda row: bar.update(task, completed=row["round"], said=pace.line(row))


def _bar(console: Console) -> Progress:
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        TextColumn("{task.completed:.0f}/{task.total:.0f}"),
        TextColumn("{task.fields[said]}"),
        TimeElapsedColumn(),
        console=console,
    )


def ending(info: Row, folder: str) -> Table:
    """Return the closing summary of a trial."""
    found = info["summary"]
    table = Table("", Column(overflow="fold"), show_header=False, box=None, pad_edge=False)
    table.add_row(
        "status", info["status"] + (f": {info['diverged']}" if "diverged" in info else "")
    )
    table.add_row(
        "best accuracy", f"{percent(found['best_accuracy'])} in round {found['best_round']}"
    )
    table.add_row("last accuracy", percent(found["last_accuracy"]))
    table.add_row("mean of last ten", percent(found["last_ten_accuracy"]))
    table.add_row("rounds", str(found["rounds_done"]))
    seconds = f"{found['train_seconds']:.1f} training, {found['evaluate_seconds']:.1f} testing"
    table.add_row("seconds", seconds)
    table.add_row("sent", f"{size(found['bytes_up'])} up, {size(found['bytes_down'])} down")
    table.add_row("weights", found["weights_sha256"] or "-")
    table.add_row("results", folder)
    return table


def percent(value: float | None) -> str:
    """Return 0.5 as 50.00 %, nothing as a dash."""
    return "-" if value is None else f"{100 * value:.2f} %"


def size(num_bytes: float) -> str:
    """Return bytes in the unit people read."""
    for unit in ("B", "KB", "MB", "GB"):
        if num_bytes < 1000:
            return f"{num_bytes:.3g} {unit}"
        num_bytes /= 1000
    return f"{num_bytes:.3g} TB"


def duration(seconds: float) -> str:
    """Return seconds as h:mm:ss or m:ss."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
