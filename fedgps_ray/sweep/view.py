"""The state of a sweep on the screen."""

import time
from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Column, Table
from rich.text import Text

from fedgps_ray.sweep.state import Running, State
from fedgps_ray.units import duration

EVENTS_SHOWN = 6
TRIALS_SHOWN = 20
CLIENTS_SHOWN = 6


def view(state: State, is_driven: bool = True) -> RenderableType:
    """Return the whole view of a sweep."""
    now = time.time()
    parts: list[RenderableType] = [_grid(state, now, is_driven)]
    if state.running:
        parts.append(_running(list(state.running.values())))
    if state.cluster and is_driven:
        parts.append(_cluster(state.cluster))
    if state.events:
        parts.append(_events(state.events[-EVENTS_SHOWN:]))
    return Panel(Group(*parts), title=escape(state.name), title_align="left")


def counts(state: State) -> str:
    """Return how many trials have each status, in words."""
    diverged = f", {state.diverged} diverged" if state.diverged else ""
    return (
        f"{state.finished} of {state.total} finished{diverged}, {len(state.running)} running,"
        f" {state.failed} failed, {state.left} left"
    )


def _grid(state: State, now: float, is_driven: bool) -> RenderableType:
    bar = ProgressBar(total=max(1, state.rounds_total), completed=state.rounds_done, width=30)
    line = Table.grid(padding=(0, 2))
    line.add_row(bar, escape(counts(state)), _clock(state, now, is_driven))
    return line


def _clock(state: State, now: float, is_driven: bool) -> str:
    if state.ended is not None:
        return f"ended after {duration(state.ended - state.began)}"
    if not is_driven:
        return f"[yellow]not running; last seen {duration(now - state.updated)} ago[/]"
    left = state.seconds_left(now)
    rest = "" if left is None else f", about {duration(left)} left"
    return f"{duration(now - state.began)}{rest}"


def _running(trials: Sequence[Running]) -> RenderableType:
    with_setting = any(trial.setting for trial in trials)
    table = Table(
        Column("method", min_width=9, no_wrap=True),
        *_numbers(("scen.", 5), ("seed", 4)),
        *([Column("setting", overflow="ellipsis", no_wrap=True)] if with_setting else []),
        *_numbers(("round", 7)),
        Column("", width=12),
        *_numbers(("last", 6), ("best", 6), ("s/round", 5)),
        Column("clients in flight", overflow="ellipsis", no_wrap=True),
        *_numbers(("restarts", 3)),
        box=None,
        pad_edge=False,
    )
    for trial in trials[:TRIALS_SHOWN]:
        table.add_row(*_row(trial, with_setting))
    if len(trials) > TRIALS_SHOWN:
        table.add_row(f"and {len(trials) - TRIALS_SHOWN} more")
    return table


def _numbers(*heads: tuple[str, int]) -> list[Column]:
    """Return columns that keep their width when the terminal is narrow."""
    return [Column(head, justify="right", min_width=width, no_wrap=True) for head, width in heads]


def _row(trial: Running, with_setting: bool) -> list[RenderableType]:
    return [
        escape(trial.method),
        str(trial.scenario),
        str(trial.seed),
        *([escape(trial.setting)] if with_setting else []),
        f"{trial.rounds_done}/{trial.rounds}",
        ProgressBar(total=trial.rounds, completed=trial.rounds_done, width=12),
        _percent(trial.accuracy),
        _percent(trial.best),
        "" if trial.seconds_a_round is None else f"{trial.seconds_a_round:.2f}",
        escape(_doing(trial)),
        str(trial.restarts) if trial.restarts else "",
    ]


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share:.2%}"


def _doing(trial: Running) -> str:
    clients = [name.removeprefix("client ") for name in trial.in_flight if name != "test"]
    more = " ..." if len(clients) > CLIENTS_SHOWN else ""
    return ", ".join(clients[:CLIENTS_SHOWN]) + more if clients else trial.what


def _cluster(use: dict[str, float]) -> RenderableType:
    parts = [f"{use['nodes']:.0f} node{'s' if use['nodes'] != 1 else ''}"]
    for name in ("CPU", "GPU"):
        if use[name]:
            parts.append(f"{name} {use[f'{name}_used']:g}/{use[name]:g}")
    store, used = use["object_store_memory"] / 1e9, use["object_store_memory_used"] / 1e9
    parts.append(f"object store {used:.2f}/{store:.1f} GB")
    return Text("cluster: " + ", ".join(parts), style="dim")


def _events(events: Sequence[tuple[float, str]]) -> RenderableType:
    lines = [
        f"{time.strftime('%H:%M:%S', time.localtime(when))}  {text.splitlines()[0]}"
        for when, text in events
    ]
    return Text("\n".join(lines), style="dim", overflow="ellipsis", no_wrap=True)
