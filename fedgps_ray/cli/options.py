"""Options of the commands to specs."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedgps_ray.errors import UserError

if TYPE_CHECKING:  # torch takes a second to import: help and mistakes should not wait for it
    from fedgps_ray.spec import TrialSpec

Dataset = Annotated[
    str,
    typer.Option(help="digits, synthetic, cifar10, cifar100, svhn, or the path of an .npz file."),
]
Partition = Annotated[str, typer.Option(help="How data is shared out: dirichlet, classes or iid.")]
Alpha = Annotated[
    float | None, typer.Option(help="Dirichlet: the smaller, the more skewed. Default 0.1.")
]
ClassesEach = Annotated[
    int | None, typer.Option(help="classes: how many each client has. Default 2.")
]
Clients = Annotated[int, typer.Option(help="Number of clients.")]
Scenario = Annotated[int, typer.Option(help="Which draw of the partition: 1, 2, ...")]
DataDir = Annotated[Path | None, typer.Option(help="Folder with the files of CIFAR or SVHN.")]
Download = Annotated[bool, typer.Option("--download", help="Download CIFAR or SVHN if missing.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", help="Any other setting: --set method.rho=0.3 --set optimizer.lr=0.05"),
]
Actors = Annotated[
    str | None,
    typer.Option(help="Client actors of a trial: a number, or auto; for run also 0: no Ray."),
]
ClientCpus = Annotated[float | None, typer.Option(help="CPUs of a client actor.")]
ClientGpus = Annotated[float | None, typer.Option(help="GPU share of a client actor.")]
Address = Annotated[
    str | None,
    typer.Option(help="Join a Ray cluster: auto, HOST:PORT, ray://HOST:PORT. Default: start one."),
]
Device = Annotated[str, typer.Option(help="auto: cuda with a GPU share.")]
CheckpointSeconds = Annotated[float | None, typer.Option(help="Time between checkpoints.")]


def trial(values: dict[str, Any], settings: list[str]) -> tuple["TrialSpec", dict[str, str]]:
    """Return the spec, and where the .npz files lie that it names by content."""
    from fedgps_ray.experiment import resolve
    from fedgps_ray.experiment.tables import parse_setting, put

    for setting in settings:
        put(values, *parse_setting(setting))
    return resolve(values)


def partition(kind: str, alpha: float | None, classes_per_client: int | None) -> dict[str, Any]:
    """Return the partition that options describe."""
    if alpha is not None and kind != "dirichlet":
        raise UserError(f"--alpha {alpha} is for --partition dirichlet, not {kind}")
    if classes_per_client is not None and kind != "classes":
        given = f"--classes-per-client {classes_per_client}"
        raise UserError(f"{given} is for --partition classes, not {kind}")
    own = {"alpha": alpha, "classes_per_client": classes_per_client}
    return {"kind": kind} | {key: value for key, value in own.items() if value is not None}


def with_token(address: str | None) -> None:
    """Let Ray show its token to a cluster; it reads this when it is imported, so say it before.

    A cluster that is reached through Ray Client runs the whole command itself, which ends here.
    """
    if address is None:
        return
    os.environ.setdefault("RAY_AUTH_MODE", "token")
    if address.startswith("ray://"):
        from fedgps_ray.cluster.handover import hand_over

        raise typer.Exit(hand_over(address, sys.argv[1:], print))


def execution(actors: str | None, device: str, **others: Any) -> dict[str, Any]:
    """Return what options say about how a sweep is carried out; None: the file decides."""
    known = None if actors is None else number_of_actors(actors)
    return {"actors": known, "device": known_device(device), **others}


def number_of_actors(given: str) -> Any:
    """Return a number of actors, or auto."""
    if given == "auto":
        return given
    if not given.isdigit():
        raise UserError(f"--actors {given}: expected auto, 0, or a number of actors")
    return int(given)


def known_device(name: str) -> Any:
    """Return a device that exists here."""
    import torch

    if name not in ("auto", "cpu", "cuda"):
        raise UserError(f"--device {name}: use auto, cpu or cuda")
    if name == "cuda" and not torch.cuda.is_available():
        raise UserError("--device cuda: PyTorch finds no GPU here; use --device auto or cpu")
    return name
