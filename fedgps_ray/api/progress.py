"""What a person sees while a trial runs and when it ends; reads rows, changes nothing."""

import time
from collections.abc import Iterable
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from fedgps_ray.events import Event, Row, Started, Status
from fedgps_ray.units import duration, percent, size


class Pace:
    """Best accuracy and seconds per round so far."""

    def __init__(self, rounds: int, rounds_done: int) -> None:
        self.rounds, self.first, self.began = rounds, rounds_done, time.monotonic()
        self.best: float | None = None

    def line(self, row: Row) -> str:
        """Return accuracy so far, seconds per round and time left."""
        if "weights_sha256" not in row:
            return "diverged"
        seconds = (time.monotonic() - self.began) / max(1, row["round"] - self.first)
        left = duration(seconds * (self.rounds - row["round"]))
        return f"{self._scores(row['accuracy'])}  {seconds:.2f} s per round  {left} left"

    def _scores(self, accuracy: float | None) -> str:
        if accuracy is not None:
            self.best = accuracy if self.best is None else max(self.best, accuracy)
        scored = "not tested" if accuracy is None else f"accuracy {accuracy:.2%}"
        return scored if self.best is None else f"{scored}  best {self.best:.2%}"


class Follower:
    """Shows a trial's events: a live bar of rounds in a terminal, one line per event elsewhere."""

    def __init__(self, console: Console, label: str, rounds: int) -> None:
        self.console, self.label, self.rounds = console, label, rounds
        self.pace = Pace(rounds, 0)
        self.last = ""

    def __call__(self, event: Event, bar: Progress | None) -> None:
        """Show one event."""
        if isinstance(event, Started):
            self._started(event)
            said = "first round" if not event.rounds_done else ""
            self._update(bar, completed=event.rounds_done, said=said)
        elif isinstance(event, Status):
            self._status(event, bar)
        else:
            self.last = self.pace.line(event)
            self._update(bar, completed=event["round"], said=self.last)
            if bar is None:
                self._say(f"{self.label}  round {event['round']}/{self.rounds}  {self.last}")

    def _started(self, event: Started) -> None:
        self.pace = Pace(self.rounds, event.rounds_done)
        for problem in event.problems:
            self._say(f"note: {problem}")
        if event.rounds_done:
            self._say(f"continuing after round {event.rounds_done}")
        elif not self.console.is_terminal:
            self._say("first round begins")

    def _status(self, status: Status, bar: Progress | None) -> None:
        clients = [name.removeprefix("client ") for name in status.in_flight if name != "test"]
        doing = f"clients {', '.join(clients[:8])}" if clients else status.what
        more = f" and {len(clients) - 8} more" if len(clients) > 8 else ""
        again = f"  {status.restarts} actors restarted" if status.restarts else ""
        self._update(bar, said="  ".join(filter(None, [self.last, doing + more + again])))
        if bar is None and not status.in_flight and status.what != self.last:
            self.last = status.what
            self._say(status.what)

    def _update(self, bar: Progress | None, **values: Any) -> None:
        if bar is not None:
            bar.update(bar.task_ids[0], **values)

    def _say(self, text: str) -> None:
        say(self.console, text)


def say(console: Console, text: str) -> None:
    """Print a line; it is not broken, so that commands and paths can be copied."""
    console.print(escape(text), soft_wrap=True, highlight=False)


def follow(console: Console, label: str, rounds: int, events: Iterable[Event]) -> None:
    """Show a trial's events until it ends."""
    show = Follower(console, label, rounds)
    if not console.is_terminal:
        for event in events:
            show(event, None)
        return
    with _bar(console) as bar:
        bar.add_task(label, total=rounds, said="")
        for event in events:
            show(event, bar)


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


def ending(info: Row, folder: str) -> str:
    """Return the closing summary of a trial; no line is broken, so that paths can be copied."""
    found = info["summary"]
    when = f" in round {found['best_round']}" if found["best_round"] is not None else ""
    train, test = found["train_seconds"], found["evaluate_seconds"]
    lines = {
        "status": info["status"] + (f": {info['diverged']}" if "diverged" in info else ""),
        "best accuracy": percent(found["best_accuracy"]) + when,
        "last accuracy": percent(found["last_accuracy"]),
        "mean of last ten": percent(found["last_ten_accuracy"]),
        "rounds": str(found["rounds_done"]),
        "seconds": f"{train:.1f} training, {test:.1f} testing",
        "sent": f"{size(found['bytes_up'])} up, {size(found['bytes_down'])} down",
        "weights": found["weights_sha256"] or "-",
        "results": folder,
    }
    return "\n".join(f"{key:<18}{value}" for key, value in lines.items())
