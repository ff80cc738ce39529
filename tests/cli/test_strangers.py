"""A folder from somebody else: it says what to compute, and nothing about where."""

import io
import itertools
import json
import os
import shutil
import socket
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from rich.live import Live
from rich.status import Status
from rich.table import Table
from rich.text import Text

from fedgps_ray import cli
from fedgps_ray.api.guard import GuardedConsole
from fedgps_ray.cli.app import err, out
from fedgps_ray.cli.commands import resume as resuming
from fedgps_ray.errors import UserError
from fedgps_ray.experiment import load
from fedgps_ray.experiment.tables import parse_setting
from fedgps_ray.identity import trial_id
from fedgps_ray.results import files, read, schema
from fedgps_ray.results.named import known_files
from fedgps_ray.results.read import hashes, read_rows
from fedgps_ray.results.store import TrialStore
from fedgps_ray.results.summary import summary
from fedgps_ray.results.tables import write
from fedgps_ray.rounds.trial import run_trial
from fedgps_ray.spec import ExecutionSpec, trial_spec
from fedgps_ray.sweep.state import State
from fedgps_ray.sweep.state import load as load_state
from fedgps_ray.tools import replay
from fedgps_ray.units import printable

SPEC = trial_spec(
    method="fedavg",
    model="mlp",
    dataset={"name": "synthetic", "image_size": 8, "train_size": 40, "test_size": 20},
    partition="iid",
    clients=2,
    rounds=3,
)
RESULTS = Path(__file__).parents[1] / "results"
ESCAPES = "\x1b]0;owned\x07\x1b[2J\x9b31m"


@pytest.fixture
def fedgps(monkeypatch, capsys):
    def run(*words):
        monkeypatch.setattr(sys, "argv", ["fedgps-ray", *map(str, words)])
        try:
            cli.main()
            code = 0
        except SystemExit as end:
            code = end.code or 0
        said = capsys.readouterr()
        return code, said.out, " ".join(said.err.split())

    return run


@pytest.fixture
def interrupted(tmp_path):
    """Return a results folder with a trial that stopped after its first round."""
    return stopped_after(1, tmp_path)


def stopped_after(rounds, folder):
    events = run_trial(SPEC, ExecutionSpec(out=folder, actors=0, checkpoint_seconds=0))
    list(itertools.islice(events, 1 + rounds))
    events.close()
    return folder


def trial_json(folder):
    return folder / "trials" / SPEC.trial_id / "trial.json"


def edit(folder, **execution):
    path = trial_json(folder)
    info = json.loads(path.read_text())
    info["execution"] |= execution
    files.write_json(path, info)


@pytest.mark.parametrize(("place", "named"), [("", "."), ("inner", ".."), ("..", "ID")])
def test_a_trial_goes_on_in_its_own_folder_however_it_is_named(
    interrupted, fedgps, monkeypatch, place, named
):
    trial = trial_json(interrupted).parent
    (trial / "inner").mkdir()
    monkeypatch.chdir(trial / place)
    named = named.replace("ID", trial.name)
    assert fedgps("resume", named, "--actors", 0)[0] == 0
    assert read.read_trial(trial)["status"] == "finished"
    assert fedgps("verify", named)[1].startswith(f"{trial.name}: ")
    assert [path.parent for path in interrupted.rglob("trial.json")] == [trial]


def test_a_trial_behind_a_link_of_the_users_goes_on_where_it_is(
    interrupted, fedgps, tmp_path_factory
):
    link = tmp_path_factory.mktemp("mine") / "link"
    link.symlink_to(trial_json(interrupted).parent)
    assert fedgps("resume", link, "--actors", 0)[0] == 0
    assert read.read_trial(trial_json(interrupted).parent)["status"] == "finished"
    assert list(link.parent.iterdir()) == [link]


# --- where it runs --------------------------------------------------------------------------------


def test_nobody_connects_to_the_address_in_a_folder(interrupted, fedgps, monkeypatch):
    monkeypatch.delenv("FEDGPS_RAY_ADDRESS", raising=False)
    with socket.create_server(("127.0.0.1", 0)) as trap:
        trap.settimeout(0.5)
        address = f"127.0.0.1:{trap.getsockname()[1]}"
        edit(interrupted, address=address)
        code, _, said = fedgps("resume", interrupted)
        with pytest.raises(TimeoutError):
            trap.accept()
    assert code == 0
    assert f"run with --address {address}; pass --address {address} to use it again" in said


def test_storage_and_data_in_a_folder_are_shown_and_ignored(interrupted, fedgps, tmp_path):
    victim = tmp_path / "victim" / "trials" / SPEC.trial_id
    victim.mkdir(parents=True)
    (victim / "thesis.txt").write_text("precious")
    edit(interrupted, storage=(tmp_path / "victim").as_uri(), data_dir="/their/data", download=True)
    code, _, said = fedgps("resume", interrupted)
    assert code == 0
    for option in ("--storage file:///", "--data-dir /their/data", "--download"):
        assert f"pass {option}" in said
    assert (victim / "thesis.txt").read_text() == "precious"


@pytest.mark.parametrize(
    ("told", "problem"),
    [
        ({"actors": -1}, "actors: must be 'auto' or a number from 0, got -1"),
        ({"files": "99"}, "execution.files: must be a table, got '99'"),
    ],
)
def test_a_way_to_run_that_cannot_be_is_one_line(told, problem, interrupted, fedgps):
    edit(interrupted, **told)
    trial = interrupted / "trials" / SPEC.trial_id
    for _ in range(2):  # the trial stays where it is, though its file is damaged
        code, said, errors = fedgps("resume", interrupted)
        assert code == 2
        where = f"error: {trial} says how to run, and that cannot be: "
        assert f"{where}{problem}" in said + errors


def test_what_the_user_repeats_is_used(interrupted, monkeypatch):
    edit(interrupted, storage="s3://theirs", actors=3)
    used = []
    monkeypatch.setattr(
        resuming, "run_and_show", lambda spec, execution, *_: used.append(execution)
    )
    monkeypatch.setenv("FEDGPS_RAY_ADDRESS", "10.0.0.1:6379")
    monkeypatch.setattr(
        sys, "argv", ["fedgps-ray", "resume", str(interrupted), "--data-dir", "/my/data"]
    )
    with pytest.raises(SystemExit):
        cli.main()
    (execution,) = used
    assert (execution.address, str(execution.data_dir)) == ("10.0.0.1:6379", "/my/data")
    assert (execution.storage, execution.actors) == (None, 3)


def test_logs_that_leave_the_folder_are_not_taken_over(interrupted, fedgps, monkeypatch):
    edit(interrupted, log=["csv", "wandb"], hang_seconds=7.0)
    used = []
    monkeypatch.setattr(
        resuming, "run_and_show", lambda spec, execution, *_: used.append(execution)
    )
    code, _, said = fedgps("resume", interrupted)
    assert code == 0
    assert "pass --log wandb to use it again" in said
    assert (used[0].log, used[0].hang_seconds) == (("csv",), 7.0)


def test_files_are_looked_for_only_where_there_are_some(tmp_path):
    (tmp_path / "own.npz").touch()
    told = {"a" * 64: str(tmp_path / "own.npz"), "b" * 64: "/dev/zero", "../x": "/etc/passwd"}
    assert known_files(told) == {"a" * 64: str(tmp_path / "own.npz")}
    with pytest.raises(UserError, match="must be a table"):
        known_files(["/etc/passwd"])


# --- what reaches the terminal --------------------------------------------------------------------


def test_an_error_text_cannot_move_the_cursor(interrupted, fedgps):
    path = trial_json(interrupted)
    info = json.loads(path.read_text())
    files.write_json(path, {**info, "status": "failed", "error": f"{ESCAPES}[bold]x"})
    code, said, _ = fedgps("status", interrupted)
    assert code == 0
    assert "[bold]x" in said
    assert not set(said) & set(ESCAPES[:1] + "\x07\x9b")


@pytest.mark.parametrize("text", [ESCAPES, "a\u202eb", "\ud800", "\r", "\x00"])
def test_control_characters_are_marked(text):
    shown = printable(f"before {text} after\n\tx")
    shown.encode()
    assert printable(shown) == shown
    assert shown.startswith("before ")
    assert shown.endswith(" after\n\tx")
    assert "\N{REPLACEMENT CHARACTER}" in shown


def test_an_error_with_half_of_a_character_leaves_a_trial_that_can_be_read(tmp_path):
    store = TrialStore(tmp_path, SPEC)
    store.open(ExecutionSpec(out=tmp_path))
    store.note(status="failed", error="no file \udcff\nof this name")
    assert read.read_trial(store.folder)["error"] == "no file \ufffd\nof this name"


def test_consoles_guard_tables_and_colours_remain():
    console = GuardedConsole(file=io.StringIO(), force_terminal=True, width=60)
    table = Table("name")
    table.add_row(f"[red]{ESCAPES}x[/]")
    console.print(table)
    written = console.file.getvalue()
    assert "\x07" not in written
    assert "\x1b[31m" in written
    assert "\x1b[2J" not in written
    assert isinstance(err, GuardedConsole)


def test_live_views_and_status_lines_are_guarded_too():
    console = GuardedConsole(file=io.StringIO(), force_terminal=True, width=60)
    with Live(console=console, auto_refresh=False) as live:
        live.update(f"live {ESCAPES}[red]x", refresh=True)
    with console.status(f"status {ESCAPES}x"):
        pass
    written = console.file.getvalue()
    assert "live" in written
    assert "status" in written
    assert "\x1b[31m" in written
    assert not [sign for sign in ("\x07", "\x9b", "\x1b]", "\x1b[2J") if sign in written]


def test_no_name_becomes_a_link(tmp_path):
    console = GuardedConsole(file=io.StringIO(), force_terminal=True, width=60)
    console.print("[link=http://example.org/\x1bc]name[/]")
    assert console.file.getvalue() == "name\n"


def test_the_timing_shows_the_name_of_a_folder_as_it_is(finished, fedgps):
    folder = finished / "run[" / "x]"  # to rich the end of something that never began
    shutil.copytree(finished / "trials", folder / "trials")
    State("tiny", 1, 3).save(folder)
    (folder / "trials" / SPEC.trial_id / "clients.parquet").write_text("broken")
    code, said, _ = fedgps("status", "--timing", folder)
    assert code == 0
    assert f"{folder}/trials/{SPEC.trial_id}/clients.parquet is damaged" in said


@pytest.mark.parametrize("console", [out, err])
def test_words_between_colons_stay_words(console):
    with console.capture() as shown:
        console.print("results: runs/a:smile:b:x:c", soft_wrap=True)
    assert shown.get() == "results: runs/a:smile:b:x:c\n"


def test_verify_shows_the_name_of_a_folder_as_it_is(finished, monkeypatch):
    trial_json(finished).parent.rename(finished / "trials" / f"[link=x]{ESCAPES}[red]name")
    shown = []
    monkeypatch.setattr(Status, "update", lambda self, text: shown.append(Text.from_markup(text)))
    monkeypatch.setattr(sys, "argv", ["fedgps-ray", "verify", str(finished)])
    with pytest.raises(SystemExit):
        cli.main()
    (text,) = shown
    assert not text.spans
    assert "\x1b" not in text.plain
    assert "[link=x]" in text.plain


def test_a_state_shows_no_control_characters(tmp_path):
    state = State(f"tiny{ESCAPES}", 1, 1)
    state.events.append((1.0, ESCAPES))
    state.save(tmp_path)
    read = load_state(tmp_path)
    assert "\x1b" not in read.name + read.events[0][1]


@pytest.mark.parametrize(
    "change",
    [
        {"finished": "many"},
        {"running": {"x": 3}},
        {"events": [[1]]},
        {"nodes": 3},
        {"began": None},
    ],
)
def test_wrong_types_in_live_json_are_no_state(tmp_path, change):
    State("tiny", 1, 1).save(tmp_path)
    content = json.loads((tmp_path / "live.json").read_text())
    files.write_json(tmp_path / "live.json", {**content, **change})
    assert load_state(tmp_path) is None


@pytest.mark.parametrize(
    "change",
    [
        {"summary": {"rounds_done": "2"}},
        {"summary": [1]},
        {"status": "done\n"},
        {"error": 3},
        {"execution": None},
        {"trial_id": "x\ntouch PWNED; exit 0 #"},
    ],
)
def test_wrong_types_in_trial_json_are_one_line(interrupted, fedgps, change):
    path = trial_json(interrupted)
    info = json.loads(path.read_text())
    files.write_json(path, {**info, **change})
    for command in (["resume", interrupted], ["report", interrupted], ["watch", interrupted]):
        code, _, said = fedgps(*command)
        assert code == 2
        assert "trial.json is damaged" in said


def with_settings(folder, **settings):
    """Give a trial other settings, and the id and the hashes that go with them."""
    path = trial_json(folder)
    info = json.loads(path.read_text())
    for key in ("spec", "identity"):
        info[key] |= settings
    info["trial_id"] = trial_id(info["identity"], info["identity_version"])
    files.write_json(path, info)
    path.parent.rename(path.parent.with_name(info["trial_id"]))


@pytest.mark.parametrize(
    "change",
    [{"seed": "1 --storage s3://x"}, {"seed": 2**63}, {"clients": True}, {"batch_size": 1.5}],
)
def test_settings_of_another_kind_are_one_line(finished, fedgps, change):
    with_settings(finished, **change)
    code, _, said = fedgps("report", finished)
    assert code == 2
    assert f"trial.json is damaged ({next(iter(change))} is " in said


@pytest.mark.parametrize("told", [[1], {"a" * 64: 5}, 3])
def test_a_table_of_files_that_is_none_stops_no_report(finished, fedgps, told):
    with_settings(finished, dataset={"name": "npz", "file": "x", "sha256": "a" * 64})
    (path,) = finished.glob("trials/*/trial.json")
    info = json.loads(path.read_text())
    info["execution"]["files"] = told
    parts = {name: path.with_name(f"{name}.parquet") for name in ("rounds", "clients", "partition")}
    for part in parts.values():
        part.unlink()
    files.write_json(path, {**info, "files": {}})
    code, _, said = fedgps("report", finished)
    assert (code, said) == (0, said)


def test_a_pipe_in_place_of_rows_does_not_stop_a_replay(finished, fedgps):
    path = trial_json(finished)
    info = json.loads(path.read_text())
    path.with_name("rounds.parquet").unlink()
    os.mkfifo(path.with_name("rounds.parquet"))
    files.write_json(path, {**info, "files": {}})
    code, said, _ = fedgps("verify", finished)
    assert (code, "rounds.parquet is damaged (it is not a file)" in " ".join(said.split())) == (
        1,
        True,
    )


# --- seals and replays ----------------------------------------------------------------------------


@pytest.fixture
def finished(tmp_path):
    list(run_trial(SPEC, ExecutionSpec(out=tmp_path, actors=0)))
    return tmp_path


def test_report_tells_what_it_left_out_and_what_is_not_sealed(finished, fedgps):
    other = SPEC.model_copy(update={"seed": 1})
    list(run_trial(other, ExecutionSpec(out=finished, actors=0)))
    damaged = finished / "trials" / other.trial_id / "rounds.parquet"
    damaged.write_bytes(damaged.read_bytes()[:-100])
    path = trial_json(finished)
    info = {key: value for key, value in json.loads(path.read_text()).items() if key != "sha256"}
    path.write_text(json.dumps({key: value for key, value in info.items() if key != "files"}))
    code, _, said = fedgps("report", finished)
    assert code == 0
    assert f"left out: {damaged}" in said
    assert f"cannot be noticed: 1 ({SPEC.trial_id})" in said
    _, out, _ = fedgps("report", finished, "--json")
    told = json.loads(out)
    assert (len(told["problems"]), told["not_sealed"]) == (1, [SPEC.trial_id])


@pytest.mark.parametrize("name", ["rounds", "clients", "partition"])
def test_a_flipped_bit_is_told_and_the_trial_is_run_again(finished, fedgps, name):
    path = finished / "trials" / SPEC.trial_id / f"{name}.parquet"
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 4
    path.write_bytes(content)
    code, said, _ = fedgps("status", finished, "--verify")
    assert code == 1
    assert f"{name}.parquet is damaged" in " ".join(said.split())
    code, _, said = fedgps("resume", finished)
    assert code == 0
    assert "is moved to" in said
    assert (finished / "quarantine" / f"{SPEC.trial_id}-1").is_dir()
    code, said, _ = fedgps("status", finished, "--verify")
    assert code == 0
    assert "1 ended trials are as they were when they ended" in said


def test_a_changed_table_is_found_however_large_it_is(finished, fedgps, monkeypatch):
    monkeypatch.setattr(read, "QUICK_BYTES", 1000)
    path = trial_json(finished).with_name("rounds.parquet")
    rows = read_rows(path, schema.ROUNDS)
    place = rows.column_names.index("accuracy")
    pq.write_table(rows.set_column(place, "accuracy", [[0.999] * len(rows)]), path)
    code, _, said = fedgps("report", finished)
    assert (code, "rounds.parquet is damaged" in said) == (2, True), said
    code, _, said = fedgps("resume", finished)
    assert (code, "was damaged and is moved to" in said) == (0, True), said


@pytest.mark.parametrize("state", ["finished", "interrupted"])
def test_an_edited_trial_json_is_put_aside_and_its_trial_run_again(state, request, fedgps):
    folder = request.getfixturevalue(state)
    path = trial_json(folder)
    text = path.read_text()
    path.write_text(text.replace('"versions"', '"edited": 1, "versions"'))
    assert fedgps("status", folder, "--verify")[0] == 1
    code, _, said = fedgps("resume", folder)
    assert (code, "was damaged and is moved to" in said) == (0, True)
    assert fedgps("status", folder, "--verify")[0] == 0
    assert "edited" not in json.loads(path.read_text())


def test_damage_below_a_parent_folder_is_told(finished, fedgps, tmp_path_factory):
    parent = tmp_path_factory.mktemp("parent")
    shutil.copytree(finished, parent / "mine")
    assert fedgps("status", parent, "--verify")[0] == 0
    trial_json(parent / "mine").with_name("model.safetensors").unlink()
    code, said, _ = fedgps("status", parent, "--verify")
    assert (code, "1 damaged" in said, f"{SPEC.trial_id} is damaged" in said) == (1, True, True)
    assert fedgps("status", parent, "--verify", "--json")[0] == 1


def test_a_replay_proves_what_a_seal_cannot(finished, fedgps):
    code, said, _ = fedgps("verify", finished)
    assert code == 0
    assert "all 3 of 3 rounds trained again" in " ".join(said.split())
    code, said, _ = fedgps("verify", finished / "trials" / SPEC.trial_id, "--rounds", 1)
    assert "the first 1 of 3 rounds" in " ".join(said.split())


@pytest.fixture
def with_checkpoint(tmp_path):
    """Return a results folder whose trial has kept the checkpoint after its second round."""
    list(run_trial(SPEC, ExecutionSpec(out=tmp_path, actors=0, checkpoint_seconds=0)))
    return tmp_path


def test_the_last_rounds_are_trained_again_from_the_checkpoint(with_checkpoint, fedgps):
    code, said, _ = fedgps("verify", with_checkpoint, "--rounds", 1)
    assert code == 0
    assert "the first 1 and the last 1 of 3 rounds trained again" in " ".join(said.split())


def test_training_the_last_rounds_again_tells_a_forged_last_accuracy(with_checkpoint, fedgps):
    path = trial_json(with_checkpoint).with_name("rounds.parquet")
    rows = read_rows(path, schema.ROUNDS)
    place = rows.column_names.index("accuracy")
    forged = [*rows["accuracy"].to_pylist()[:-1], 0.999]
    write(path, rows.set_column(place, "accuracy", [forged]))
    reseal(with_checkpoint, summary=summary(read_rows(path, schema.ROUNDS).to_pylist()))
    assert fedgps("status", with_checkpoint, "--verify")[0] == 0
    code, said, _ = fedgps("verify", with_checkpoint, "--rounds", 1)
    assert (code, "round 3: accuracy is 0.999" in " ".join(said.split())) == (1, True), said


def test_a_kept_checkpoint_that_goes_with_other_rows_is_told(with_checkpoint, fedgps):
    path = trial_json(with_checkpoint).with_name("rounds.parquet")
    rows = read_rows(path, schema.ROUNDS)
    place = rows.column_names.index("loss")
    forged = [rows["loss"].to_pylist()[0], 0.001, rows["loss"].to_pylist()[2]]
    write(path, rows.set_column(place, "loss", [forged]))
    reseal(with_checkpoint)
    code, said, _ = fedgps("verify", with_checkpoint, "--rounds", 1)
    told = "the rows of finished rounds are missing or were changed"
    assert (code, told in " ".join(said.split())) == (1, True), said


@pytest.mark.parametrize("is_part", [True, False])
def test_a_replay_that_ends_too_early_is_told(with_checkpoint, is_part, tmp_path_factory):
    rows = read_rows(trial_json(with_checkpoint).with_name("rounds.parquet"), schema.ROUNDS)
    again = ExecutionSpec(out=tmp_path_factory.mktemp("again"), actors=0)
    events = itertools.islice(run_trial(SPEC, again), 1 + 2)
    told = replay._other_rounds(None, events, rows.to_pylist(), is_part)
    assert told == "it ended earlier this time"


def test_a_replay_follows_no_link_out_of_the_folder(with_checkpoint, fedgps, tmp_path_factory):
    trial = trial_json(with_checkpoint).parent
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "checkpoint"
    (trial / "checkpoint").rename(elsewhere)
    (trial / "checkpoint").symlink_to(elsewhere)
    code, said, _ = fedgps("verify", with_checkpoint, "--rounds", 1)
    assert (code, "is a symbolic link" in " ".join(said.split())) == (1, True), said


def reseal(folder, **facts):
    """Make all hashes again, as somebody might who wants to be believed."""
    path = trial_json(folder)
    info = json.loads(path.read_text()) | facts
    files.write_json(path, {**info, "files": hashes(path.parent, info["spec"]["rounds"])})


@pytest.mark.parametrize("rounds", [1, 3])
def test_a_trial_that_a_search_stopped_is_replayed_as_far_as_it_came(rounds, tmp_path, fedgps):
    interrupted = stopped_after(rounds, tmp_path)
    store = TrialStore(interrupted, SPEC)
    store.open(ExecutionSpec(out=interrupted, actors=0))
    store.note(status=schema.STOPPED)
    code, said, _ = fedgps("verify", interrupted, "--full")
    told = f"all {rounds} of {rounds} rounds trained again"
    assert (code, told in " ".join(said.split())) == (0, True), said


@pytest.mark.parametrize("scope", [["--full"], ["--rounds", 1]])
def test_a_replay_of_older_trials_compares_what_they_have(tmp_path, fedgps, scope):
    for layout in ("layout1", "layout2"):
        shutil.copytree(RESULTS / layout / "trials", tmp_path / "trials", dirs_exist_ok=True)
    _, out, _ = fedgps("verify", tmp_path, *scope, "--json")
    told = {each["trial_id"]: each["problem"] for each in json.loads(out)}
    assert len(told) == 6
    assert sum("by an older version" in (problem or "") for problem in told.values()) == 3
    assert told["b447c331bab7"] is None
    assert "metrics" not in (told["bb531512e66b"] or "")


def test_an_excerpt_of_a_trial_is_not_called_damaged(finished, fedgps):
    path = trial_json(finished)
    path.with_name("clients.parquet").unlink()
    info = json.loads(path.read_text())
    files.write_json(path, {**info, "files": hashes(path.parent)})
    code, said, _ = fedgps("verify", finished)
    assert (code, "it has no clients.parquet, so it cannot" in " ".join(said.split())) == (1, True)


@pytest.mark.parametrize(
    ("table", "column", "value", "told"),
    [
        ("rounds", "accuracy", 0.999, "best_accuracy"),
        ("rounds", "loss", 0.001, "round 1: loss is 0.001 on record"),
        ("rounds", "class_accuracy", [1.0] * 10, "class_accuracy is"),
        ("rounds", "lr", 0.5, "rounds.parquet: lr is 0.5, in trial.json 0.01"),
        ("clients", "update_norm", 0.1, "clients.parquet: update_norm is 0.1 on record"),
        ("partition", "count", 7, "partition.parquet: count is 7 on record"),
    ],
)
def test_a_replay_tells_forged_rows(finished, fedgps, table, column, value, told):
    path = trial_json(finished).with_name(f"{table}.parquet")
    rows = read_rows(path, getattr(schema, table.upper()))
    place = rows.column_names.index(column)
    write(path, rows.set_column(place, column, [[value] * len(rows)]))
    is_believed_until_replayed(finished, fedgps, told)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"best_accuracy": 0.99}, "summary.best_accuracy is 0.99"),
        ({"bytes_up": 1}, "summary.bytes_up is 1"),
        ({"status": "diverged"}, "its status is diverged, by its rows it is finished"),
        ({"partition_sha256": "0" * 64}, "partition_sha256 is 000"),
    ],
)
def test_a_replay_tells_a_forged_summary(finished, fedgps, change, told):
    path = trial_json(finished)
    info = json.loads(path.read_text())
    for key, value in change.items():
        (info if key in info else info["summary"])[key] = value
    files.write_json(path, info)
    is_believed_until_replayed(finished, fedgps, told)


def test_a_replay_tells_rounds_that_were_cut_off(finished, fedgps):
    path = trial_json(finished)
    rows = read_rows(path.with_name("rounds.parquet"), schema.ROUNDS)[:1]
    write(path.with_name("rounds.parquet"), rows)
    info = json.loads(path.read_text())
    files.write_json(path, {**info, "summary": summary(rows.to_pylist())})
    is_believed_until_replayed(finished, fedgps, "is finished, by its rows it is stopped")


def test_a_replay_tells_another_model(finished, fedgps):
    path = trial_json(finished).with_name("model.safetensors")
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    is_believed_until_replayed(finished, fedgps, "model.safetensors is another one now")


def is_believed_until_replayed(folder, fedgps, told):
    reseal(folder)
    assert fedgps("status", folder, "--verify")[0] == 0
    code, said, _ = fedgps("verify", folder, "--full")
    assert (code, told in " ".join(said.split())) == (1, True), said


def test_a_changed_row_of_an_unfinished_trial_is_not_carried_on(interrupted, fedgps):

    path = trial_json(interrupted).with_name("rounds.parquet")
    rows = read_rows(path, schema.ROUNDS)
    place = rows.column_names.index("accuracy")
    write(path, rows.set_column(place, "accuracy", [[0.999] * len(rows)]))
    code, _, said = fedgps("resume", interrupted)
    assert code == 0
    assert "the rows of finished rounds are missing or were changed" in said
    assert "starting from the first round" in said
    assert 0.999 not in read_rows(path, schema.ROUNDS)["accuracy"].to_pylist()


# --- numbers and depths ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            '[search]\nsamples = 1000000000\n[search.ranges]\n"method.rho" = {low=0.1, high=1.0}\n',
            "search.samples: at most 20,000, got 1,000,000,000",
        ),
        ("base." + ".".join(["a"] * 3000) + " = 1\n", "nested too deeply"),
        ("base = " + "[" * 3000 + "]" * 3000 + "\n", "nested too deeply"),
        ("[base]\nthreads = 1000000\n", "threads: must be less than or equal to 1024"),
    ],
    ids=["samples", "deep key", "deep list", "threads"],
)
def test_an_experiment_beyond_all_bounds_is_refused_at_once(tmp_path, text, message):
    path = tmp_path / "own.toml"
    path.write_text(text)
    with pytest.raises(UserError, match=message):
        load(path)


def test_a_setting_nested_too_deeply_is_refused():
    for setting in ("a=" + "[" * 5000 + "]" * 5000, ".".join(["a"] * 3000) + "=1"):
        with pytest.raises(UserError, match="nested too deeply"):
            parse_setting(setting)
