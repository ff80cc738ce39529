"""Options that several commands share, and what can be checked of them without PyTorch or Ray."""

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from fedgps_ray.errors import UserError, unknown
from fedgps_ray.identity import Table
from fedgps_ray.results.folders import check_folder

DATASETS = (
    *("digits", "synthetic", "cifar10", "cifar100", "svhn", "mnist", "fashion_mnist"),
    *("kmnist", "qmnist", "emnist", "usps", "stl10"),
)
MODELS = ("mlp", "cnn", "convnet", "resnet18", "resnet50", "vit")
LOGGERS = ("csv", "tensorboard", "wandb", "mlflow")
PARTITIONS = ("dirichlet", "classes", "iid", "natural")
DEVICES = ("auto", "cpu", "cuda")
NUMBER = re.compile("[0-9]{1,9}")
SPLIT, WHERE = "How data is split", "Where it runs"  # headings in the help


def use_token(address: str | None) -> str | None:
    """Let Ray show its token to a cluster; it reads this variable when it is imported."""
    if address is not None:
        os.environ.setdefault("RAY_AUTH_MODE", "token")
    return address


def completing(names: Sequence[str]) -> Callable[[str], list[str]]:
    """Return what a shell asks for the names that begin with what was typed."""

    def complete(incomplete: str) -> list[str]:
        return [name for name in names if name.startswith(incomplete)]

    return complete


Json = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]
OWN = "or your own: my_file.py:Name"
Dataset = Annotated[
    str,
    typer.Option(
        help=f"{', '.join(DATASETS)}, the path of your own data, {OWN}.",
        autocompletion=completing(DATASETS),
    ),
]
Clients = Annotated[int, typer.Option(min=1, help="Number of clients.")]
DataDir = Annotated[
    Path | None,
    typer.Option(
        help="Folder with the files of data sets by name, such as cifar10.", rich_help_panel=WHERE
    ),
]
Download = Annotated[
    bool,
    typer.Option(
        "--download", help="Download the data set if it is missing.", rich_help_panel=WHERE
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", help="Any other setting: --set method.rho=0.3 --set optimizer.lr=0.05"),
]
Address = Annotated[
    str | None,
    typer.Option(
        help="Join a Ray cluster: auto, HOST:PORT, ray://HOST:PORT. Default: start one.",
        rich_help_panel=WHERE,
        callback=use_token,
        envvar="FEDGPS_RAY_ADDRESS",
    ),
]
Storage = Annotated[
    str | None,
    typer.Option(
        help="For a sweep: keep results at this URI (s3://, gs://, file://); the folder is a copy.",
        rich_help_panel=WHERE,
    ),
]
ResultsFolder = Annotated[Path, typer.Argument(help="The folder of a run or a sweep.")]


@dataclass(frozen=True, kw_only=True)
class Split:
    """How a data set is split among clients."""

    partition: Annotated[
        str,
        typer.Option(
            help="dirichlet, classes, iid, or natural: as the data set says.",
            rich_help_panel=SPLIT,
            autocompletion=completing(PARTITIONS),
        ),
    ] = "dirichlet"
    alpha: Annotated[
        float | None,
        typer.Option(
            help="dirichlet: the smaller, the more skewed. Default: 0.1.", rich_help_panel=SPLIT
        ),
    ] = None
    classes_per_client: Annotated[
        int | None,
        typer.Option(
            min=1, help="classes: how many each client has. Default: 2.", rich_help_panel=SPLIT
        ),
    ] = None
    scenario: Annotated[
        int,
        typer.Option(min=1, help="Which draw of the partition: 1, 2, ...", rich_help_panel=SPLIT),
    ] = 1

    def __post_init__(self) -> None:
        if self.partition not in PARTITIONS:
            raise unknown("partition", self.partition, PARTITIONS)
        for kind, name in (("dirichlet", "alpha"), ("classes", "classes_per_client")):
            value = getattr(self, name)
            if value is not None and kind != self.partition:
                option = f"--{name.replace('_', '-')} {value}"
                raise UserError(f"{option} is for --partition {kind}, not {self.partition}")
        if self.alpha is not None:
            check_positive("--alpha", self.alpha)

    @property
    def settings_of_partition(self) -> Table:
        """Return the partition as a table of settings."""
        own = {"alpha": self.alpha, "classes_per_client": self.classes_per_client}
        given = {key: value for key, value in own.items() if value is not None}
        return {"kind": self.partition, **given}


@dataclass(frozen=True, kw_only=True)
class Execution:
    """How and where trials run; None leaves it to the experiment file or the default."""

    actors: Annotated[
        str | None,
        typer.Option(
            help="Client actors of a trial: a number or auto; for run also 0: without Ray."
            " Default: auto.",
            rich_help_panel=WHERE,
        ),
    ] = None
    client_cpus: Annotated[
        float | None,
        typer.Option(help="CPUs of a client actor. Default: 1.", rich_help_panel=WHERE),
    ] = None
    client_gpus: Annotated[
        float | None,
        typer.Option(help="GPU share of a client actor. Default: 0.", rich_help_panel=WHERE),
    ] = None
    device: Annotated[
        str | None,
        typer.Option(
            help="cpu, cuda, or auto: cuda with a GPU share; part of a trial's settings."
            " Default: auto.",
            rich_help_panel=WHERE,
        ),
    ] = None
    address: Address = None
    data_dir: DataDir = None
    download: Download = False
    checkpoint_seconds: Annotated[
        float | None,
        typer.Option(
            min=0, help="Seconds between checkpoints. Default: 30.", rich_help_panel=WHERE
        ),
    ] = None
    log: Annotated[
        list[str] | None,
        typer.Option(
            help="Also write the rounds for csv, tensorboard, wandb or mlflow; may be repeated.",
            rich_help_panel=WHERE,
            autocompletion=completing(LOGGERS),
        ),
    ] = None

    def __post_init__(self) -> None:
        if self.actors not in (None, "auto") and not NUMBER.fullmatch(str(self.actors)):
            raise UserError(f"--actors {self.actors}: expected auto, 0, or a number of actors")
        if self.device not in (None, *DEVICES):
            raise UserError(f"--device {self.device}: use auto, cpu or cuda")
        if self.client_cpus is not None:
            check_positive("--client-cpus", self.client_cpus)
        for name in self.log or []:
            if name not in LOGGERS:
                raise unknown("logger", name, LOGGERS)

    @property
    def wanted(self) -> Table:
        """Return what was asked for, as settings of an ExecutionSpec."""
        actors = self.actors if self.actors in (None, "auto") else int(str(self.actors))
        settings = {
            "actors": actors,
            "client_cpus": self.client_cpus,
            "client_gpus": self.client_gpus,
            "device": self.device,
            "address": self.address,
            "data_dir": self.data_dir,
            "download": self.download or None,
            "checkpoint_seconds": self.checkpoint_seconds,
            "log": tuple(dict.fromkeys(self.log)) if self.log else None,
        }
        return {name: value for name, value in settings.items() if value is not None}


@dataclass(frozen=True, kw_only=True)
class Launch(Execution):
    """The options of everything that launches many trials."""

    settings: Settings = None
    folder: Annotated[
        Path | None, typer.Option("--out", help="Folder for results; default: runs/NAME.")
    ] = None
    reuse: Annotated[
        list[Path] | None,
        typer.Option(
            help="Copy finished trials from this folder instead of running them; may be repeated.",
        ),
    ] = None
    storage: Storage = None
    max_concurrent: Annotated[
        int | None,
        typer.Option(min=1, help="Maximum number of trials at a time; default: as many as fit."),
    ] = None
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would run.")] = False
    as_json: Json = False

    def __post_init__(self) -> None:
        super().__post_init__()
        for folder in self.reuse or []:
            check_folder(folder)
        if self.actors is not None and not self.actors.strip("0"):
            raise UserError("--actors 0: a sweep runs on Ray; use 1 or more, or auto")

    @property
    def wanted(self) -> Table:
        """Return what was asked for, as settings of an ExecutionSpec."""
        return super().wanted | ({} if self.storage is None else {"storage": self.storage})


def check_positive(option: str, value: float) -> None:
    """Refuse what is not a number above zero."""
    if not 0 < value < float("inf"):
        raise UserError(f"{option} {value:g}: must be a number greater than 0")
