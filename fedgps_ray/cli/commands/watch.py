"""watch: a run or sweep seen live from another terminal."""

import io
import re
import time
from pathlib import Path

from rich.console import RenderableType
from rich.live import Live

from fedgps_ray.api.guard import GuardedConsole
from fedgps_ray.cli import keys
from fedgps_ray.cli.app import err, out, writing
from fedgps_ray.cli.declared import Watch
from fedgps_ray.results.folders import has_results, no_results
from fedgps_ray.sweep.board import ORDERS
from fedgps_ray.sweep.observe import Observer, Seen
from fedgps_ray.sweep.view import PAGES, Look, view

SECONDS = 1.0  # between two looks at the folder
PAGE = 10  # rows that a page key scrolls
SVG_WIDTH = 110
STEPS = {"j": 1, "down": 1, "k": -1, "up": -1, "page down": PAGE, "page up": -PAGE, " ": PAGE}


def watch(options: Watch) -> None:
    """Show a folder until nobody works on it any more, or until the user leaves."""
    if not has_results(options.folder):
        raise no_results(options.folder)
    observer = Observer(options.folder)
    with err.status("reading results"):
        seen = observer.look()
    if options.once or options.svg or not out.is_terminal:
        _show_once(view(*seen, Look(lines=0)), options.svg)
    elif keys.can_read():
        _browse(observer, seen)
    else:
        _follow(observer, seen)


def _show_once(picture: RenderableType, svg: Path | None) -> None:
    out.print(picture)
    if svg is not None:
        console = GuardedConsole(record=True, width=SVG_WIDTH, file=io.StringIO())
        console.print(picture)
        drawn = console.export_svg(title="fedgps-ray")
        alone = re.sub(r"@font-face \{.*?\}", "", drawn, flags=re.DOTALL)  # fonts of another host
        writing(svg, lambda: svg.write_text(alone))


def _follow(observer: Observer, seen: Seen) -> None:
    """Show a folder in a terminal without keys, until nobody works on it."""
    with Live(console=out, auto_refresh=False) as live:
        while seen.is_driven:
            live.update(view(*seen), refresh=True)
            time.sleep(SECONDS)
            seen = observer.look()
        live.update(view(*seen), refresh=True)


def _browse(observer: Observer, seen: Seen) -> None:
    """Show a folder on the whole screen and answer keys; the last picture stays behind."""
    look = Look(has_keys=True)
    with keys.pressed() as wait, Live(console=out, auto_refresh=False, screen=True) as live:
        until = time.monotonic() + SECONDS
        while True:
            live.update(view(*seen, look), refresh=True)
            key = wait(until - time.monotonic())
            if key is None:
                seen, until = observer.look(), time.monotonic() + SECONDS
            elif not answer(look, key):
                break
    out.print(view(*seen))


def answer(look: Look, key: str) -> bool:
    """Do what a key asks for; say whether to go on."""
    if look.is_typing:
        _type(look, key)
        return True
    if key in STEPS:
        look.top = max(0, look.top + STEPS[key])
    elif key == "/":
        look.is_typing, look.wanted, look.top = True, "", 0
    elif key == "s":
        look.order = ORDERS[(ORDERS.index(look.order) + 1) % len(ORDERS)]
    elif key in ("t", "f"):
        _turn(look, PAGES[1] if key == "t" else PAGES[2])
    elif key == "\x1b":
        look.page, look.top, look.wanted = PAGES[0], 0, ""
    return key != "q"


def _turn(look: Look, page: str) -> None:
    """Show a page, or the overview if it is shown already."""
    look.page, look.top = (PAGES[0] if look.page == page else page), 0


def _type(look: Look, key: str) -> None:
    if key in ("\n", "\r"):
        look.is_typing = False
    elif key == "\x1b":
        look.is_typing, look.wanted = False, ""
    elif key in ("\x7f", "\b"):
        look.wanted = look.wanted[:-1]
    elif key.isprintable() and len(key) == 1:
        look.wanted += key
