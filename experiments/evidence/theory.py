"""Measures the terms of the theory on final models of the study, for the page.

    python -m fedgps_ray.experiments.evidence.theory runs/evidence/depth --out RESULTS

Needs the models that the sweep left and the images; a model takes up to a minute on one core. The
results folder must have been collected before: only its trials are measured. What was measured
before stays, and is not measured again.
"""

import argparse
from collections.abc import Callable
from pathlib import Path

import torch

from fedgps_ray.errors import UserError
from fedgps_ray.experiments.evidence import study
from fedgps_ray.results import files
from fedgps_ray.tools.theory import measure

VARIANTS = ("FedAvg", "VHL", "FedGPS", study.MATCHED, study.NO_PATH, study.RELATIVE)
SCENARIO, SEED = 1, 1


def measure_models(sweep: Path, results: Path, notify: Callable[[str], None]) -> Path:
    """Write theory.json: the terms for one trial of each variant, all on the same draw."""
    known = study.read(results)
    trials = known.of("depth")
    here = trials[(trials["scenario"] == SCENARIO) & (trials["seed"] == SEED)]
    names = {row["variant"]: str(row["trial_id"]) for row in here.to_dict("records")}
    found = dict(known.theory.get("trials", {}))
    for variant in (name for name in VARIANTS if name in names):
        folder = sweep / "trials" / names[variant]
        if folder.name not in found and folder.exists():
            notify(f"measuring {variant}")
            found[folder.name] = measure(folder)
            files.write_json(results / study.THEORY, {"trials": found}, durable=False)
    if not found:
        raise UserError(f"none of the trials to measure has finished in {sweep}")
    return results / study.THEORY


def main() -> None:
    """Measure what is named on the command line."""
    parser = argparse.ArgumentParser(description="Measure the theory's terms on final models.")
    parser.add_argument("sweep", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    try:
        path = measure_models(asked.sweep, asked.out, lambda text: print(text, flush=True))  # noqa: T201
    except UserError as problem:
        parser.exit(2, f"error: {problem}\n")
    parser.exit(0, f"{path}\n")


if __name__ == "__main__":
    main()
