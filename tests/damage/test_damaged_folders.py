"""Damaged folders: every command that reads one says the same as before, or tells the damage.

FEDGPS_DAMAGE_CASES sets how many are tried: FEDGPS_DAMAGE_CASES=10000 pytest tests/damage.
FEDGPS_DAMAGE_FIRST sets with which seed to begin, FEDGPS_DAMAGE_ASKED how many commands read each,
FEDGPS_DAMAGE_COUNTS names a file to which each command's answers are counted.
"""

import functools
import json
import os
import random
import shutil
import sys
import traceback
from collections import Counter
from typing import NamedTuple

import pytest
import typer

import fedgps_ray
from fedgps_ray import cli
from fedgps_ray.analysis import load
from fedgps_ray.analysis.report import page
from fedgps_ray.errors import UserError
from fedgps_ray.results import files, schema
from fedgps_ray.results.read import read_trial
from fedgps_ray.rounds import worker
from fedgps_ray.rounds.trial import run_trial
from fedgps_ray.spec import ExecutionSpec, trial_spec
from fedgps_ray.sweep.ledger import Ledger, read
from fedgps_ray.sweep.plan import facts
from fedgps_ray.sweep.state import State
from tests.damage.harm import files_of, harm, sealed_again

CASES = int(os.environ.get("FEDGPS_DAMAGE_CASES", "300"))
CHUNK = 50
FIRST = int(os.environ.get("FEDGPS_DAMAGE_FIRST", "0"))
FEW = "2" if CASES <= 300 else "10"  # commands per folder, in turn: of many folders, all
COUNTS = os.environ.get("FEDGPS_DAMAGE_COUNTS")
GOOD = ("told", "unaffected")
REPORTS = 17  # a report takes longer than all other commands: one of so many folders has one
ASKED = int(os.environ.get("FEDGPS_DAMAGE_ASKED", FEW))
TINY = {
    "dataset": {"name": "synthetic", "image_size": 8, "train_size": 40, "test_size": 20},
    "model": "mlp",
    "clients": 2,
    "sampling_rate": 1.0,
    "partition": "iid",
}
TOLD = (
    *("is damaged", "was damaged", "not sealed", '"not_sealed": ["', "newer version"),
    *("older version", "no trials", "not a trial's", "comes from the trials"),
    "belongs to another spec",
)


class Answer(NamedTuple):
    """What a command said: its result, and whether it told that something is wrong."""

    said: object
    told: bool


@pytest.fixture(scope="module")
def pristine(tmp_path_factory):
    """Make a sweep's folder with two finished trials and an interrupted one."""
    folder = tmp_path_factory.mktemp("pristine") / "sweep"
    specs = [trial_spec(**TINY, method="fedavg", rounds=2, seed=seed) for seed in (0, 1)]
    specs.append(trial_spec(**TINY, method="scaffold", rounds=4))
    execution = ExecutionSpec(out=folder, actors=0, checkpoint_seconds=0)
    for spec in specs:
        events = run_trial(spec, execution)
        for event in events:
            if isinstance(event, dict) and event["round"] == 2:
                break
        events.close()
        list(run_trial(spec, execution)) if spec.rounds == 2 else None
    Ledger(folder, specs).write(
        {"name": "tiny", **facts("", "", None, "tiny.toml"), "execution": {}}
    )
    State("tiny", 3, 8, finished=2, rounds_before=6, began=1.0, ended=2.0).save(folder)
    return folder


@pytest.fixture(scope="module", autouse=True)
def in_a_hurry():
    """Leave out what costs time and has nothing to do with damage."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)
        patch.setattr(typer.main, "get_command", functools.cache(typer.main.get_command))
        yield


@pytest.fixture(scope="module")
def said_before():
    """Remember what each command says about the pristine folder."""
    return {}


# --- the commands --------------------------------------------------------------------------------


def run_command(capsys, monkeypatch, *words):
    """Run a command in this process; a traceback goes on to the test."""
    monkeypatch.setattr(sys, "argv", ["fedgps-ray", *map(str, words)])
    capsys.readouterr()
    try:
        cli.main()
        code = 0
    except SystemExit as end:
        code = end.code or 0
    text = capsys.readouterr()
    return code, text.out, text.err


def by_command(*words, tells=()):
    def ask(folder, capsys, monkeypatch):
        code, said, noted = run_command(capsys, monkeypatch, *words, folder)
        assert code in (0, 1, 2), (code, noted)
        assert "\x1b" not in said + noted
        told = code != 0 or any(word in said + noted for word in (*TOLD, *tells))
        return Answer(said.replace(str(folder), ""), told)

    return ask


def frames(folder, capsys, monkeypatch):
    """Read what a report is made from."""
    try:
        found = read_frames(load.Source([folder]))
    except UserError as problem:
        return Answer(None, bool(str(problem)))
    notes = [frame.attrs["problems"] + frame.attrs.get("not_sealed", []) for frame in found]
    places = [frame.drop(columns="folder", errors="ignore") for frame in found]
    return Answer([frame.to_json(default_handler=str) for frame in places], any(notes))


def read_frames(source):
    clients = source.rows("clients.parquet", schema.CLIENTS)
    return [source.trials(), source.rounds(), clients, source.partitions()]


def loaded(folder, capsys, monkeypatch):
    """Read the results as a script does, with the models of the trials that have one."""
    try:
        results = fedgps_ray.load(folder)
        frame = results.trials
        found = [(each.trial_id, each.summary, weights(each)) for each in results]
    except UserError as problem:
        return Answer(None, bool(str(problem)))
    return Answer(found, bool(frame.attrs["problems"] + frame.attrs["not_sealed"]))


def weights(result):
    if result.status != "finished":
        return None
    return {name: value.tolist() for name, value in result.model.state_dict().items()}


def exported(folder, capsys, monkeypatch):
    """Write all results to CSV files, and return these."""
    answer = by_command("export", tells=["note: "])(folder, capsys, monkeypatch)
    tables = [path.read_text() for path in sorted((folder / "export").glob("*.csv"))]
    return Answer([text.replace(str(folder), "") for text in tables], answer.told)


def reported(folder, capsys, monkeypatch):
    """Write the report, all but the drawings: their numbers are in the page."""
    monkeypatch.setattr(page, "save", lambda *drawing: None)
    answer = by_command("report", tells=["left out: "])(folder, capsys, monkeypatch)
    texts = [path.read_text() for path in sorted((folder / "report").glob("report.*"))]
    said = [answer.said, *(text.replace(str(folder), "") for text in texts)]
    return Answer(said, answer.told)


def sweep_again(folder, capsys, monkeypatch):
    """Find out what a sweep would do, without doing it."""
    try:
        ledger, about = read(folder)
        ledger.quarantine()
        statuses = [(entry.spec.trial_id, *entry[1:]) for entry in ledger.entries()]
    except UserError as problem:
        return Answer(None, bool(str(problem)))
    return Answer((statuses, about), bool(ledger.notes))


def resume_single(folder, capsys, monkeypatch):
    """Continue the trials of a folder without a sweep, and return what they end with."""
    if (folder / "experiment.json").is_file():
        (folder / "experiment.json").unlink()
    code, _, noted = run_command(capsys, monkeypatch, "resume", folder, "--actors", 0)
    assert code in (0, 2), noted
    ends = [
        (path.parent.name, info["status"], info["summary"]["weights_sha256"])
        for path in sorted(folder.glob("trials/*/trial.json"))
        if not path.parent.name.endswith(".bak") and (info := sound(path.parent)) is not None
    ]
    told = code != 0 or any(word in noted for word in (*TOLD, "starting from the first", "missing"))
    return Answer(ends, told)


def sound(trial):
    try:
        return read_trial(trial)
    except UserError:
        return None


COMMANDS = {
    "status": by_command("status"),
    "status --json": by_command("status", "--json"),
    "status --verify": by_command("status", "--verify"),
    "watch --once": by_command("watch", "--once"),
    "frames": frames,
    "load": loaded,
    "export": exported,
    "report": reported,
    "resume": resume_single,
    "sweep": sweep_again,  # last: it moves trials away
}


@pytest.mark.timeout(0)
@pytest.mark.parametrize("first", range(FIRST, FIRST + CASES, CHUNK))
def test_a_damaged_folder_is_told_or_read_the_same(
    first, pristine, said_before, tmp_path, capsys, monkeypatch
):
    tools, before = (tmp_path, capsys, monkeypatch), said_before
    if not before:
        before |= {name: answer(ask, pristine, *tools) for name, ask in COMMANDS.items()}
    assert [name for name, each in before.items() if each.told] == []
    counts, wrong = Counter(), []
    for seed in range(first, min(first + CHUNK, FIRST + CASES)):
        heard = {name: hear(ask, before[name], pristine, seed, *tools) for name, ask in asked(seed)}
        wrong += [
            f"seed {seed}, {name}: {verdict}"
            for name, verdict in heard.items()
            if verdict not in GOOD
        ]
        counts.update(f"{name}: {verdict}" for name, verdict in heard.items() if verdict in GOOD)
        counts["folders " + ("told" if "told" in heard.values() else "unaffected")] += 1
    if COUNTS:
        with open(COUNTS, "a") as file:
            file.write(json.dumps({"first": first, "wrong": len(wrong), **counts}) + "\n")
    assert not wrong, "\n".join(wrong)


def hear(ask, before, pristine, seed, *tools):
    """Return "told" or "unaffected", or what is wrong with an answer about a damaged folder."""
    try:
        now = answer(ask, pristine, *tools, seed=seed)
    except (Exception, typer.Exit):
        return traceback.format_exc()[-2000:]
    if now.told or now.said == before.said:
        return "told" if now.told else "unaffected"
    return difference(repr(before.said), repr(now.said))


def difference(before, now):
    """Return where two texts part."""
    signs = enumerate(zip(before, now, strict=False))
    at = next((place for place, (one, other) in signs if one != other), len(before))
    start = max(0, at - 100)
    return f"{before[start : at + 200]} became {now[start : at + 200]}"


def asked(seed):
    """Return the commands for one folder; with few folders not all, as some take a second."""
    names = [name for name in COMMANDS if name != "report" or seed % REPORTS == 0]
    chosen = {names[(seed + step) % len(names)] for step in range(ASKED)}
    return [(name, COMMANDS[name]) for name in names if name in chosen]


def answer(ask, pristine, tmp_path, capsys, monkeypatch, seed=None):
    """Ask about a copy, damaged by a seed: some commands change what they look at."""
    copy = shutil.copytree(pristine, tmp_path / "copy" / "sweep")
    try:
        if seed is not None:
            harm(copy, seed)
        return ask(copy, capsys, monkeypatch)
    finally:
        shutil.rmtree(tmp_path / "copy")


@pytest.mark.timeout(0)
@pytest.mark.parametrize("first", range(FIRST, FIRST + CASES // 5, CHUNK // 5))
def test_a_wrong_value_with_a_seal_of_its_own_is_no_stumbling_block(
    first, pristine, tmp_path, capsys, monkeypatch
):
    for seed in range(first, first + CHUNK // 5):
        rng = random.Random(seed)
        for _, ask in asked(seed):
            copy = shutil.copytree(pristine, tmp_path / "copy" / "sweep")
            sealed_again(rng, rng.choice([f for f in files_of(copy) if f.suffix == ".json"]))
            ask(copy, capsys, monkeypatch)
            shutil.rmtree(tmp_path / "copy")


def test_the_test_would_notice_a_silent_change(pristine, tmp_path, capsys, monkeypatch):
    copy = shutil.copytree(pristine, tmp_path / "copy" / "sweep")
    before = frames(copy, capsys, monkeypatch)
    path = next(copy.glob("trials/*/trial.json"))
    info = json.loads(path.read_text())
    info["summary"]["best_accuracy"] = 0.999
    files.write_json(path, info)  # with a seal of its own: only a replay can tell
    after = frames(copy, capsys, monkeypatch)
    assert not after.told
    assert after.said != before.said


def test_the_pristine_trials_are_those_that_it_says(pristine):
    assert worker  # PyTorch is imported before the clock of the other tests runs
    paths = pristine.glob("trials/*/trial.json")
    statuses = sorted(json.loads(path.read_text())["status"] for path in paths)
    assert statuses == ["finished", "finished", "interrupted"]


def test_a_report_tells_of_a_lost_plan(pristine, tmp_path, capsys, monkeypatch):
    copy = shutil.copytree(pristine, tmp_path / "copy" / "sweep")
    (copy / "experiment.json").unlink()
    answer = reported(copy, capsys, monkeypatch)
    assert answer.told
    assert "experiment.json is gone" in answer.said[1]


def test_a_report_tells_of_an_unreadable_partition(pristine, tmp_path, capsys, monkeypatch):
    copy = shutil.copytree(pristine, tmp_path / "copy" / "sweep")
    path = next(copy.glob("trials/*/checkpoint")).parent / "partition.parquet"
    path.write_bytes(path.read_bytes()[:100])
    assert reported(copy, capsys, monkeypatch).told
