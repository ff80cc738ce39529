"""Every round is logged once, whatever happens in between."""

import csv
import importlib.util
import json
import signal
import struct
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

import fedgps_ray
from fedgps_ray.errors import UserError
from fedgps_ray.loggers import follow, tensorboard
from fedgps_ray.loggers.base import package
from fedgps_ray.loggers.follow import LOGGERS, Follower, following
from fedgps_ray.results.store import TrialStore
from fedgps_ray.results.summary import summary
from fedgps_ray.spec import ExecutionSpec, trial_spec
from tests.processes import start

PROGRAM = [sys.executable, "-m", "fedgps_ray"]
NEEDED = {"wandb": ("wandb",), "mlflow": ("mlflow", "sqlalchemy", "alembic")}
SPEC = trial_spec(method="fedavg", rounds=6, model="mlp")


def row(number):
    return {
        "round": number,
        "accuracy": number / 10,
        "loss": 1.0,
        "train_loss": 2.0,
        "weights_sha256": "x",
        "bytes_up": 1,
        "bytes_down": 1,
        "gradient_evaluations": 1,
        "metrics": {"own": 0.5},
        "train_seconds": 0.1,
        "evaluate_seconds": 0.1,
    }


def has(root, rounds, status="running", spec=SPEC):
    """Let a trial have so many rounds on disk."""
    store = TrialStore(root, spec)
    store.open(ExecutionSpec(out=root))
    for number in range(1, rounds + 1):
        store._rounds.rows.append(store._columns | row(number))
    store.flush()
    store.note(status=status, summary=summary(store.rows))


def sync(name, root, said=lambda _: None):
    """Let another process look at the folder once."""
    follower = Follower([name], root, said, None)
    follower.close()


# --- what was logged, as each format has it -------------------------------------------------------


def in_csv(root):
    (path,) = root.glob("logs/csv/*.csv")
    with path.open() as file:
        return [(int(line["round"]), float(line["accuracy"])) for line in csv.DictReader(file)]


def in_tensorboard(root):
    events = package("tensorboardX.proto.event_pb2", "tensorboard").Event
    found = []
    for path in sorted(root.glob("logs/tensorboard/*/events.*")):
        for record in tensorboard._records(path.read_bytes()):
            event = events.FromString(record)
            values = {value.tag: value.simple_value for value in event.summary.value}
            if "accuracy" in values:
                found.append((event.step, round(values["accuracy"], 6)))
    return found


def wandb_records(content):
    """Yield the records of a .wandb file: LevelDB's log format after a header of seven bytes."""
    place, record = 7, b""
    while place + 7 <= len(content):
        if 32768 - place % 32768 < 7:
            place += 32768 - place % 32768
            continue
        size, kind = struct.unpack_from("<HB", content, place + 4)
        record += content[place + 7 : place + 7 + size]
        place += 7 + size
        if kind in (1, 4):  # whole, or the last part
            yield record
            record = b""


def in_wandb(root):
    records = importlib.import_module("wandb.proto.wandb_internal_pb2")
    found = []
    for path in sorted(root.glob("logs/wandb/offline-run-*/*.wandb")):
        for content in wandb_records(path.read_bytes()):
            record = records.Record.FromString(content)
            items = {i.key or "/".join(i.nested_key): i.value_json for i in record.history.item}
            if "accuracy" in items:
                found.append((int(json.loads(items["_step"])), json.loads(items["accuracy"])))
    return found


def in_mlflow(root):
    client = importlib.import_module("mlflow.tracking").MlflowClient(
        tracking_uri=f"sqlite:///{root.resolve()}/logs/mlflow.db"
    )
    (experiment,) = (e for e in client.search_experiments() if e.name == root.name)
    (run,) = client.search_runs([experiment.experiment_id])
    return [(p.step, p.value) for p in client.get_metric_history(run.info.run_id, "accuracy")]


READ = {"csv": in_csv, "tensorboard": in_tensorboard, "wandb": in_wandb, "mlflow": in_mlflow}


def logger_cases():
    for name in LOGGERS:
        missing = [p for p in NEEDED.get(name, ()) if importlib.util.find_spec(p) is None]
        marks = [pytest.mark.skipif(bool(missing), reason=f"{missing} is not installed")]
        if name == "mlflow":  # warnings that are its own
            marks.append(pytest.mark.filterwarnings("default"))
        yield pytest.param(name, marks=marks)


@pytest.fixture(params=logger_cases())
def name(request, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    return request.param


# --- the tests ------------------------------------------------------------------------------------


def test_there_is_a_reader_for_every_logger():
    assert set(READ) == set(LOGGERS)


def test_each_round_is_logged_once_after_a_resume(name, tmp_path):
    """Also if the checkpoint is older than the last round that was logged."""
    has(tmp_path, 4)
    sync(name, tmp_path)
    has(tmp_path, 2)  # resumed from a checkpoint after round 2
    sync(name, tmp_path)
    has(tmp_path, 6, "finished")
    sync(name, tmp_path)
    sync(name, tmp_path)
    assert sorted(READ[name](tmp_path)) == [(n, n / 10) for n in range(1, 7)]


def test_rounds_are_logged_while_the_trial_runs(name, tmp_path):
    has(tmp_path, 2)
    follower = Follower([name], tmp_path, pytest.fail, SPEC.trial_id)
    follower.sync()
    follower.sync()
    has(tmp_path, 3)
    follower.sync()
    has(tmp_path, 6, "finished")
    follower.close()
    assert sorted(READ[name](tmp_path)) == [(n, n / 10) for n in range(1, 7)]


def test_trials_have_curves_of_their_own(tmp_path):
    for seed in (0, 1):
        has(tmp_path, 6, "finished", trial_spec(method="fedavg", rounds=6, seed=seed))
    sync("csv", tmp_path)
    names = sorted(path.name.rpartition("-")[0] for path in tmp_path.glob("logs/csv/*"))
    assert names == ["fedavg-digits-scenario1-seed0", "fedavg-digits-scenario1-seed1"]


def test_tensorboard_has_the_settings_and_the_own_figures(tmp_path):
    has(tmp_path, 2)
    sync("tensorboard", tmp_path)
    events = package("tensorboardX.proto.event_pb2", "tensorboard").Event
    (path,) = tmp_path.glob("logs/tensorboard/*/events.*")
    found = [events.FromString(r) for r in tensorboard._records(path.read_bytes())]
    tags = Counter(value.tag for event in found for value in event.summary.value)
    assert tags["metrics/own"] == tags["accuracy"] == 2
    assert any("hparams" in tag for tag in tags)
    assert b"optimizer.lr" in path.read_bytes()


def test_a_line_that_was_cut_short_is_written_again(tmp_path):
    has(tmp_path, 4)
    sync("csv", tmp_path)
    (path,) = tmp_path.glob("logs/csv/*.csv")
    path.write_bytes(path.read_bytes()[:-20])
    sync("csv", tmp_path)
    assert in_csv(tmp_path) == [(n, n / 10) for n in range(1, 5)]


def test_an_event_that_was_cut_short_is_written_again(tmp_path):
    has(tmp_path, 4)
    sync("tensorboard", tmp_path)
    (path,) = tmp_path.glob("logs/tensorboard/*/events.*")
    path.write_bytes(path.read_bytes()[:-20])
    sync("tensorboard", tmp_path)
    assert sorted(in_tensorboard(tmp_path)) == [(n, n / 10) for n in range(1, 5)]


def test_a_logger_that_fails_is_left_out_and_the_others_go_on(tmp_path, monkeypatch):
    def full(self, curve, rows):
        raise OSError("the disk is full")

    has(tmp_path, 3)
    monkeypatch.setattr(tensorboard.TensorBoard, "write", full)
    said = []
    with following(["tensorboard", "csv"], tmp_path, said.append):
        pass
    assert said == ["log tensorboard stops (the disk is full); the results are not affected"]
    assert len(in_csv(tmp_path)) == 3


@pytest.mark.parametrize("name", ["wandb", "mlflow"])
def test_a_package_that_is_missing_is_named_before_anything_runs(name, tmp_path, monkeypatch):
    for module in [key for key in sys.modules if key.split(".")[0] == name]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(UserError, match=rf"pip install 'fedgps-ray\[{name}\]'"):
        fedgps_ray.run("fedavg", rounds=1, model="mlp", out=tmp_path / "out", log=name)
    assert not (tmp_path / "out" / "trials").exists()


def test_what_cannot_be_opened_is_told(tmp_path, monkeypatch):
    def refuse(root):
        raise RuntimeError("no such server")

    monkeypatch.setitem(follow.LOGGERS, "csv", refuse)
    with pytest.raises(UserError, match="log csv: no such server"):
        Follower(["csv"], tmp_path, pytest.fail, None)


def test_a_damaged_trial_does_not_stop_the_log(tmp_path):
    has(tmp_path, 3)
    other = tmp_path / "trials" / "0123456789ab"
    other.mkdir()
    (other / "trial.json").write_text("{")
    sync("csv", tmp_path, pytest.fail)
    assert len(in_csv(tmp_path)) == 3


@pytest.mark.slow
def test_kill_and_resume_log_each_round_once(tmp_path):
    """The loggers are part of what resume continues."""
    run = "run --method fedavg --model mlp --rounds 400 --actors 0 --checkpoint-seconds 1"
    command = [*PROGRAM, *run.split(), "--log", "csv", "--log", "tensorboard", "--set", "threads=1"]
    out = tmp_path / "runs" / "default"
    with start(command, cwd=tmp_path, stderr=subprocess.DEVNULL) as ran:
        while ran.poll() is None and not list(out.glob("logs/csv/*.csv")):
            time.sleep(0.05)
        ran.send_signal(signal.SIGKILL)
    before = len(in_csv(out))
    ended = subprocess.run([*PROGRAM, "resume", str(out)], cwd=tmp_path, capture_output=True)
    assert ended.returncode == 0, ended.stderr
    assert 0 < before < 400
    assert [step for step, _ in in_csv(out)] == list(range(1, 401))
    assert sorted(step for step, _ in in_tensorboard(out)) == list(range(1, 401))


def test_the_log_of_a_finished_trial_can_be_made_later(tmp_path):
    settings = {"method": "fedavg", "rounds": 2, "model": "mlp", "out": tmp_path}
    fedgps_ray.run(**settings)
    assert not Path(tmp_path / "logs").exists()
    fedgps_ray.run(**settings, log=["csv"])
    assert len(in_csv(tmp_path)) == 2
