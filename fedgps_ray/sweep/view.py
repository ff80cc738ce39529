"""The state of a sweep on the screen, laid out for the room that there is."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from fedgps_ray.identity import Table
from fedgps_ray.results import schema
from fedgps_ray.sweep.board import ORDERS, Record, Standing, leaderboard
from fedgps_ray.sweep.drawing import GAP, PLAIN, Column, bar, fit, spark, table
from fedgps_ray.sweep.state import Running, State
from fedgps_ray.units import duration

SMALL = 30  # lines; on smaller screens sections are shorter, without blank lines between them
PAGES = ("overview", "trials", "failures")
KEYS = "q leave  j/k scroll  / filter  s sort  t trials  f failures"
BOARD = (
    Column("method", cut=True),
    Column("setting", cut=True, rank=1),
    Column("mean", right=True),
    Column("±", right=True, rank=3),
    Column("best so far", right=True),
    Column("finished", right=True),
)
RUNNING = (
    Column("running", cut=True),
    Column("setting", cut=True, rank=4),
    Column("scen.", right=True),
    Column("seed", right=True),
    Column("round", right=True),
    Column("accuracy"),
    Column("last", right=True),
    Column("best", right=True),
    Column("s/round", right=True, rank=2),
    Column("restarts", right=True, rank=3),
    Column("in flight", cut=True, rank=5),
)
TRIALS = (
    Column("trial"),
    Column("status"),
    Column("method", cut=True),
    Column("setting", cut=True, rank=2),
    Column("scen.", right=True),
    Column("seed", right=True),
    Column("round", right=True),
    Column("last", right=True, rank=1),
    Column("best", right=True),
)
FAILURES = (Column("failed"), Column("trial", cut=True, rank=1), Column("why", cut=True))


@dataclass
class Look:
    """What a person chose to see: page, place, filter and order."""

    page: str = PAGES[0]
    top: int = 0
    wanted: str = ""
    order: str = ORDERS[0]
    is_typing: bool = False
    has_keys: bool = False
    lines: int | None = None  # None: as many as the terminal has; 0: as many as needed


@dataclass
class Section:
    """A table of which only some rows may be seen."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[str]]
    least: int  # rows that it gets where there is little room
    top: int = 0

    def lines(self, width: int, room: int) -> list[Text]:
        """Return a heading and as many rows as there is room for."""
        whole = len(self.rows)
        if room <= 0 or not whole:
            return []
        shown = min(whole, room)
        first = max(0, min(self.top, whole - shown))
        lines = table(self.columns, self.rows[first : first + shown], width)
        note = f"{GAP}{first + 1} to {first + shown} of {whole}"
        if shown < whole and lines[0].cell_len + len(note) <= width:
            lines[0].append(note, "dim")
        return lines


class Picture:
    """A sweep as lines of text, never wider or longer than the terminal."""

    def __init__(self, state: State, is_driven: bool, look: Look) -> None:
        self.state, self.is_driven, self.look = state, is_driven, look

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Lay it out for a console."""
        height = console.size.height - 1 if self.look.lines is None else self.look.lines
        for line in self.lines(options.max_width, height):
            yield plain(line) if options.ascii_only else line
            yield Text("\n", end="")

    def lines(self, width: int, height: int) -> list[Text]:
        """Return the lines for a width and a height (0: as many as needed)."""
        head = _head(self.state, self.is_driven, width)
        foot = [self._foot(width)] if self.look.has_keys else []
        is_small = 0 < height < SMALL
        room = height - len(head) - len(foot) - (0 if is_small else 1) if height else 0
        body = list(self._body(width, room, is_small, bool(height)))
        space = [] if is_small else [Text("", end="")]
        return [*head, *space, *body, *foot]

    def _foot(self, width: int) -> Text:
        look = self.look
        if look.is_typing:
            return Text(f"show only: {look.wanted}_", "bold", no_wrap=True, end="")
        only = f"{GAP}only '{look.wanted}'" if look.wanted else ""
        return Text(fit(f"{KEYS}{GAP}by {look.order}{only}", width), "dim", no_wrap=True, end="")

    def _body(self, width: int, room: int, is_small: bool, limited: bool) -> Iterator[Text]:
        """Yield the sections of the page, each with its share of the room."""
        sections = self._sections(is_small)
        is_overview = self.look.page == PAGES[0]
        loose = _loose(self.state, self.is_driven, width, is_small) if is_overview else []
        gaps = 0 if is_small else len(sections) + len(loose) - 1
        free = room - gaps - sum(len(lines) for lines in loose)
        rooms = shares([len(s.rows) for s in sections], [s.least for s in sections], free)
        if not limited:
            rooms = [len(section.rows) for section in sections]
        drawn = [s.lines(width, n) for s, n in zip(sections, rooms, strict=True)]
        blocks = [lines for lines in [*drawn, *loose] if lines]
        for number, lines in enumerate(blocks):
            if number and not is_small:
                yield Text("", end="")
            yield from lines

    def _sections(self, is_small: bool) -> list[Section]:
        state, look = self.state, self.look
        failures = _failures(state, look.wanted)
        if look.page == "failures":
            return [Section(FAILURES, failures or [("none", "", "")], 1, look.top)]
        if look.page == "trials":
            rows = [_trial(k, r) for k, r in _ordered(state.records, look) if _is_in(k, r, look)]
            return [Section(TRIALS, rows, 1, look.top)]
        board = [_standing(standing) for standing in _standings(state, look)]
        running = [_running(trial) for trial in state.running.values()]
        return [
            Section(BOARD, board, 4, look.top),
            Section(RUNNING, running, 3 if is_small else 8),
            Section(FAILURES, failures, 2 if is_small else 3),
        ]


def view(state: State, is_driven: bool = True, look: Look | None = None) -> Picture:
    """Return the whole view of a sweep."""
    return Picture(state, is_driven, look or Look())


def plain(line: Text) -> Text:
    """Return a line for a terminal that knows ASCII only."""
    known = line.plain.translate(PLAIN).encode("ascii", "replace").decode()
    return Text(known, no_wrap=True, end="")


def shares(sizes: Sequence[int], least: Sequence[int], free: int) -> list[int]:
    """Share lines out among tables: their least number first, then what is left in turn.

    Each table that has rows also takes a line for its heading.
    """
    rooms = [min(size, few) for size, few in zip(sizes, least, strict=True)]
    free -= sum(rooms) + sum(1 for size in sizes if size)
    for place, size in enumerate(sizes):
        more = max(0, min(size - rooms[place], free))
        rooms[place] += more
        free -= more
    for place in reversed(range(len(rooms))):  # too little room even for the least
        fewer = min(rooms[place], max(0, -free))
        rooms[place] -= fewer
        free += fewer
    return rooms


# --- the lines at the top ---------------------------------------------------------------------


def counts(state: State) -> str:
    """Return how many trials have each status, in words."""
    told = [f"{state.finished} of {state.total} finished"]
    told += [f"{state.diverged} diverged"] if state.diverged else []
    told += [f"{len(state.running)} running", f"{state.failed} failed"]
    told += [f"{state.interrupted} interrupted"] if state.interrupted else []
    return ", ".join([*told, f"{state.left} left"])


def _head(state: State, is_driven: bool, width: int) -> list[Text]:
    now = time.time()
    clock = _clock(state, now, is_driven)
    name = fit(state.name, max(1, width - len(clock) - len(GAP)))
    title = Text(no_wrap=True, end="")
    title.append(name, "bold").append(clock.rjust(width - len(name)), "yellow" * (not is_driven))
    share = state.rounds_done / max(1, state.rounds_total)
    percent = f"{GAP}{100 * share:3.0f} %"
    done = bar(share, max(0, width - len(percent))).append(percent)
    done.no_wrap, done.end = True, ""
    lines = [title, done, _told(counts(state), width)]
    rates = _rates(state, now)
    return [*lines, _told(rates, width)] if rates else lines


def _told(text: str, width: int) -> Text:
    return Text(fit(text, width), no_wrap=True, end="")


def _clock(state: State, now: float, is_driven: bool) -> str:
    if state.ended is not None:
        return f"ended after {duration(state.ended - state.began)}"
    if not is_driven:
        return f"not running; last seen {duration(now - state.updated)} ago"
    left = state.seconds_left()
    rest = "" if left is None else f", about {duration(left)} left"
    return f"{duration(now - state.began)}{rest}"


def _rates(state: State, now: float) -> str:
    hourly, pace = state.trials_an_hour(now), state.rounds_a_second()
    told = [] if hourly is None else [f"{hourly:.0f} trials per hour"]
    if pace is not None and state.ended is None:
        told.append(f"{pace:.1f} rounds per second")
    if told or state.restarts:
        told.append(f"{state.restarts} restart{'' if state.restarts == 1 else 's'}")
    return ", ".join(told)


# --- rows ---------------------------------------------------------------------------------------


def percent(share: float | None) -> str:
    """Return a share for a column of a table; empty if there is none."""
    return "" if share is None else f"{share:.2%}"


def _standings(state: State, look: Look) -> list[Standing]:
    return [
        standing
        for standing in leaderboard(state.records.values(), look.order)
        if look.wanted.lower() in f"{standing.method} {standing.setting}".lower()
    ]


def _standing(standing: Standing) -> tuple[str, ...]:
    return (
        standing.method,
        standing.setting,
        percent(standing.mean),
        "" if standing.deviation is None else f"{100 * standing.deviation:.2f}",
        percent(standing.best),
        f"{len(standing.scores)}/{standing.planned}",
    )


def _running(trial: Running) -> tuple[str, ...]:
    return (
        trial.method,
        trial.setting,
        str(trial.scenario),
        str(trial.seed),
        f"{trial.rounds_done}/{trial.rounds}",
        spark(trial.curve, 12),
        percent(trial.accuracy),
        percent(trial.best),
        "" if trial.seconds_a_round is None else f"{trial.seconds_a_round:.2f}",
        str(trial.restarts) if trial.restarts else "",
        doing(trial),
    )


def doing(trial: Running) -> str:
    """Return the clients that train now, or what else a trial does."""
    clients = [name.removeprefix("client ") for name in trial.in_flight if name != "test"]
    return f"clients {', '.join(clients)}" if clients else trial.what


def _ordered(records: dict[str, Record], look: Look) -> list[tuple[str, Record]]:
    """Return trials in the order chosen; "mean" leaves them as they are."""
    if look.order == "best":
        return sorted(records.items(), key=lambda item: -(item[1].best or -1.0))
    if look.order == "method":
        return sorted(records.items(), key=lambda item: item[1].method.lower())
    return list(records.items())


def _is_in(trial_id: str, record: Record, look: Look) -> bool:
    return look.wanted.lower() in f"{trial_id} {record.status} {record.words}".lower()


def _trial(trial_id: str, record: Record) -> tuple[str, ...]:
    return (
        trial_id,
        record.status,
        record.method,
        record.setting,
        str(record.scenario),
        str(record.seed),
        f"{record.rounds_done}/{record.rounds}",
        percent(record.last),
        percent(record.best),
    )


def _failures(state: State, wanted: str) -> list[tuple[str, ...]]:
    """Return the trials that failed, each with the first line of the reason."""
    return [
        (trial_id, record.words, record.error)
        for trial_id, record in state.records.items()
        if record.status == schema.FAILED
        and wanted.lower() in f"{trial_id} {record.words} {record.error}".lower()
    ]


# --- the lines at the bottom --------------------------------------------------------------------


def _loose(state: State, is_driven: bool, width: int, is_small: bool) -> list[list[Text]]:
    """Return the nodes and the last events."""
    nodes = state.nodes if is_driven else []
    if len(nodes) > (1 if is_small else 4):
        nodes = [_together(nodes)]
    lines = [Text(fit(_node(node), width), "dim", no_wrap=True, end="") for node in nodes]
    events = [_event(when, text, width) for when, text in state.events[-(3 if is_small else 6) :]]
    return [block for block in (lines, events) if block]


def _node(node: Table) -> str:
    told = [f"CPU {node['CPU_used']:g}/{node['CPU']:g}"]
    if node["GPU"]:
        told.append(f"GPU {node['GPU_used']:g}/{node['GPU']:g}")
    if node.get("busy") is not None:
        told.append(f"{100 * node['busy']:.0f} % busy")
    for name, title in (("memory", "memory"), ("object_store_memory", "object store")):
        if node.get(name):
            told.append(f"{title} {_number(node[f'{name}_used'])}/{_number(node[name])} GB")
    return f"{node['name']}: {', '.join(told)}"


def _number(num_bytes: float) -> str:
    billions = num_bytes / 1e9
    return f"{billions:.0f}" if billions >= 10 else f"{billions:.1f}"


def _together(nodes: Sequence[Table]) -> Table:
    """Return many nodes as one: what they have and use in sum."""
    kinds = ("CPU", "GPU", "memory", "object_store_memory")
    names = [name for kind in kinds for name in (kind, f"{kind}_used")]
    busy = [node["busy"] for node in nodes if node.get("busy") is not None]
    return {
        "name": f"{len(nodes)} nodes",
        "busy": sum(busy) / len(busy) if len(busy) == len(nodes) else None,
        **{name: sum(node.get(name, 0.0) for node in nodes) for name in names},
    }


def _event(when: float, text: str, width: int) -> Text:
    first = text.splitlines()[0] if text else ""
    line = f"{time.strftime('%H:%M:%S', time.localtime(when))}  {first}"
    return Text(fit(line, width), "dim", no_wrap=True, end="")
