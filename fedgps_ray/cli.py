"""The command line: options to specs, rows to the screen, mistakes to messages."""

import json
import shlex
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Column, Table

from fedgps_ray.errors import ClientFailed, UserError, unknown

if TYPE_CHECKING:  # torch takes a second to import: help and mistakes should not wait for it
    from collections.abc import Callable, Generator

    from fedgps_ray.spec import ExecutionSpec, TrialSpec
    from fedgps_ray.trial import Event

Written = TypeVar("Written")

app = typer.Typer(
    name="fedgps-ray",
    help="Federated-learning experiments under data heterogeneity: FedGPS, FedGPS-CF and what they"
    " are compared with.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
out = Console()
err = Console(stderr=True)

Json = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]
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


@app.command(epilog="Example: fedgps-ray run --method fedgps --clients 10 --alpha 0.1 --rounds 20")
def run(  # noqa: PLR0913  one option a parameter is how typer reads them
    dataset: Dataset = "digits",
    model: Annotated[
        str, typer.Option(help="mlp, cnn, convnet, resnet18, resnet50 or vit.")
    ] = "cnn",
    method: Annotated[str, typer.Option(help="See `fedgps-ray methods`.")] = "fedgps",
    preset: Annotated[
        str | None,
        typer.Option(help="FedGPS as in the public code (official) or the text (paper)."),
    ] = None,
    clients: Clients = 10,
    sampling_rate: Annotated[float, typer.Option(help="Share of clients in a round.")] = 0.5,
    rounds: Annotated[int, typer.Option(help="Number of rounds.")] = 50,
    local_epochs: Annotated[int, typer.Option(help="Passes over a client's data in a round.")] = 1,
    batch_size: Annotated[int, typer.Option(help="Images a step.")] = 64,
    lr: Annotated[float | None, typer.Option(help="Learning rate; default: the method's.")] = None,
    partition: Partition = "dirichlet",
    alpha: Alpha = None,
    classes_per_client: ClassesEach = None,
    scenario: Scenario = 1,
    seed: Annotated[int, typer.Option(help="Of initial weights, selection and batches.")] = 0,
    settings: Settings = None,
    folder: Annotated[Path, typer.Option("--out", help="Folder for results.")] = Path(
        "runs/default"
    ),
    actors: Annotated[
        str, typer.Option(help="Client actors: a number, auto, or 0 for none: all in this process.")
    ] = "auto",
    client_cpus: Annotated[float, typer.Option(help="CPUs of a client actor.")] = 1.0,
    client_gpus: Annotated[float, typer.Option(help="GPU share of a client actor.")] = 0.0,
    address: Annotated[
        str | None, typer.Option(help="Join a Ray cluster: auto or HOST:PORT. Default: start one.")
    ] = None,
    device: Annotated[str, typer.Option(help="auto: cuda with a GPU share.")] = "auto",
    data_dir: DataDir = None,
    download: Download = False,
    checkpoint_seconds: Annotated[float, typer.Option(help="Time between checkpoints.")] = 30.0,
    anew: Annotated[
        bool, typer.Option("--anew", help="Discard what this trial has already and start over.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Run one trial; a finished one is not run again, an interrupted one continues."""
    from fedgps_ray.spec import execution_spec

    values: dict[str, Any] = {
        "dataset": dataset,
        "model": model,
        "method": {"name": method} | ({} if preset is None else {"preset": preset}),
        "clients": clients,
        "sampling_rate": sampling_rate,
        "rounds": rounds,
        "local_epochs": local_epochs,
        "batch_size": batch_size,
        "optimizer": {} if lr is None else {"lr": lr},
        "partition": _partition(partition, alpha, classes_per_client),
        "scenario": scenario,
        "seed": seed,
    }
    spec, files = _trial(values, settings or [])
    execution = execution_spec(
        out=folder,
        actors=_actors(actors),
        client_cpus=client_cpus,
        client_gpus=client_gpus,
        address=address,
        device=_device(device),
        data_dir=data_dir,
        download=download,
        files=files,
        checkpoint_seconds=checkpoint_seconds,
    )
    _run_and_show(spec, execution, anew, as_json)


@app.command(epilog="Example: fedgps-ray resume runs/default")
def resume(
    folder: Annotated[Path, typer.Argument(help="A results folder, or one trial's folder.")],
    as_json: Json = False,
) -> None:
    """Continue every trial of a folder that was interrupted or failed."""
    from fedgps_ray.results.store import ENDED, read_trial, trial_folders
    from fedgps_ray.spec import execution_spec, trial_spec

    folders = trial_folders(folder)
    if not folders:
        raise UserError(f"no trials in {folder}: expected trial.json or trials/*/trial.json there")
    open_trials = [info for info in map(read_trial, folders) if info["status"] not in ENDED]
    if not open_trials:
        err.print(
            f"all {len(folders)} trials of {folder} have ended; nothing to do", soft_wrap=True
        )
    for info in open_trials:
        where = folders[0].parent.parent
        execution = execution_spec(**{**info["execution"], "out": where})
        _run_and_show(trial_spec(**info["spec"]), execution, False, as_json)


@app.command(epilog="Example: fedgps-ray partition --dataset digits --clients 10 --alpha 0.1")
def partition(  # noqa: PLR0913
    dataset: Dataset = "digits",
    clients: Clients = 10,
    partition: Partition = "dirichlet",
    alpha: Alpha = None,
    classes_per_client: ClassesEach = None,
    scenario: Scenario = 1,
    settings: Settings = None,
    png: Annotated[Path | None, typer.Option(help="Where to write the figure.")] = None,
    data_dir: DataDir = None,
    download: Download = False,
    as_json: Json = False,
) -> None:
    """Show who holds which classes: a heat map here and as PNG, and how skewed it is."""
    from fedgps_ray.data import datasets, heatmap, skew
    from fedgps_ray.data.partition import class_counts, index_sha256, split
    from fedgps_ray.spec import columns

    values = {
        "dataset": dataset,
        "clients": clients,
        "partition": _partition(partition, alpha, classes_per_client),
        "scenario": scenario,
    }
    spec, files = _trial(values, settings or [])
    data = datasets.load(spec.dataset, datasets.Source(data_dir, download, files))
    shared = split(data.y_train, spec.clients, spec.partition, spec.partition_seed)
    counts = class_counts(shared.parts, data.y_train, data.num_classes)
    figures = skew.skew(counts)._asdict()
    facts = {
        "sha256": index_sha256(shared.parts),
        "moved": shared.moved,
        "attempts": shared.attempts,
    }
    named = columns(spec)
    name, how, number = named["dataset"], named["partition"], spec.scenario
    png = png or Path(f"partition-{name}-{how}-{spec.clients}-{number}.png")
    title = f"{name}, {spec.clients} clients, scenario {number}"
    _writing(png, lambda: heatmap.save_png(counts, png, title))
    if as_json:
        print(json.dumps({**figures, **facts, "counts": counts.tolist(), "png": str(png)}))
        return
    out.print(heatmap.table(counts, data.class_names))
    rows = {k.replace("_", " "): f"{v:.4g}" for k, v in figures.items()} | facts | {"figure": png}
    out.print(_pairs({key: str(value) for key, value in rows.items()}))


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
        out.print(Padding(_pairs(lines), (0, 0, 1, 2)))
    out.print("M: numbers in the model, C: classes, d: features. Change a default with --set.")


def _method_facts(kind: Any) -> dict[str, Any]:
    import dataclasses

    return {
        "idea": (kind.__doc__ or "").split("\n")[0],
        **kind.about._asdict(),
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


@app.command(epilog="Example: fedgps-ray report runs/default")
def report(
    folder: Annotated[Path, typer.Argument(help="A results folder.")], as_json: Json = False
) -> None:
    """Compare the trials of a folder in a table, and write it to report.md there."""
    from analysis import tables
    from analysis.load import trials

    frame = trials(folder)
    if as_json:
        print(frame.to_json(orient="records"))
        return
    shown = Table(*tables.HEADER)
    for line in tables.comparison(frame):
        shown.add_row(*line)
    out.print(shown)
    written = _writing(folder, lambda: tables.write_report(frame, folder))
    out.print(f"report: {written}", soft_wrap=True)


@app.command(epilog="Example: fedgps-ray bench W1 W2 --repeats 5")
def bench(
    workloads: Annotated[
        list[str] | None,
        typer.Argument(help="step, W1, W2, W3 (against bare PyTorch), skew, start; default: all."),
    ] = None,
    repeats: Annotated[int, typer.Option(help="Counted turns of every contender.")] = 5,
    as_json: Json = False,
) -> None:
    """Measure our time against bare PyTorch on this machine, side by side."""
    from fedgps_ray.bench import measure

    known = [*measure.WORKLOADS, *measure.EXTRAS]
    wanted = workloads or known
    for name in wanted:
        if name not in known:
            raise unknown("workload", name, known)
    races = [name for name in wanted if name in measure.WORKLOADS]
    with err.status("starting Ray") as status:
        results = list(measure.measure(races, repeats, status.update)) if races else []
        share = measure.training_share(status.update) if "skew" in wanted else None
        start, floor = measure.start_up(status.update) if "start" in wanted else (None, None)
    if as_json:
        extras = {"training_share": share, "start_seconds": start, "start_floor_seconds": floor}
        print(json.dumps({"results": [result._asdict() for result in results], **extras}))
        return
    if results:
        out.print(_bench_table(results))
    if share is not None:
        out.print(f"skew: training is {share:.1%} of the actors' time (Dirichlet 0.1)")
    if start is not None and floor is not None:
        out.print(
            f"start: first round after {start:.1f} s, {start / floor:.2f} times"
            f" ray.init() plus a torch import ({floor:.1f} s)"
        )


def _bench_table(results: Sequence[Any]) -> Table:
    table = Table("workload", "contender", "seconds", "ratio to the fastest bare loop")
    for result in results:
        seconds, ratio = f"{result.seconds:.4f}", f"{result.ratio:.3f}"
        table.add_row(result.workload, result.contender, seconds, ratio)
    return table


@app.command(epilog="Example: fedgps-ray soak --rounds 300")
def soak(
    rounds: Annotated[int, typer.Option(help="Tiny rounds to run.")] = 300,
    method: Annotated[str, typer.Option(help="See `fedgps-ray methods`.")] = "fedgps",
    as_json: Json = False,
) -> None:
    """Run many tiny rounds on Ray and show whether memory or open files grow."""
    from fedgps_ray.soak import soak as watch

    with err.status("starting Ray") as status:
        found = watch(rounds, method, status.update)
    if as_json:
        print(json.dumps([growth._asdict() for growth in found]))
        return
    table = Table("process", "MB warm", "MB at the end", "ratio", "files warm", "files at the end")
    for growth in found:
        table.add_row(
            growth.name,
            f"{growth.megabytes_before:.1f}",
            f"{growth.megabytes_after:.1f}",
            f"{growth.ratio:.3f}",
            str(growth.files_before),
            str(growth.files_after),
        )
    out.print(table)


def _trial(values: dict[str, Any], settings: list[str]) -> tuple["TrialSpec", dict[str, str]]:
    """Return the spec, and where the .npz files lie that it names by content."""
    from fedgps_ray.data.datasets import npz_spec
    from fedgps_ray.spec import trial_spec

    files: dict[str, str] = {}
    for setting in settings:
        _set(values, setting)
    if isinstance(values["dataset"], str) and values["dataset"].endswith(".npz"):
        path = Path(values["dataset"]).expanduser()
        found = npz_spec(path)
        values["dataset"] = found
        files[found.sha256] = str(path.resolve())
    surrogate = values.get("surrogate")
    if isinstance(surrogate, str) and surrogate.endswith(".npz"):
        path = Path(surrogate).expanduser()
        found = npz_spec(path)
        values["surrogate"] = {"kind": "file", "file": found.file, "sha256": found.sha256}
        files[found.sha256] = str(path.resolve())
    return trial_spec(**values), files


def _set(values: dict[str, Any], setting: str) -> None:
    """Put key.part=value into nested tables."""
    key, equals, text = setting.partition("=")
    if not equals:
        raise UserError(f"--set {setting}: expected KEY=VALUE, such as --set method.rho=0.3")
    *parents, last = key.strip().split(".")
    table = values
    for parent in parents:
        held = table.get(parent, {})
        table[parent] = dict(held) if isinstance(held, dict) else {"name": held}
        table = table[parent]
    try:
        table[last] = json.loads(text)
    except json.JSONDecodeError:
        table[last] = text


def _partition(kind: str, alpha: float | None, classes_per_client: int | None) -> dict[str, Any]:
    if alpha is not None and kind != "dirichlet":
        raise UserError(f"--alpha {alpha} is for --partition dirichlet, not {kind}")
    if classes_per_client is not None and kind != "classes":
        given = f"--classes-per-client {classes_per_client}"
        raise UserError(f"{given} is for --partition classes, not {kind}")
    own = {"alpha": alpha, "classes_per_client": classes_per_client}
    return {"kind": kind} | {key: value for key, value in own.items() if value is not None}


def _actors(given: str) -> Any:
    if given == "auto":
        return given
    if not given.isdigit():
        raise UserError(f"--actors {given}: expected auto, 0, or a number of actors")
    return int(given)


def _device(name: str) -> Any:
    import torch

    if name not in ("auto", "cpu", "cuda"):
        raise UserError(f"--device {name}: use auto, cpu or cuda")
    if name == "cuda" and not torch.cuda.is_available():
        raise UserError("--device cuda: PyTorch finds no GPU here; use --device auto or cpu")
    return name


def _run_and_show(spec: "TrialSpec", execution: "ExecutionSpec", anew: bool, as_json: bool) -> None:
    """Run a trial unless it has ended, show its rounds and its summary."""
    from fedgps_ray.results.store import ENDED, TrialStore, read_trial

    folder = TrialStore(execution.out, spec).folder
    there = read_trial(folder) if (folder / "trial.json").exists() and not anew else None
    if there is None or there["status"] not in ENDED:
        _follow(spec, execution, anew, folder)
    else:
        err.print(f"trial {spec.trial_id} has ended already (--anew runs it again)", soft_wrap=True)
    info = read_trial(folder)
    if as_json:
        print(json.dumps(info))
        return
    from fedgps_ray.progress import ending

    out.print(escape(ending(info, str(folder))), soft_wrap=True)


def _follow(spec: "TrialSpec", execution: "ExecutionSpec", anew: bool, folder: Path) -> None:
    from fedgps_ray.progress import follow
    from fedgps_ray.spec import method_name

    trial = _start(spec, execution, anew)
    try:
        follow(err, method_name(spec.method), spec.rounds, trial)
    except KeyboardInterrupt:
        trial.close()
        begun = (folder / "trial.json").exists()
        again = f"fedgps-ray resume {shlex.quote(str(folder))}" if begun else "the same command"
        err.print(f"interrupted; to continue: {again}", soft_wrap=True)
        raise typer.Exit(130) from None


def _start(spec: "TrialSpec", execution: "ExecutionSpec", anew: bool) -> "Generator[Event]":
    if execution.actors == 0:
        from fedgps_ray.trial import run_trial

        return run_trial(spec, execution, anew)
    from fedgps_ray.distributed import run_on_ray

    return run_on_ray(spec, execution, anew)


def _writing(path: Path, write: "Callable[[], Written]") -> "Written":
    try:
        return write()
    except OSError as problem:
        raise UserError(f"cannot write to {path}: {problem.strerror}") from None


def _list(kind: str, lines: dict[str, str], as_json: bool) -> None:
    if as_json:
        print(json.dumps(lines))
    else:
        out.print(_pairs(lines))


def _pairs(lines: dict[str, str]) -> Table:
    table = Table("", Column(overflow="fold"), show_header=False, box=None, pad_edge=False)
    for key, text in lines.items():
        table.add_row(key, escape(text))
    return table


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def main() -> None:
    """Run the command line; a user's mistake ends with a message and exit code 2."""
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        app()
    except UserError as problem:
        err.print(f"[bold red]error:[/] {escape(str(problem))}", soft_wrap=True, highlight=False)
        sys.exit(2)
    except ClientFailed as failure:
        err.print(f"[bold red]failed:[/] {escape(str(failure))}", soft_wrap=True, highlight=False)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
