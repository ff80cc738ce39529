"""Experiment files: one TOML file to all trials of a study."""

from fedgps_ray.experiment.cells import Experiment, GridCell, from_tables, load
from fedgps_ray.experiment.files import resolve
from fedgps_ray.experiment.paper import paper_files, scaled
from fedgps_ray.experiment.search import Choices, Range, Search, Span

__all__ = [
    "Choices",
    "Experiment",
    "GridCell",
    "Range",
    "Search",
    "Span",
    "from_tables",
    "load",
    "paper_files",
    "resolve",
    "scaled",
]
