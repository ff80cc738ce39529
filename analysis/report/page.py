"""A report to files: Markdown, one HTML page, and each table and figure by itself."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup

from fedgps_ray.analysis import formats, text
from fedgps_ray.analysis.figures import save, to_json
from fedgps_ray.analysis.report.blocks import Picture, Report, Shown
from fedgps_ray.analysis.tables import Table
from fedgps_ray.errors import UserError
from fedgps_ray.results import files

NOTATIONS = {
    "md": formats.to_markdown,
    "tex": formats.to_latex,
    "csv": formats.to_csv,
    "html": formats.to_html,
}
PAGES = ("report.md", "report.html")
SCRIPT = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"}  # what could end a script, as JSON has it


def publish(report: Report, out: Path, tell: Callable[[str], None]) -> Path:
    """Write everything into a folder, the page last; return the path of the page.

    Of a page that reloads itself, tables and figures are not written by themselves.
    """
    _no_links(out)
    out.mkdir(parents=True, exist_ok=True)
    if not report.reload:
        _write_parts(report, out, tell)
    for name, content in report.files.items():
        _write(out / name, content)
    pages = _environment()
    for name in PAGES:
        tell(f"writing {name}")
        _write(out / name, pages.get_template(f"{name}.j2").render(report=report))
    return out / PAGES[-1]


def _no_links(out: Path) -> None:
    """Refuse a folder whose parts lead elsewhere: a stranger may have put links there."""
    for path in (out, out / "tables", out / "figures"):
        if path.is_symlink():
            raise UserError(f"{path} is a link to another place; remove it or use another --out")


def _write_parts(report: Report, out: Path, tell: Callable[[str], None]) -> None:
    for block in (block for section in report.sections for block in section.blocks):
        if isinstance(block, Shown):
            _write_table(block, out / "tables")
        elif isinstance(block, Picture):
            tell(f"drawing {block.name}")
            drawing = block.chart if block.figure is None else block.figure()
            save(drawing, out / "figures", block.name)


def _write_table(shown: Shown, folder: Path) -> None:
    for ending, notation in NOTATIONS.items():
        _write(folder / f"{shown.name}.{ending}", notation(shown.table))


def _write(path: Path, content: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    files.write(path, lambda beside: _put(beside, content))


def _put(path: Path, content: str) -> None:
    path.write_text(content, encoding="utf-8")


def _environment() -> Environment:
    """Return templates in which nothing from a results folder becomes markup."""
    pages = Environment(
        loader=PackageLoader("fedgps_ray.analysis.report"),
        autoescape=select_autoescape(["html.j2"]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_clean,
    )
    pages.filters.update(
        html=_html, data=_data, md=text.markdown, fence=text.fence, markdown=formats.to_markdown
    )
    return pages


def _clean(value: Any) -> Any:
    """Take control characters out of all that is printed."""
    return text.clean(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _html(table: Table) -> Markup:
    return Markup(formats.to_html(table))


def _data(report: Report) -> Markup:
    """Return what the page's scripts need, as JSON that cannot end the script around it."""
    pictures = [
        block
        for section in report.sections
        for block in section.blocks
        if isinstance(block, Picture)
    ]
    charts = {picture.name: to_json(picture.chart) for picture in pictures}
    content = json.dumps({"methods": report.methods, "charts": charts}, separators=(",", ":"))
    for sign, escaped in SCRIPT.items():
        content = content.replace(sign, escaped)
    return Markup(content)
