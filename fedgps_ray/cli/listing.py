"""Commands that list what there is: methods, datasets, models."""

import json
from typing import Annotated, Any

import typer
from rich.padding import Padding

from fedgps_ray.cli.app import Json, app, out, pairs
from fedgps_ray.errors import unknown


@app.command(epilog="Example: fedgps-ray methods fedgps scaffold")
def methods(
    names: Annotated[list[str] | None, typer.Argument(help="Default: all.")] = None,
    as_json: Json = False,
) -> None:
    """List the methods: idea, both sides, state, cost, hyperparameters with their defaults."""
    from fedgps_ray.methods import METHODS

    for name in names or []:
        if name not in METHODS:
            raise unknown("method", name, METHODS)
    known = {name: _method_facts(METHODS[name]) for name in names or METHODS}
    if as_json:
        print(json.dumps(known))
        return
    for name, facts in known.items():
        lines = {key: _inline(value) for key, value in facts.items() if value}
        out.print(f"[bold]{name}[/]", highlight=False)
        out.print(Padding(pairs(lines), (0, 0, 1, 2)))
    out.print("M: numbers in the model, C: classes, d: features. Change a default with --set.")


def _method_facts(kind: Any) -> dict[str, Any]:
    import dataclasses

    from fedgps_ray.methods import about, title

    return {
        "title": title(kind),
        "idea": (kind.__doc__ or "").split("\n")[0],
        **about(kind)._asdict(),
        "method": dataclasses.asdict(kind()),
        "optimizer": dataclasses.asdict(kind.optimizer),
        "presets": list(kind.presets),
    }


def _inline(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {item}" for key, item in value.items())
    return ", ".join(value) if isinstance(value, list) else str(value)


@app.command(epilog="Example: fedgps-ray datasets")
def datasets(as_json: Json = False) -> None:
    """List the data sets."""
    from fedgps_ray.data.datasets import DATASETS

    _list("data set", DATASETS, as_json)


@app.command(epilog="Example: fedgps-ray models")
def models(as_json: Json = False) -> None:
    """List the models."""
    from fedgps_ray.models import MODELS

    _list("model", {name: kind.explanation for name, kind in MODELS.items()}, as_json)


def _list(kind: str, lines: dict[str, str], as_json: bool) -> None:
    if as_json:
        print(json.dumps(lines))
    else:
        out.print(pairs(lines))
