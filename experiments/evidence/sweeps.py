"""The sweeps of the study: the name of each results folder, its file, its number of trials."""

from pathlib import Path
from typing import NamedTuple


class Sweep(NamedTuple):
    """What a sweep is for, its experiment file, and its number of trials."""

    about: str
    file: str
    trials: int


SWEEPS = {
    "fedadam": Sweep("FedAdam's server rate", "tuning/fedadam.toml", 14),
    "tuning": Sweep("learning rates", "tuning/depth.toml", 24),
    "depth": Sweep("CIFAR-10 small, `convnet`", "depth.toml", 78),
    "breadth": Sweep("digits, `cnn`", "breadth.toml", 330),
    "ablation": Sweep("seven switches of FedGPS", "ablation.toml", 32),
    "cifar100": Sweep("CIFAR-100 small, `convnet`", "cifar100.toml", 12),
    "lengths": Sweep("how far ahead, how much noise", "lengths.toml", 6),
    "cnn": Sweep("CIFAR-10 small, `cnn`", "depth_cnn.toml", 8),
}

MAIN = "depth"


def place(results: Path, name: str) -> Path:
    """Return the folder of a sweep's published results: a report on the whole is on what decides.

    The other sweeps have a folder each, so that no report mixes them.
    """
    return results if name == MAIN else results / name
