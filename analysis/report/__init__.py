"""The report: one folder with the tables, the figures, and pages that hold them all."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from fedgps_ray.analysis import metrics
from fedgps_ray.analysis.names import FORMULAS
from fedgps_ray.analysis.report import frames as source
from fedgps_ray.analysis.report.again import again_section
from fedgps_ray.analysis.report.blocks import Report, Section
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
from fedgps_ray.analysis.report.follow import keep_writing
from fedgps_ray.analysis.report.page import publish
from fedgps_ray.analysis.report.verdict import judge
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

    formulas: what each method should send up and down, for the table of bytes, if not known here.
    """
    frames = read(folders, tell)
    known = FORMULAS if formulas is None else formulas
    return publish(build(folders, frames, Options(against, theory, known), tell), out, tell)


def write_with_runs(
    folders: Sequence[Path], out: Path, against: bool, theory: bool, tell: Tell
) -> tuple[Path, pd.DataFrame]:
    """Write the report; return the path of report.html and the runs that it is about."""
    frames = read(folders, tell)
    made = build(folders, frames, Options(against, theory), tell)
    return publish(made, out, tell), frames.runs


def write_following(
    folders: Sequence[Path], out: Path, against: bool = False, tell: Tell = silent
) -> Path:
    """Write the page again and again while results change; return its path at the end."""

    def again(reload: int) -> Path:
        made = build(folders, read(folders), Options(against), silent)
        return publish(
            replace(made, reload=reload, written=f"{datetime.now():%H:%M:%S}"), out, silent
        )

    return keep_writing(folders, again, tell)


class Options(NamedTuple):
    """What a report is to hold; formulas: what each method should send up and down."""

    against: bool = False
    theory: bool = False
    formulas: Mapping[str, tuple[str, str]] = FORMULAS


def read(folders: Sequence[Path], tell: Tell = silent) -> source.Frames:
    """Return all that a report is made from."""
    if not folders:
        raise UserError("name at least one results folder, such as runs/default")
    return source.read(folders, tell)


def build(folders: Sequence[Path], frames: source.Frames, options: Options, tell: Tell) -> Report:
    """Return all that the report says, before anything is written."""
    sections = _comparisons(frames, tell)
    if options.against:
        sections.append(against_section(frames))
    if options.theory:
        sections.append(theory_section(folders))
    again, script = again_section(frames)
    facts = [cost_section(frames, options.formulas), run_section(frames), trouble_section(frames)]
    return Report(
        _title(folders),
        tuple(lead(frames)),
        [*sections, *facts, again],
        {"commands.sh": script},
        tuple(judge(frames.runs)),
        tuple(metrics.order(frames.runs)),
    )


def _comparisons(frames: source.Frames, tell: Tell) -> list[Section]:
    """Return a section per setting; if there are several, first one on all of them."""
    titles = headings(frames.runs)
    sections = [
        setting_section(part, number, titles[setting], tell)
        for number, (setting, part) in enumerate(frames.settings(), start=1)
    ]
    if len(titles) > 1:
        sections.insert(0, across_section(frames, tell))
    sections[0].blocks.extend(divergence_blocks(frames))
    return sections


def write_published(out: Path, tell: Tell = silent) -> Path:
    """Write the report on the paper's printed numbers alone; return the path of report.html."""
    return publish(published_report(), out, tell)


def _title(folders: Sequence[Path]) -> str:
    return f"Results of {', '.join(folder.resolve().name for folder in folders)}"
