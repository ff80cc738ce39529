"""All commands in the order of the help: names, options and examples, without PyTorch or Ray."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from fedgps_ray.cli.app import app, command, new, paper
from fedgps_ray.cli.options import (
    MODELS,
    OWN,
    WHERE,
    Address,
    Clients,
    DataDir,
    Dataset,
    Download,
    Execution,
    Json,
    Launch,
    ResultsFolder,
    Settings,
    Split,
    Storage,
    check_positive,
    completing,
)
from fedgps_ray.errors import UserError, unknown
from fedgps_ray.identity import Table
from fedgps_ray.results.folders import check_file, check_folder
from fedgps_ray.titles import TITLES

SCALES = ("full", "small")
METHODS = tuple(TITLES)  # of the package
TABLES = ("rounds", "clients", "trials", "partitions")
TrustCode = Annotated[
    bool,
    typer.Option(
        "--trust-code", help="If your code differs, run the copy that is kept in the folder."
    ),
]
TableName = Annotated[str, typer.Argument(help="A name of `fedgps-ray paper list`.")]


@command("run", "run:run", "run --method fedgps --clients 10 --alpha 0.1 --rounds 20")
@dataclass(frozen=True, kw_only=True)
class Run(Execution, Split):
    """Run one trial; a finished one is not run again, an interrupted one continues."""

    dataset: Dataset = "digits"
    model: Annotated[
        str,
        typer.Option(help=f"{', '.join(MODELS)}, {OWN}.", autocompletion=completing(MODELS)),
    ] = "cnn"
    method: Annotated[
        str,
        typer.Option(help=f"See `fedgps-ray methods`, {OWN}.", autocompletion=completing(METHODS)),
    ] = "fedgps"
    preset: Annotated[
        str | None,
        typer.Option(help="FedGPS as in the public code (official) or the text (paper)."),
    ] = None
    clients: Clients = 10
    sampling_rate: Annotated[
        float, typer.Option(min=0, max=1, help="Share of the clients that train in a round.")
    ] = 0.5
    rounds: Annotated[
        int | None, typer.Option(min=1, help="Number of rounds; default: 50, for digits 60.")
    ] = None
    local_epochs: Annotated[
        int, typer.Option(min=1, help="Passes over a client's data in a round.")
    ] = 1
    batch_size: Annotated[
        int | None, typer.Option(min=1, help="Images per step; default: 64, for digits 8.")
    ] = None
    lr: Annotated[float | None, typer.Option(help="Learning rate; default: the method's.")] = None
    seed: Annotated[
        int, typer.Option(min=0, help="Seed of initial weights, selection and batches.")
    ] = 0
    settings: Settings = None
    folder: Annotated[Path, typer.Option("--out", help="Folder for results.")] = Path(
        "runs/default"
    )
    restart: Annotated[
        bool, typer.Option("--restart", help="Discard what this trial has done and start over.")
    ] = False
    as_json: Json = False

    def __post_init__(self) -> None:
        Execution.__post_init__(self)
        Split.__post_init__(self)
        check_positive("--sampling-rate", self.sampling_rate)
        if self.lr is not None:
            check_positive("--lr", self.lr)


@command("resume", "resume:resume", "resume runs/default")
@dataclass(frozen=True, kw_only=True)
class Resume(Execution):
    """Continue a sweep, or every trial of a folder that was interrupted or failed.

    Say here where it runs and where it reads and stores data: a folder may come from anyone.
    """

    folder: Annotated[
        Path,
        typer.Argument(help="A results folder, or a trial's folder."),
    ]
    failed: Annotated[
        bool, typer.Option("--failed", help="For a sweep: also rerun the trials that failed.")
    ] = False
    trust_code: TrustCode = False
    storage: Storage = None
    as_json: Json = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_folder(self.folder)

    @property
    def wanted(self) -> Table:
        """Return what was asked for, as settings of an ExecutionSpec."""
        return super().wanted | ({} if self.storage is None else {"storage": self.storage})


@command("partition", "partition:partition", "partition --dataset digits --clients 10 --alpha 0.1")
@dataclass(frozen=True, kw_only=True)
class Partition(Split):
    """Show which client holds which classes, as a heat map and a PNG, and how skewed it is."""

    dataset: Dataset = "digits"
    clients: Clients = 10
    settings: Settings = None
    png: Annotated[Path | None, typer.Option(help="Where to write the figure.")] = None
    data_dir: DataDir = None
    download: Download = False
    as_json: Json = False


@command("sweep", "sweep:sweep", "sweep experiments/quickstart.toml --set 'seed=[0,1,2]'")
@dataclass(frozen=True, kw_only=True)
class Sweep(Launch):
    """Run all trials of an experiment file that have not ended yet, here or on a cluster."""

    file: Annotated[Path, typer.Argument(help="An experiment file (.toml).")]

    def __post_init__(self) -> None:
        super().__post_init__()
        check_file(self.file)


@command("watch", "watch:watch", "watch runs/quickstart")
@dataclass(frozen=True, kw_only=True)
class Watch:
    """Show a run or sweep live from another terminal, also after it has ended.

    Keys: q leaves, j/k or arrows scroll, / filters, s sorts, t lists the trials, f the failures.
    """

    folder: ResultsFolder
    once: Annotated[bool, typer.Option("--once", help="Show it once and exit.")] = False
    svg: Annotated[Path | None, typer.Option(help="Also write what is shown to this SVG file.")] = (
        None
    )

    def __post_init__(self) -> None:
        check_folder(self.folder)


@command("status", "status:status", "status runs/quickstart --timing")
@dataclass(frozen=True, kw_only=True)
class Status:
    """Show what is finished, running, failed and missing, also for results folders below."""

    folder: ResultsFolder
    timing: Annotated[
        bool, typer.Option("--timing", help="Also show how much of the time was spent training.")
    ] = False
    verify: Annotated[
        bool,
        typer.Option("--verify", help="Compare every file with its hash; exit 1 if one differs."),
    ] = False
    as_json: Json = False

    def __post_init__(self) -> None:
        check_folder(self.folder)


@command("report", "report:report", "report runs/quickstart --against paper")
@dataclass(frozen=True, kw_only=True)
class Report:
    """Write tables, statistics and figures with a report.html, and show the comparison."""

    folders: Annotated[
        list[Path] | None,
        typer.Argument(help="Results folders, of runs or sweeps."),
    ] = None
    target: Annotated[
        Path | None, typer.Option("--out", help="Folder of the report; default FOLDER/report.")
    ] = None
    against: Annotated[
        str | None, typer.Option(help="paper: also show the published numbers next to ours.")
    ] = None
    published: Annotated[
        bool, typer.Option("--published", help="Report on the paper's printed numbers alone.")
    ] = False
    theory: Annotated[
        bool, typer.Option("--theory", help="Also measure the terms of the paper's theory.")
    ] = False
    data_dir: DataDir = None
    follow: Annotated[
        bool,
        typer.Option("--follow", help="Rewrite the page while a sweep runs; it reloads itself."),
    ] = False
    as_json: Json = False

    def __post_init__(self) -> None:
        if self.follow and self.theory:
            raise UserError("--theory measures finished trials; use it without --follow")
        if self.data_dir is not None and not self.theory:
            raise UserError("--data-dir is for --theory, which trains one more round")
        if self.against not in (None, "paper"):
            raise unknown("comparison", str(self.against), ["paper"])
        for folder in self.folders or []:
            check_folder(folder)
        if not self.folders and not self.published:
            raise UserError("name a results folder, such as runs/quickstart, or use --published")


@command("export", "export:export", "export runs/quickstart --csv --out tables")
@dataclass(frozen=True, kw_only=True)
class Export:
    """Write the results of all trials as CSV or Parquet, for other programs."""

    folder: ResultsFolder
    csv: Annotated[bool, typer.Option("--csv", help="As CSV; this is the default.")] = False
    parquet: Annotated[bool, typer.Option("--parquet", help="As Parquet.")] = False
    target: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="A folder for all four tables, or a file (.csv, .parquet) for one of them."
            " Default: FOLDER/export.",
        ),
    ] = None
    table: Annotated[
        str,
        typer.Option(
            help="For a file: rounds, clients, trials or partitions.",
            autocompletion=completing(TABLES),
        ),
    ] = "rounds"
    as_json: Json = False

    def __post_init__(self) -> None:
        check_folder(self.folder)
        if self.csv and self.parquet:
            raise UserError("--csv and --parquet: choose one of them")
        if self.table not in TABLES:
            raise unknown("table", self.table, TABLES)


app.add_typer(paper)


@command("list", "paper:list_tables", "paper list", paper)
@dataclass(frozen=True, kw_only=True)
class PaperList:
    """List the paper's tables: how many trials each has, and what they would take here."""

    no_estimate: Annotated[
        bool, typer.Option("--no-estimate", help="Do not measure this machine.")
    ] = False
    gpu_speedup: Annotated[
        float | None,
        typer.Option(
            help="Without a GPU here: how many times faster than a core one is assumed to be."
        ),
    ] = None
    as_json: Json = False

    def __post_init__(self) -> None:
        if self.gpu_speedup is not None:
            check_positive("--gpu-speedup", self.gpu_speedup)


@command("write", "paper:write", "paper write cifar10_10_5_1 --out my_table.toml", paper)
@dataclass(frozen=True, kw_only=True)
class PaperWrite:
    """Write the experiment file of a table, as a starting point for your own."""

    name: TableName
    target: Annotated[Path, typer.Option("--out", help="The file to write.")]

    def __post_init__(self) -> None:
        if self.target.exists():
            raise UserError(f"{self.target} exists already; choose another --out")


@command("run", "sweep:run_paper", "paper run cifar10_10_5_1 --scale small", paper)
@dataclass(frozen=True, kw_only=True)
class PaperRun(Launch):
    """Run a table of the paper, as printed or at laptop scale."""

    name: TableName
    scale: Annotated[
        str, typer.Option(help="full: as in the paper; small: the same grid for a laptop.")
    ] = "full"
    dataset: Annotated[
        str | None, typer.Option(help="With --scale small: synthetic, or the path of an .npz file.")
    ] = None
    rounds: Annotated[
        int | None, typer.Option(min=1, help="With --scale small: rounds per trial.")
    ] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.scale not in SCALES:
            raise unknown("scale", self.scale, SCALES)
        if self.scale == "full" and (self.dataset or self.rounds):
            raise UserError("--dataset and --rounds are for --scale small; use --set otherwise")


@command("methods", "listing:methods", "methods fedgps scaffold")
@dataclass(frozen=True, kw_only=True)
class Methods:
    """List the methods, one per line; with names, show those in full with their defaults."""

    names: Annotated[
        list[str] | None,
        typer.Argument(help="Show these in full.", autocompletion=completing(METHODS)),
    ] = None
    as_json: Json = False


app.add_typer(new)


@command("method", "new:method", "new method my_method", new)
@dataclass(frozen=True, kw_only=True)
class NewMethod:
    """Write NAME.py, a method to start from, and test_NAME.py, a test that passes."""

    name: Annotated[
        str, typer.Argument(help="Such as my_method: the file and, as MyMethod, the class.")
    ]
    folder: Annotated[Path, typer.Option("--in", help="Folder to write to.")] = Path()


@command("datasets", "listing:datasets", "datasets")
@dataclass(frozen=True, kw_only=True)
class Datasets:
    """List the data sets."""

    as_json: Json = False


@command("models", "listing:models", "models")
@dataclass(frozen=True, kw_only=True)
class Models:
    """List the models."""

    as_json: Json = False


@command("doctor", "doctor:doctor", "doctor")
@dataclass(frozen=True, kw_only=True)
class Doctor:
    """Check this machine: what it has, what is wrong, and how to fix it."""

    folder: Annotated[Path, typer.Option("--out", help="Where results would go.")] = Path("runs")
    data_dir: Annotated[
        Path | None,
        typer.Option(help="Folder with the files of data sets by name, such as cifar10."),
    ] = None
    no_ray: Annotated[bool, typer.Option("--no-ray", help="Do not try to start Ray.")] = False
    as_json: Json = False


@command("verify", "verify:verify", "verify fedgps scaffold")
@dataclass(frozen=True, kw_only=True)
class Verify:
    """Check here that the methods compute what they should, and that your own obey the laws.

    With the folder of a run or sweep: train the first and last rounds of its finished trials again
    and compare every hash.
    """

    names: Annotated[
        list[str] | None,
        typer.Argument(
            help=f"Methods, or one results folder; default: all; {OWN}.",
            autocompletion=completing(METHODS),
        ),
    ] = None
    ray: Annotated[
        bool, typer.Option("--ray", help="For your own methods: also compare with real actors.")
    ] = False
    rounds: Annotated[
        int | None,
        typer.Option(min=1, help="For a folder: how many of the first rounds to train again."),
    ] = None
    full: Annotated[
        bool, typer.Option("--full", help="For a folder: all rounds, however long they take.")
    ] = False
    trust_code: TrustCode = False
    data_dir: DataDir = None
    as_json: Json = False

    def __post_init__(self) -> None:
        if self.rounds is not None and self.full:
            raise UserError("--rounds and --full: use one of them")


@command("bench", "bench:bench", "bench W1 W2 --repeats 5")
@dataclass(frozen=True, kw_only=True)
class Bench:
    """Compare our time with plain PyTorch on this machine, side by side."""

    workloads: Annotated[
        list[str] | None,
        typer.Argument(
            help="W1, W2, W3 (also through `fedgps-ray run`), step, skew, start; default: all."
        ),
    ] = None
    repeats: Annotated[int, typer.Option(min=1, help="How often each is measured.")] = 5
    only_command: Annotated[
        bool, typer.Option("--command", help="Only W1, W2 and W3 through `fedgps-ray run`.")
    ] = False
    as_json: Json = False


@command("soak", "soak:soak", "soak --rounds 300")
@dataclass(frozen=True, kw_only=True)
class Soak:
    """Run many tiny rounds on Ray and show whether memory or open files grow."""

    rounds: Annotated[int, typer.Option(min=1, help="How many rounds to run.")] = 300
    method: Annotated[str, typer.Option(help="See `fedgps-ray methods`.")] = "fedgps"
    as_json: Json = False


@command("chaos", "chaos:chaos", "chaos --kills 12 --seed 1")
@dataclass(frozen=True, kw_only=True)
class Chaos:
    """Run small sweeps, kill or stop random processes of them; check that no number changes."""

    kills: Annotated[int, typer.Option(min=1, help="How many processes to kill or stop.")] = 30
    seed: Annotated[int, typer.Option(min=0, help="Which processes, and when.")] = 0
    address: Address = None
    folder: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="With --address: a folder for the sweeps that all nodes see.",
            rich_help_panel=WHERE,
        ),
    ] = None
    as_json: Json = False

    def __post_init__(self) -> None:
        if (self.address is None) != (self.folder is None):
            raise UserError(
                "--address (or FEDGPS_RAY_ADDRESS) and --out go together: all nodes write there"
            )
