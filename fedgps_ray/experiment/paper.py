"""The paper's tables as experiment files, and the same grids at the size of a laptop."""

import math
from importlib import resources
from pathlib import Path

from fedgps_ray.errors import unknown
from fedgps_ray.experiment.cells import Experiment, GridCell
from fedgps_ray.experiment.files import resolve
from fedgps_ray.identity import Table
from fedgps_ray.spec import TrialSpec

SMALL_ROUNDS = 3
SMALL_MODELS = {"resnet18": "convnet", "resnet50": "convnet"}  # the others are small
SMALL_IMAGES = {"name": "synthetic", "image_size": 8, "train_size": 1200, "test_size": 300}
STAND_INS: dict[str, Table] = {  # seeds keep the data sets apart
    "cifar10": {"seed": 0},
    "svhn": {"seed": 1},
    "cifar100": {"seed": 2, "num_classes": 20},
}


def paper_files() -> dict[str, Path]:
    """Return the experiment file of each of the paper's tables and figures by its name."""
    folder = Path(str(resources.files("fedgps_ray.experiments"))) / "paper"
    return {path.stem: path for path in sorted(folder.glob("*.toml"))}


def scaled(
    experiment: Experiment,
    scale: str = "small",
    dataset: str | None = None,
    rounds: int | None = None,
) -> Experiment:
    """Return the same grid with small images, a small model, few rounds and fewer clients.

    Methods, hyperparameters, scenarios, seeds and the kind of partition stay. Images are generated,
    or come from the .npz file given as dataset. Cells that fall together are kept once; labels are
    still those of the full grid.
    """
    if scale != "small":
        raise unknown("scale", scale, ["small"])
    cells: dict[str, GridCell] = {}
    files = dict(experiment.files)
    for cell in experiment.cells:
        spec, own = resolve({**cell.spec.model_dump(), **_smaller(cell.spec, dataset, rounds)})
        cells.setdefault(spec.trial_id, GridCell(spec, cell.label))
        files |= own
    return experiment._replace(
        name=f"{experiment.name}_{scale}",
        title=f"{experiment.title} ({scale} scale)",
        cells=tuple(cells.values()),
        files=files,
    )


def _smaller(spec: TrialSpec, dataset: str | None, rounds: int | None) -> Table:
    stand_in = STAND_INS.get(spec.dataset.name)
    generated = spec.dataset if stand_in is None else {**SMALL_IMAGES, **stand_in}
    return {
        "dataset": generated if dataset in (None, "synthetic") else dataset,
        "model": SMALL_MODELS.get(str(spec.model), spec.model),
        "rounds": min(spec.rounds, SMALL_ROUNDS) if rounds is None else rounds,
        "clients": _fewer_clients(spec),
    }


def _fewer_clients(spec: TrialSpec) -> int:
    """Return 30 for 100 clients and 70 for 500, or what it takes to draw two a round."""
    two = math.ceil(1.5 / spec.sampling_rate)
    return min(spec.clients, max(20 + spec.clients // 10, two))
