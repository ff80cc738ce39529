"""Commands about trials: run, resume, partition."""

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from fedgps_ray.cli import options
from fedgps_ray.cli.app import Json, app, err, out, pairs, writing
from fedgps_ray.cli.options import (
    Actors,
    Address,
    Alpha,
    CheckpointSeconds,
    ClassesEach,
    ClientCpus,
    ClientGpus,
    Clients,
    DataDir,
    Dataset,
    Device,
    Download,
    Partition,
    Scenario,
    Settings,
)
from fedgps_ray.errors import UserError

if TYPE_CHECKING:  # torch takes a second to import: help and mistakes should not wait for it
    from collections.abc import Generator

    from fedgps_ray.events import Event
    from fedgps_ray.spec import ExecutionSpec, TrialSpec


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
    actors: Actors = "auto",
    client_cpus: ClientCpus = 1.0,
    client_gpus: ClientGpus = 0.0,
    address: Address = None,
    device: Device = "auto",
    data_dir: DataDir = None,
    download: Download = False,
    checkpoint_seconds: CheckpointSeconds = 30.0,
    anew: Annotated[
        bool, typer.Option("--anew", help="Discard what this trial has already and start over.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Run one trial; a finished one is not run again, an interrupted one continues."""
    options.with_token(address)
    if actors != "0":
        _start_ray_early(address)
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
        "partition": options.partition(partition, alpha, classes_per_client),
        "scenario": scenario,
        "seed": seed,
    }
    spec, files = options.trial(values, settings or [])
    execution = execution_spec(
        out=folder,
        actors=options.number_of_actors(actors or "auto"),
        client_cpus=client_cpus,
        client_gpus=client_gpus,
        address=address,
        device=options.known_device(device),
        data_dir=data_dir,
        download=download,
        files=files,
        checkpoint_seconds=checkpoint_seconds,
    )
    _run_and_show(spec, execution, anew, as_json)


@app.command(epilog="Example: fedgps-ray resume runs/default")
def resume(
    folder: Annotated[Path, typer.Argument(help="A results folder, or one trial's folder.")],
    failed: Annotated[
        bool, typer.Option("--failed", help="Of a sweep: also run again what failed.")
    ] = False,
    address: Address = None,
    as_json: Json = False,
) -> None:
    """Continue a sweep, or every trial of a folder that was interrupted or failed."""
    options.with_token(address)
    if (folder / "experiment.json").exists():
        from fedgps_ray.cli.sweeps import resume_sweep

        resume_sweep(folder, failed, address, as_json)
        return
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
        other = {} if address is None else {"address": address}
        execution = execution_spec(**{**info["execution"], "out": where, **other})
        options.with_token(execution.address)
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
    from fedgps_ray.analysis.figures import heatmap
    from fedgps_ray.data import datasets, skew
    from fedgps_ray.data.partition import class_counts, index_sha256, split
    from fedgps_ray.spec import columns

    values = {
        "dataset": dataset,
        "clients": clients,
        "partition": options.partition(partition, alpha, classes_per_client),
        "scenario": scenario,
    }
    spec, files = options.trial(values, settings or [])
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
    writing(png, lambda: heatmap.save_png(counts, png, title))
    if as_json:
        print(json.dumps({**figures, **facts, "counts": counts.tolist(), "png": str(png)}))
        return
    out.print(heatmap.table(counts, data.class_names))
    rows = {k.replace("_", " "): f"{v:.4g}" for k, v in figures.items()} | facts | {"figure": png}
    out.print(pairs({key: str(value) for key, value in rows.items()}))


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
    from fedgps_ray.cli.progress import ending

    out.print(escape(ending(info, str(folder))), soft_wrap=True)


def _follow(spec: "TrialSpec", execution: "ExecutionSpec", anew: bool, folder: Path) -> None:
    from fedgps_ray.cli.progress import follow
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


def _start_ray_early(address: str | None) -> None:
    from fedgps_ray.cluster import session

    session.start_early(address)


def _start(spec: "TrialSpec", execution: "ExecutionSpec", anew: bool) -> "Generator[Event]":
    if execution.actors == 0:
        from fedgps_ray.rounds.trial import run_trial

        return run_trial(spec, execution, anew)
    from fedgps_ray.cluster.crew import run_on_ray

    return run_on_ray(spec, execution, anew)
