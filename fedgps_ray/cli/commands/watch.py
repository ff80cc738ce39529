"""watch: a run or sweep seen live from another terminal."""

import io
import re
import time
from pathlib import Path

from rich.console import Console, RenderableType
from rich.live import Live

from fedgps_ray.cli.app import out, writing
from fedgps_ray.cli.declared import Watch
from fedgps_ray.results.folders import has_results, no_results
from fedgps_ray.sweep.observe import observe
from fedgps_ray.sweep.view import view

REFRESHES = 4  # per second


def watch(options: Watch) -> None:
    """Show a folder until nobody works on it any more."""
    if not has_results(options.folder):
        raise no_results(options.folder)
    seen = observe(options.folder)
    if options.once or options.svg or not out.is_terminal or not seen.is_driven:
        _show_once(view(*seen), options.svg)
        return
    with Live(console=out, refresh_per_second=REFRESHES, screen=False) as live:
        while seen.is_driven:
            live.update(view(*seen))
            time.sleep(1)
            seen = observe(options.folder)
        live.update(view(*seen))


def _show_once(picture: RenderableType, svg: Path | None) -> None:
    out.print(picture)
    if svg is not None:
        console = Console(record=True, width=110, file=io.StringIO())
        console.print(picture)
        drawn = console.export_svg(title="fedgps-ray")
        alone = re.sub(r"@font-face \{.*?\}", "", drawn, flags=re.DOTALL)  # fonts of another host
        writing(svg, lambda: svg.write_text(alone))
