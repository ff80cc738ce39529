"""The study's images, picked out of anybody's copy of CIFAR by what they show.

    python -m fedgps_ray.experiments.evidence.images cifar10 --data-dir DATA --out images.npz
    python -m fedgps_ray.experiments.evidence.images cifar10 --npz images.npz --side 16 --out s.npz

`hashes.npz` lists the first eight bytes of each image's SHA-256, in the order of the study.
"""

import argparse
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedgps_ray.data import npz, vision
from fedgps_ray.data.datasets import Source
from fedgps_ray.errors import UserError

HASHES = Path(__file__).parent / "hashes.npz"
Images = NDArray[np.uint8]
Arrays = Mapping[str, Any]
SETS: dict[str, Literal["CIFAR10", "CIFAR100"]] = {"cifar10": "CIFAR10", "cifar100": "CIFAR100"}


def prefixes(images: Images) -> NDArray[np.uint64]:
    """Return the first eight bytes of each image's SHA-256 as a number."""
    digests = [hashlib.sha256(image.tobytes()).digest()[:8] for image in images]
    return np.frombuffer(b"".join(digests), dtype=">u8").astype(np.uint64)


def listed(name: str) -> dict[str, NDArray[np.uint64]]:
    """Return the study's list for a data set: hashes of its training and its test images."""
    with np.load(HASHES) as archive:
        return {part: archive[f"{name}_{part}"] for part in ("train", "test")}


def pick(arrays: Arrays, wanted: dict[str, NDArray[np.uint64]]) -> dict[str, NDArray[Any]]:
    """Return the listed images with their labels, in the order of the list."""
    picked: dict[str, NDArray[Any]] = {"classes": np.array(arrays["classes"])}
    for part in ("train", "test"):
        images, labels = arrays[f"x_{part}"], np.asarray(arrays[f"y_{part}"])
        where = {int(value): place for place, value in enumerate(prefixes(images))}
        missing = sum(int(value) not in where for value in wanted[part])
        if missing:
            raise UserError(
                f"{missing} of the study's {len(wanted[part])} {part} images are not in this copy:"
                " it is not the original data set, or its pixels were changed"
            )
        places = np.array([where[int(value)] for value in wanted[part]])
        picked[f"x_{part}"], picked[f"y_{part}"] = images[places], labels[places]
    return picked


def smaller(images: Images, side: int) -> Images:
    """Return the images at another side, which divides theirs: the mean of each block of pixels."""
    number, height, width, channels = images.shape
    if side < 1 or height % side or width % side:
        raise UserError(f"--side {side} does not divide images of {height}x{width} pixels")
    blocks = images.reshape(number, side, height // side, side, width // side, channels)
    sums = blocks.sum(axis=(2, 4), dtype=np.int64)
    size = (height // side) * (width // side)
    # in whole numbers, halves rounded up: the same on every machine
    means: Images = ((2 * sums + size) // (2 * size)).astype(np.uint8)
    return means


def main() -> None:
    """Write the study's images to a file."""
    parser = argparse.ArgumentParser(description="Pick the images of the evidence study.")
    parser.add_argument("name", choices=SETS)
    parser.add_argument("--npz", type=Path, help="a file that holds them already")
    parser.add_argument("--data-dir", type=Path, help="folder of the original CIFAR files")
    parser.add_argument("--download", action="store_true", help="fetch CIFAR into that folder")
    parser.add_argument("--side", type=int, default=32, help="16: halve the resolution")
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    try:
        write(asked)
    except UserError as problem:
        parser.exit(2, f"error: {problem}\n")


def write(asked: argparse.Namespace) -> None:
    """Read, pick, shrink and save."""
    if asked.npz is not None:
        arrays: Arrays = npz.read(asked.npz)
    else:
        folder = Source(asked.data_dir).folder
        arrays = vision.cifar(SETS[asked.name], folder, asked.download)
    picked = pick(arrays, listed(asked.name))
    for part in ("x_train", "x_test"):
        picked[part] = smaller(picked[part], asked.side)
    np.savez(asked.out, allow_pickle=False, **picked)


if __name__ == "__main__":
    main()
