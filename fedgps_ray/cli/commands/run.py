"""run: Ray starts in the background, if it will be needed, while PyTorch is imported."""

import json
import shutil
from pathlib import Path

import fedgps_ray
from fedgps_ray.cli.declared import Run
from fedgps_ray.cli.options import DATASETS, MODELS
from fedgps_ray.loading import load, use_large_pages
from fedgps_ray.results import files
from fedgps_ray.results.schema import ENDED

METHODS_FOLDER = Path(fedgps_ray.__file__).with_name("methods")
TRIALS_LOOKED_AT = 100
SMALL, SMALL_MODELS = ("digits", "synthetic"), ("mlp",)  # what a client trains on in milliseconds
BRIEF_TURNS = 1000  # of clients
USUAL_ROUNDS = 50


def run(options: Run) -> None:
    """Run one trial."""
    use_large_pages()
    if options.actors != "0" and _will_train(options) and not _may_be_brief(options):
        load("fedgps_ray.cluster.session:start_early")(options.address)
    load("fedgps_ray.cli.commands.trials:run")(options)


def _will_train(options: Run) -> bool:
    """Guess whether the settings are right and the trial has not ended; wrong costs time only."""
    if (options.device == "cuda" or options.client_gpus) and not _has_gpu(options):
        return False
    method = (METHODS_FOLDER / f"{options.method}.py").exists() or _exists(options.method)
    known = method and (options.model in MODELS or _exists(options.model))
    data = options.dataset in DATASETS or _exists(options.dataset)
    return known and data and (options.restart or not _may_have_ended(options))


def _exists(name: str) -> bool:
    """Say whether a name is that of a file, or of something in a Python file."""
    place = name.rpartition(":")[0] if ".py:" in name else name
    return Path(place).is_file()


def _may_be_brief(options: Run) -> bool:
    """Guess whether the trial will stay in this process; wrong costs time only."""
    small = options.dataset in SMALL and options.model in SMALL_MODELS
    turns = (options.rounds or USUAL_ROUNDS) * options.clients * options.sampling_rate
    return options.actors in (None, "auto") and small and turns < BRIEF_TURNS


def _has_gpu(options: Run) -> bool:
    return options.address is not None or shutil.which("nvidia-smi") is not None


def _may_have_ended(options: Run) -> bool:
    """Say whether a trial that looks like this one has ended in this folder."""
    paths = list(options.folder.glob("trials/*/trial.json"))
    return len(paths) > TRIALS_LOOKED_AT or any(_looks_done(path, options) for path in paths)


def _looks_done(path: Path, options: Run) -> bool:
    try:
        info = json.loads(files.read_bytes(path))
        spec = info["spec"]
        same = (spec["method"]["name"], spec["seed"]) == (Path(options.method).name, options.seed)
    except (OSError, ValueError, LookupError, TypeError):
        return True  # damaged: whoever reads it next says so
    return same and info.get("status") in ENDED
