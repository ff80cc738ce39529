"""The paper's numbers and the measured theory, as sections."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from fedgps_ray.analysis import against, figures, metrics, published, theory
from fedgps_ray.analysis.figures.critical import printed_rankings
from fedgps_ray.analysis.names import published_name
from fedgps_ray.analysis.report.blocks import (
    Block,
    Picture,
    Points,
    Report,
    Section,
    Shown,
    Text,
    drawn,
    points,
)
from fedgps_ray.analysis.report.comparison import ranking_sentences
from fedgps_ray.analysis.report.facts import with_corner
from fedgps_ray.analysis.report.frames import Frames
from fedgps_ray.analysis.tables import Cell, Column, Table, assemble
from fedgps_ray.errors import UserError

HOW_TO_MEASURE = "measure it with `fedgps-ray report --theory`"


def against_section(frames: Frames) -> Section:
    """Return our numbers beside the paper's."""
    table = against.against_paper(frames.runs, frames.rounds)
    return Section("Against the paper", "against", [Shown("against-the-paper", table)])


# --- theory ---------------------------------------------------------------------------------------


def theory_section(folders: Sequence[Path]) -> Section:
    """Return the terms of Theorem 4.1 and the condition of the path, where they were measured."""
    try:
        measured = theory.read(*folders)
    except UserError as problem:
        return Section("Theory", "theory", [Text(f"{problem}; {HOW_TO_MEASURE}.")])
    blocks: list[Block] = [
        Text(
            "Each client of one more round trains from the final global model. Theorem 4.1 bounds"
            " its risk on everybody's data less its risk on its own by a Lipschitz constant times"
            " three Wasserstein-1 distances of features; the path asks for |I - lambda_g H| < 1."
        ),
        *drawn(
            "theory-distances",
            "Theorem 4.1: the three distances of its bound.",
            partial(theory.bound_terms, measured.clients),
        ),
        *drawn(
            "theory-bound",
            "Theorem 4.1: which part of its bound the gap of each client takes up.",
            partial(theory.bound_shares, measured.clients),
        ),
        Shown("theory-terms", terms_table(measured.clients)),
        *drawn(
            "theory-path",
            "Path condition: the norm against lambda, from the extreme eigenvalues of H.",
            partial(theory.path_condition, measured.curvature),
        ),
        Shown("theory-curvature", curvature_table(measured.curvature)),
        *points(
            [
                "Distances are exact for the samples drawn, and larger than those of the whole"
                " distributions; they are in the units of each model's own features.",
                "The theorem's loss sees features only; here it also depends on labels.",
            ]
        ),
    ]
    return Section("Theory", "theory", blocks)


def terms_table(clients: pd.DataFrame) -> Table:
    """Return the means over the measured clients of each method."""
    heads = {
        **theory.TERMS,
        "lipschitz": "Lipschitz",
        "gap": "gap of risks",
        "bound": "bound",
    }
    return _means("terms of the bound, means over clients", clients, heads, "held")


def curvature_table(curvature: pd.DataFrame) -> Table:
    """Return the eigenvalues and the norm of each method, means over its trials."""
    heads = {
        "largest": "largest eigenvalue",
        "smallest": "smallest eigenvalue",
        "lambda_g": "lambda_g",
        "norm": "norm",
    }
    return _means("curvature, means over trials", curvature, heads, "below 1")


def _means(title: str, frame: pd.DataFrame, heads: Mapping[str, str], held_head: str) -> Table:
    """Return the means of some columns for each method, and how often the claim held."""
    names, means = metrics.order(frame), frame.groupby("label")[list(heads)].mean()
    held = frame.groupby("label")["held"]
    columns = [
        *(Column((head,), _cells(means[name], names)) for name, head in heads.items()),
        Column((held_head,), [Cell(f"{held.sum()[n]} of {held.size()[n]}") for n in names]),
    ]
    return assemble(title, names, columns)


def _cells(values: "pd.Series[float]", names: Sequence[str]) -> list[Cell]:
    return [Cell(f"{values[name]:.3g}", float(values[name])) for name in names]


# --- the paper alone ------------------------------------------------------------------------------


def published_report() -> Report:
    """Return all results tables of the paper, its Fig. 1 and its known slips."""
    rankings = printed_rankings()
    ranks = Picture(
        "figure-1",
        figures.average_ranks(rankings),
        "Fig. 1: average ranks over the five scenarios of the two main tables.",
        partial(figures.critical_difference, rankings),
    )
    told = Points(
        tuple(
            f"{title}. {sentence}"
            for title, ranking in rankings.items()
            for sentence in ranking_sentences(ranking)
        )
    )
    numbered = [
        Section(f"Table {name}", name.lower().replace("_", "-"), [Shown(name, table)])
        for name, table in published.tables().items()
    ]
    return Report(
        "The FedGPS paper in its own numbers",
        (
            f"All {len(numbered)} results tables, made from the printed accuracies and rounds by"
            " the code that makes ours. Values are as printed; what contradicts the paper's other"
            " numbers is listed, not corrected.",
        ),
        [Section("Figure 1", "figure-1", [ranks, told]), *numbered, slips_section()],
        methods=tuple(metrics.order(published.runs())),
    )


def _printed(value: Any) -> str:
    """Return a cell of the list of slips; methods under their published names."""
    return published_name(value) if isinstance(value, str) else "" if pd.isna(value) else str(value)


def slips_section() -> Section:
    """Return where the paper contradicts itself."""
    frame = published.slips()
    columns = [
        Column((str(name),), [Cell(_printed(value)) for value in frame[name]])
        for name in frame.columns.drop("table")
    ]
    names = [str(name).replace("tab:", "") for name in frame["table"]]
    table = with_corner("table", assemble("known slips", names, columns))
    return Section("Known slips", "slips", [Shown("slips", table)])
