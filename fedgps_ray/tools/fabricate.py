"""A results folder as a sweep would leave it, made in seconds: for tests, pictures and measuring.

    python -m fedgps_ray.tools.fabricate runs/made-up --trials 1000 --running 4
    python -m fedgps_ray.tools.fabricate runs/made-up --trials 10000 --rounds 5 --finished

The second one makes a sweep that is over, all of it sealed, and its experiment file beside the
folder: `fedgps-ray sweep runs/made-up.toml --out runs/made-up` finds nothing left to run. Its
grid is whole, so the number of trials is rounded up to one that fills it.

The accuracies are drawn at random: the folder says so in its description.
"""

import argparse
import json
import random
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from fedgps_ray.identity import IDENTITY_VERSION, Label
from fedgps_ray.results import files, schema, tables
from fedgps_ray.results.read import hashes
from fedgps_ray.results.summary import summary
from fedgps_ray.spec import TrialSpec, columns, method_name, trial_spec
from fedgps_ray.sweep.board import planned, told
from fedgps_ray.sweep.state import State, running

METHODS = ("fedavg", "fedprox", "scaffold", "fedexp", "vhl", "fedlesam", "fedgps", "fedgps_cf")
ALPHAS = (0.1, 0.3, 1.0)
WHAT = "Made up to try out the programs that read results; no number in it was measured."
Row = dict[str, Any]


class Size(NamedTuple):
    """How large a folder is: all trials, those that run, those that failed, and their rounds."""

    trials: int = 1000
    running: int = 4
    failed: int = 3
    rounds: int = 20


class Made(NamedTuple):
    """A trial of the folder: its spec, label, status and rows."""

    spec: TrialSpec
    label: Label
    status: str
    rows: list[Row]


def fabricate(folder: Path, size: Size, seed: int = 0) -> State:
    """Write experiment.json, live.json and the trials of a sweep that is under way."""
    rng = random.Random(seed)
    begun = max(size.running + size.failed, round(0.7 * size.trials))
    state = State(folder.name, size.trials, size.trials * size.rounds, lanes=size.running)
    state.began, state.working_since = time.time() - 3600, time.time() - 3580
    cells = []
    for number, (spec, label) in enumerate(_grid(size)):
        made = _made(spec, label, _status(number, begun, size), rng)
        cells.append(_cell(made))
        _write(folder, made)
        _note(state, made)
    _write_json(folder / "experiment.json", _experiment(folder.name, cells))
    _finish(state)
    state.save(folder)
    return state


def fabricate_finished(folder: Path, size: Size, seed: int = 0) -> Path:
    """Write a sweep that is over, every trial sealed, and return the path of its experiment file.

    Nothing is flushed to disk, so 10,000 trials take a minute or two.
    """
    rng = random.Random(seed)
    whole = -(-size.trials // (len(METHODS) * len(ALPHAS))) * len(METHODS) * len(ALPHAS)
    size = size._replace(trials=whole, running=0, failed=0)
    state = State(folder.name, whole, whole * size.rounds, finished=whole)
    state.began, state.ended = time.time() - 3600, time.time()
    cells = []
    for spec, label in _grid(size):
        made = _made(spec, label, schema.FINISHED, rng)
        cells.append(_cell(made))
        _write_sealed(folder / "trials" / spec.trial_id, made)
        state.records[spec.trial_id] = told(planned(columns(spec), label), _info(made))
    ended = [cell["trial_id"] for cell in cells]
    about = {**_experiment(folder.name, cells), "finished": ended}
    files.write_json(folder / "experiment.json", about)
    state.save(folder)
    return _experiment_file(folder.with_suffix(".toml"), size)


def _write_sealed(place: Path, made: Made) -> None:
    """Write a trial that has ended, with the hashes of its files."""
    place.mkdir(parents=True, exist_ok=True)
    own = columns(made.spec)
    clients = [own | _client_row(number) for number in range(1, len(made.rows) + 1)]
    shares = [own | {"client": n, "class": n, "count": 100} for n in range(made.spec.clients)]
    for name, columns_, rows in (
        ("rounds", schema.ROUNDS, [own | row for row in made.rows]),
        ("clients", schema.CLIENTS, clients),
        ("partition", schema.PARTITION, shares),
    ):
        tables.write(place / f"{name}.parquet", pa.Table.from_pylist(rows, schema=columns_))
    info = {**_info(made), "partition_sha256": f"{made.spec.scenario:064x}"}
    files.write_json(place / "trial.json", {**info, "files": hashes(place)}, durable=False)


def _client_row(number: int) -> Row:
    """Return the row of the one client that takes part in a round."""
    return {
        "round": number,
        "client": number % 10,
        "samples": 100,
        "steps": 50,
        "gradient_evaluations": 50,
        "loss": 2.0 / number,
        "update_norm": 1.0 / number,
        "bytes_up": 1_000_000,
        "bytes_down": 1_000_000,
        "worker": "made up",
        "work_seconds": 0.4,
    }


def _experiment_file(path: Path, size: Size) -> Path:
    """Write the experiment file whose trials a finished folder holds."""
    seeds = range(size.trials // (len(METHODS) * len(ALPHAS)))
    path.write_text(
        f'title = "A made-up sweep"\ndescription = "{WHAT}"\n\n'
        f"[base]\nrounds = {size.rounds}\n\n"
        f"[grid]\nseed = {list(seeds)}\n"
        f"partition.alpha = {list(ALPHAS)}\nmethod = {json.dumps(METHODS)}\n"
    )
    return path


def _grid(size: Size) -> Iterator[tuple[TrialSpec, Label]]:
    """Yield methods and partitions, and as many seeds as are needed."""
    for number in range(size.trials):
        method = METHODS[number % len(METHODS)]
        alpha = ALPHAS[number // len(METHODS) % len(ALPHAS)]
        seed = number // (len(METHODS) * len(ALPHAS))
        own = {"alpha": str(alpha), "seed": str(seed)}
        partition = {"kind": "dirichlet", "alpha": alpha}
        values: Row = {"method": method, "partition": partition, "seed": seed}
        yield trial_spec(**values, rounds=size.rounds), Label(method, own)


def _status(number: int, begun: int, size: Size) -> str:
    if number >= begun:
        return schema.MISSING
    if number >= begun - size.running:
        return schema.RUNNING
    return schema.FAILED if number < size.failed else schema.FINISHED


def _made(spec: TrialSpec, label: Label, status: str, rng: random.Random) -> Made:
    share = {schema.FINISHED: 1.0, schema.RUNNING: 0.5, schema.FAILED: 0.2}.get(status, 0.0)
    end = 0.6 + 0.02 * METHODS.index(method_name(spec.method)) + rng.gauss(0, 0.01)
    done = round(share * spec.rounds)
    rows = [_row(number, end, rng) for number in range(1, done + 1)]
    return Made(spec, label, status, rows)


def _row(number: int, end: float, rng: random.Random) -> Row:
    accuracy = max(0.0, end * (1 - 0.8 ** (number + 1)) + rng.gauss(0, 0.01))
    return {
        "round": number,
        "accuracy": accuracy,
        "loss": 2.3 * (1 - accuracy),
        "train_loss": 2.0 * (1 - accuracy),
        "weights_sha256": f"{rng.getrandbits(256):064x}",
        "bytes_up": 1_000_000,
        "bytes_down": 1_000_000,
        "steps": 50,
        "gradient_evaluations": 50,
        "update_diversity": 1 + rng.random(),
        "train_seconds": 0.4 + 0.1 * rng.random(),
        "aggregate_seconds": 0.01,
        "evaluate_seconds": 0.05,
    }


def _cell(made: Made) -> Row:
    spec = made.spec
    own = {"label": made.label._asdict(), "spec": spec.model_dump(mode="json")}
    return {**columns(spec), **own}


def _write(folder: Path, made: Made) -> None:
    if made.status == schema.MISSING:
        return
    place = folder / "trials" / made.spec.trial_id
    place.mkdir(parents=True, exist_ok=True)
    _write_json(place / "trial.json", _info(made))
    rows = [columns(made.spec) | row for row in made.rows]
    pq.write_table(pa.Table.from_pylist(rows, schema=schema.ROUNDS), place / "rounds.parquet")
    pq.write_table(schema.CLIENTS.empty_table(), place / "clients.parquet")


def _info(made: Made) -> Row:
    spec = made.spec
    failed = made.status == schema.FAILED
    return {
        "trial_id": spec.trial_id,
        "schema_version": schema.LAYOUT_VERSION,
        "status": made.status,
        "identity_version": IDENTITY_VERSION,
        "identity": spec.identity,
        "spec": spec.model_dump(mode="json"),
        "execution": {},
        "versions": {},
        "machine": {},
        "summary": summary(made.rows),
        **({"error": "client 2 failed in round 4: a made-up reason"} if failed else {}),
    }


def _experiment(name: str, cells: Sequence[Row]) -> Row:
    facts = {"name": name, "title": "A made-up sweep", "description": WHAT, "search": None}
    return {**facts, "schema_version": schema.LAYOUT_VERSION, "cells": cells, "finished": []}


def _note(state: State, made: Made) -> None:
    """Take a trial into the state of the sweep."""
    record = planned(columns(made.spec), made.label)
    if made.status != schema.MISSING:
        record = told(record, _info(made))
    state.records[made.spec.trial_id] = record
    if made.status == schema.RUNNING:
        _note_running(state, made)
    elif made.status != schema.MISSING:
        state.rounds_ended += made.spec.rounds
        state.trials_ended += 1
        state.finished += made.status == schema.FINISHED
        state.failed += made.status == schema.FAILED


def _note_running(state: State, made: Made) -> None:
    trial = running(made.spec.trial_id, state.records[made.spec.trial_id], time.time())
    trial.rounds_done, trial.seconds_a_round, trial.what = len(made.rows), 0.45, "training"
    trial.in_flight = [f"client {number}" for number in (1, 3, 4, 7, 8)]
    for row in made.rows:
        trial.score(row["accuracy"])
    state.running[made.spec.trial_id] = trial


def _finish(state: State) -> None:
    """Add what the driver of a sweep would know beside its trials."""
    ended = [record for record in state.records.values() if record.status == schema.FINISHED]
    state.paces = [(r.method, r.setting, 0.45) for r in ended[:50]]
    state.lags = [1.2]
    now, done = time.time(), state.rounds_done
    state.recent = [(now - 60, done - 240), (now, done)]
    store = {"object_store_memory": 4e9, "object_store_memory_used": 1.1e9}
    use = {"CPU": 4.0, "CPU_used": 4.0, "GPU": 1.0, "GPU_used": 0.8, "busy": 0.93}
    memory = {"memory": 3.2e10, "memory_used": 1.1e10}
    state.nodes = [{"name": f"node-{n}", "here": n == 0, **use, **store, **memory} for n in (0, 1)]
    for trial_id, record in list(state.records.items())[3:9]:
        best = "" if record.best is None else f", best accuracy {record.best:.2%}"
        state.tell(f"{record.words} ({trial_id}) {record.status}{best}")


def _write_json(path: Path, content: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=2) + "\n")


def main() -> None:
    """Make a folder from the command line."""
    parser = argparse.ArgumentParser(description="Write a made-up results folder.")
    parser.add_argument("folder", type=Path)
    for name, value in Size()._asdict().items():
        parser.add_argument(f"--{name}", type=int, default=value)
    what = "a sweep that is over, all of it sealed, with its experiment file"
    parser.add_argument("--finished", action="store_true", help=what)
    chosen = vars(parser.parse_args())
    make = fabricate_finished if chosen.pop("finished") else fabricate
    make(chosen.pop("folder"), Size(**chosen))


if __name__ == "__main__":
    main()
