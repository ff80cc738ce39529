"""The report: one folder with the tables, the figures, and pages that hold them all."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from fedgps_ray.analysis.report import frames as source
from fedgps_ray.analysis.report.again import again_section
from fedgps_ray.analysis.report.blocks import Report
from fedgps_ray.analysis.report.comparison import (
    across_section,
    divergence_blocks,
    setting_section,
)
from fedgps_ray.analysis.report.extras import against_section, published_report, theory_section
from fedgps_ray.analysis.report.facts import (
    cost_section,
    headings,
    lead,
    run_section,
    trouble_section,
)
from fedgps_ray.analysis.report.page import publish
from fedgps_ray.errors import UserError

Tell = Callable[[str], None]


def silent(_: str) -> None:
    """Say nothing."""


def write(
    folders: Sequence[Path],
    out: Path,
    against: bool = False,
    theory: bool = False,
    formulas: Mapping[str, tuple[str, str]] | None = None,
    tell: Tell = silent,
) -> Path:
    """Write the report on some results folders; return the path of report.html.

    formulas: what each method should send up and down, for the table of bytes.
    """
    return publish(build(folders, against, theory, formulas or {}, tell), out, tell)


def build(
    folders: Sequence[Path],
    against: bool,
    theory: bool,
    formulas: Mapping[str, tuple[str, str]],
    tell: Tell,
) -> Report:
    """Return all that the report says, before anything is written."""
    if not folders:
        raise UserError("name at least one results folder, such as runs/default")
    frames = source.read(folders)
    report = Report(_title(folders), tuple(lead(frames)), [])
    titles = headings(frames.runs)
    for number, (setting, part) in enumerate(frames.settings(), start=1):
        report.sections.append(setting_section(part, number, titles[setting], tell))
    if len(titles) > 1:
        report.sections.append(across_section(frames, tell))
    report.sections[-1].blocks.extend(divergence_blocks(frames))
    if against:
        report.sections.append(against_section(frames))
    if theory:
        report.sections.append(theory_section(folders))
    again, script = again_section(frames)
    facts = [cost_section(frames, formulas), run_section(frames), trouble_section(frames)]
    report.sections.extend([*facts, again])
    report.files["commands.sh"] = script
    return report


def write_published(out: Path, tell: Tell = silent) -> Path:
    """Write the report on the paper's printed numbers alone; return the path of report.html."""
    return publish(published_report(), out, tell)


def _title(folders: Sequence[Path]) -> str:
    return f"Results of {', '.join(folder.resolve().name for folder in folders)}"
