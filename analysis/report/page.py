"""A report to files: Markdown, one HTML page, and each table and figure by itself."""

import base64
from collections.abc import Callable
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup

from fedgps_ray.analysis import formats
from fedgps_ray.analysis.figures import save
from fedgps_ray.analysis.report.blocks import Picture, Report, Shown
from fedgps_ray.analysis.tables import Table
from fedgps_ray.results import files

NOTATIONS = {
    "md": formats.to_markdown,
    "tex": formats.to_latex,
    "csv": formats.to_csv,
    "html": formats.to_html,
}
PAGES = ("report.md", "report.html")


def publish(report: Report, out: Path, tell: Callable[[str], None]) -> Path:
    """Write everything into a folder; return the path of the HTML page."""
    out.mkdir(parents=True, exist_ok=True)
    for section in report.sections:
        for block in section.blocks:
            if isinstance(block, Shown):
                _write_table(block, out / "tables")
            elif isinstance(block, Picture):
                tell(f"drawing {block.name}")
                save(block.figure, out / "figures", block.name)
    for name, text in report.files.items():
        _write(out / name, text)
    pages = _environment(out)
    for name in PAGES:
        tell(f"writing {name}")
        _write(out / name, pages.get_template(f"{name}.j2").render(report=report))
    return out / PAGES[-1]


def _write_table(shown: Shown, folder: Path) -> None:
    for ending, notation in NOTATIONS.items():
        _write(folder / f"{shown.name}.{ending}", notation(shown.table))


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    files.write(path, lambda beside: _put(beside, text))


def _put(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


def _environment(out: Path) -> Environment:
    """Return templates that can show tables, and figures as parts of the page."""

    def embedded(name: str) -> str:
        data = base64.b64encode((out / "figures" / f"{name}.png").read_bytes()).decode()
        return f"data:image/png;base64,{data}"

    def html(table: Table) -> Markup:
        return Markup(formats.to_html(table))

    pages = Environment(
        loader=PackageLoader("fedgps_ray.analysis.report"),
        autoescape=select_autoescape(["html.j2"]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    pages.filters.update(embedded=embedded, html=html, markdown=formats.to_markdown)
    return pages
