"""What a person sees while a trial runs and when it ends; reads rows, changes nothing."""

import time
from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.markup import escape
from rich.text import Text

from fedgps_ray.events import Event, Row, Started, Status
from fedgps_ray.identity import Table
from fedgps_ray.results.summary import summary as summed
from fedgps_ray.sweep.drawing import GAP, bar, fit, spark
from fedgps_ray.sweep.view import plain
from fedgps_ray.units import duration, percent, size

REFRESHES = 4  # per second
SPARK_WIDTH = 24


class Pace:
    """Accuracies and seconds per round so far; the clock starts with the first round."""

    def __init__(self, rounds: int, rounds_done: int) -> None:
        self.rounds, self.first, self.began = rounds, rounds_done, time.monotonic()
        self.accuracies: list[float] = []
        self.left: float | None = None

    def line(self, row: Row) -> str:
        """Return accuracy so far, seconds per round and time left."""
        if "weights_sha256" not in row:
            return "diverged"
        seconds = (time.monotonic() - self.began) / max(1, row["round"] - self.first)
        self.left = seconds * (self.rounds - row["round"])
        left = duration(self.left)
        return f"{self._scores(row['accuracy'])}  {seconds:.2f} s per round  {left} left"

    def _scores(self, accuracy: float | None) -> str:
        if accuracy is not None:
            self.accuracies.append(accuracy)
        scored = "not tested" if accuracy is None else f"accuracy {accuracy:.2%}"
        return f"{scored}  best {max(self.accuracies):.2%}" if self.accuracies else scored


class Picture:
    """A trial in three lines: how far it is, how good it is, what it does."""

    def __init__(self, label: str, rounds: int) -> None:
        self.label, self.rounds, self.done = label, rounds, 0
        self.pace = Pace(rounds, 0)
        self.said, self.doing = "", "starting"
        self.began = time.monotonic()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Lay it out for the width of a console."""
        width = options.max_width
        curve = spark(self.pace.accuracies, SPARK_WIDTH)
        scores = fit(self.said, width - len(curve) - len(GAP)) if curve else fit(self.said, width)
        second = f"{scores}{GAP}{curve}" if curve else scores
        for line in (self._bar(width), Text(second), Text(fit(self.doing, width), "dim")):
            line.no_wrap, line.end = True, ""
            yield plain(line) if options.ascii_only else line
            yield Text("\n", end="")

    def _bar(self, width: int) -> Text:
        head = f"{self.label}{GAP}"
        left = "" if self.pace.left is None else f", about {duration(self.pace.left)} left"
        gone = duration(time.monotonic() - self.began)
        tail = f"{GAP}{self.done}/{self.rounds}{GAP}{gone}{left}"
        drawn = bar(self.done / self.rounds, max(4, width - len(head) - len(tail)))
        return Text.assemble((head, "bold"), drawn, tail, end="")


class Follower:
    """Shows a trial's events: a live picture in a terminal, one line per event elsewhere."""

    def __init__(self, console: Console, label: str, rounds: int) -> None:
        self.console, self.label, self.rounds = console, label, rounds
        self.picture = Picture(label, rounds)
        self.last = ""

    def __call__(self, event: Event) -> None:
        """Show one event."""
        if isinstance(event, Started):
            self._started(event)
        elif isinstance(event, Status):
            self._status(event)
        else:
            self._row(event)

    def _started(self, event: Started) -> None:
        self.picture.pace = Pace(self.rounds, event.rounds_done)
        self.picture.done, self.picture.doing = event.rounds_done, "first round"
        for problem in event.problems:
            self._say(f"note: {problem}")
        if event.rounds_done:
            self._say(f"continuing after round {event.rounds_done}")
        elif not self.console.is_terminal:
            self._say("first round begins")

    def _row(self, row: Row) -> None:
        said = self.picture.pace.line(row)
        self.picture.done = row["round"]
        self.picture.doing = "training"
        self.picture.said = said.rpartition(GAP)[0] or said  # the time left is next to the bar
        if not self.console.is_terminal:
            self._say(f"{self.label}  round {row['round']}/{self.rounds}  {said}")

    def _status(self, status: Status) -> None:
        clients = [name.removeprefix("client ") for name in status.in_flight if name != "test"]
        doing = f"training clients {', '.join(clients)}" if clients else status.what
        again = f"{status.restarts} actors restarted{GAP}" if status.restarts else ""
        self.picture.doing = again + doing
        if not self.console.is_terminal and not status.in_flight and status.what != self.last:
            self.last = status.what
            self._say(status.what)

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
            show(event)
        return
    with Live(get_renderable=lambda: show.picture, console=console, refresh_per_second=REFRESHES):
        for event in events:
            show(event)


def opening(settings: Table, chosen: Iterable[str]) -> str:
    """Return what a trial is about to do; marked are the values that suit the data set."""
    marked = {name: f"{settings[name]}{'*' if name in chosen else ''}" for name in settings}
    note = "  (* chosen for this data set)" if set(chosen) & set(settings) else ""
    return ", ".join(f"{name} {value}" for name, value in marked.items()) + note


def ending(info: Row, folder: str) -> str:
    """Return the closing summary of a trial; no line is broken, so that paths can be copied."""
    summary = {**summed([]), **info["summary"]}
    when = f" in round {summary['best_round']}" if summary["best_round"] is not None else ""
    train, test = summary["train_seconds"], summary["evaluate_seconds"]
    lines = {
        "status": info["status"] + (f": {info['diverged']}" if "diverged" in info else ""),
        "best accuracy": percent(summary["best_accuracy"]) + when,
        "last accuracy": percent(summary["last_accuracy"]),
        "last ten mean": percent(summary["last_ten_accuracy"]),
        "rounds": str(summary["rounds_done"]),
        "seconds": f"{train:.1f} training, {test:.1f} testing",
        "sent": f"{size(summary['bytes_up'])} up, {size(summary['bytes_down'])} down",
        "weights": summary["weights_sha256"] or "-",
        "results": folder,
    }
    return "\n".join(f"{key:<15}{value}" for key, value in lines.items())
