"""methods, datasets, models: what there is."""

import textwrap
from typing import Any

from rich.padding import Padding

from fedgps_ray.api.listing import facts
from fedgps_ray.cli.app import out, pairs, show_json
from fedgps_ray.cli.declared import Datasets, Methods, Models
from fedgps_ray.data.datasets import DATASETS
from fedgps_ray.experiment.files import named_method
from fedgps_ray.identity import Table
from fedgps_ray.methods import METHODS
from fedgps_ray.models import MODELS
from fedgps_ray.references import Code, published

NARROWEST = 20  # characters of an idea


def methods(options: Methods) -> None:
    """List the methods, one per line, or show some of them in full."""
    known = {name: _facts(*named_method(name)) for name in options.names or METHODS}
    if options.as_json:
        show_json(known)
    elif options.names:
        _show_in_full(known)
    else:
        _show_briefly({name: told["idea"] for name, told in known.items()})


def _show_briefly(ideas: dict[str, str]) -> None:
    """Print one line per method, so that all fit on a screen."""
    column = max(map(len, ideas)) + 2
    for name, idea in ideas.items():
        short = textwrap.shorten(idea, max(NARROWEST, out.width - column), placeholder=" ...")
        out.print(f"{name:<{column}}{short}", highlight=False, markup=False)
    out.print("More about one, with its settings: fedgps-ray methods NAME", highlight=False)


def _show_in_full(known: dict[str, Table]) -> None:
    for name, told in known.items():
        lines = {key: _inline(value) for key, value in told.items() if value}
        out.print(f"[bold]{name}[/]", highlight=False)
        out.print(Padding(pairs(lines), (0, 0, 1, 2)))
    out.print("M: numbers in the model, C: classes, d: features. Change a default with --set.")


def _facts(kind: Any, code: Code | None) -> Table:
    own = {} if code is None else {"code": f"{code.target}, sha256 {code.sha256}"}
    return {**facts(kind), **own}


def _inline(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {item}" for key, item in value.items())
    return ", ".join(value) if isinstance(value, list) else str(value)


def datasets(options: Datasets) -> None:
    """List the data sets."""
    _list({**DATASETS, **published("dataset")}, options.as_json)


def models(options: Models) -> None:
    """List the models."""
    own = {name: kind.explanation for name, kind in MODELS.items()}
    _list({**own, **published("model")}, options.as_json)


def _list(lines: dict[str, str], as_json: bool) -> None:
    if as_json:
        show_json(lines)
    else:
        out.print(pairs(lines))
